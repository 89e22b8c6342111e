"""Bugs planted into whole clusters are found, each by an invariant with a name.

Those that need more seeds than a quick test has are in the record (`python -m tests.sim.planted`).
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim.planted import control, native
from tests.sim.planted.__main__ import find

# In how many seeds at most it must show.
QUICK = {
    "vote_not_persisted": 4,
    "term_not_persisted": 4,
    "ack_before_fsync": 6,
    "truncation_by_mark": 6,
    "timeout_on_wall_clock": 40,
    "new_leader_does_not_wait": 6,
    "apply_differs": 4,
    "old_epoch_opened": 4,
    "everybody_opens": 4,
    "commit_told_too_high": 4,
    "election_on_one_vote": 6,
    "same_producer_twice": 4,
    "vote_for_shorter_log": 10,
    "vote_twice": 4,
    "one_half_decides": 10,
    "change_before_own_term": 16,
    "read_before_own_term": 16,
    "own_copy_counts_at_once": 8,
}
NATIVE = {"old_epoch": 6, "ack_before_sync": 8}


def test_every_quick_bug_can_be_planted() -> None:
    assert set(QUICK) <= set(control.BUGS)


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_of_the_control_plane_is_found(name: str) -> None:
    _, broken = find(partial(control.planted, name), range(1, QUICK[name] + 1))
    assert broken is not None, f"{name} is not found in {QUICK[name]} seeds"
    assert broken.invariant


@pytest.mark.parametrize("name", NATIVE)
def test_a_fault_of_the_engine_is_found(name: str) -> None:
    _, broken = find(partial(native.planted, name), range(1, NATIVE[name] + 1), is_native=True)
    assert broken is not None, f"{name} is not found in {NATIVE[name]} seeds"

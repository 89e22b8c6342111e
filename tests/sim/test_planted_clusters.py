"""Bugs planted into whole clusters are found, each by an invariant with a name.

Those that need more seeds than a quick test has are in the record (`python -m tests.sim.planted`).
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim.planted import control, native
from tests.sim.planted.__main__ import find
from tests.sim.planted.known_seeds import known_first

# Most show within ten seeds. Which one it is changes with every change of what runs, so the bound is wide.
SEEDS_MAX = 60
QUICK = (
    "vote_not_persisted",
    "term_not_persisted",
    "ack_before_fsync",
    "truncation_by_mark",
    "timeout_on_wall_clock",
    "new_leader_does_not_wait",
    "apply_differs",
    "old_epoch_opened",
    "everybody_opens",
    "commit_told_too_high",
    "election_on_one_vote",
    "same_producer_twice",
    "vote_for_shorter_log",
    "vote_twice",
    "one_half_decides",
    "change_before_own_term",
    "read_before_own_term",
    "own_copy_counts_at_once",
    "answer_before_commit",
    "woken_leader_does_not_wait",
    "read_without_a_quorum",
    "truncate_what_matches",
)
NATIVE = ("old_epoch", "ack_before_sync")


def test_every_quick_bug_can_be_planted() -> None:
    assert set(QUICK) <= set(control.BUGS)


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_of_the_control_plane_is_found(name: str) -> None:
    seeds = known_first(name, range(1, SEEDS_MAX + 1))
    _, broken = find(partial(control.planted, name), seeds)
    assert broken is not None, f"{name} is not found in {SEEDS_MAX} seeds"
    assert broken.invariant


@pytest.mark.parametrize("name", NATIVE)
def test_a_fault_of_the_engine_is_found(name: str) -> None:
    seeds = known_first(name, range(1, SEEDS_MAX + 1))
    _, broken = find(partial(native.planted, name), seeds, is_native=True)
    assert broken is not None, f"{name} is not found in {SEEDS_MAX} seeds"

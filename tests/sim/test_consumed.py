"""Transformers in simulated clusters write each row of their input once, and in the order of its key."""

from __future__ import annotations

import pytest

from tests.sim.consumed import busy, quiet, run_seed, with_transformers
from tests.sim.faults.moments import HARMS, KINDS


def test_a_transformer_alone_copies_every_row_and_equal_seeds_have_equal_traces() -> None:
    result, again = run_seed(quiet(2)), run_seed(quiet(2))
    assert result.violation is None, result.violation
    assert result.trace == again.trace
    assert result.counts["block_committed"] > 10
    assert result.counts["block_aborted"] > 0
    assert result.counts["rows_copied"] > 1_000


def test_members_and_owners_that_die_at_any_step_of_a_transaction_leave_each_row_once() -> None:
    kinds = "claimed kill", "claimed gate_owner", "decided stand_still", "claimed split_output"
    result = run_seed(busy(2, kinds, seconds=8))
    assert result.violation is None, result.violation
    assert sum(result.counts.get(kind.replace(" ", "_"), 0) for kind in kinds) >= 2, result.counts
    assert result.counts["rows_copied"] > 500


@pytest.mark.long(
    "short seeds in test_members_and_owners_that_die_at_any_step_of_a_transaction_leave_each_row_once"
)
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_seed_with_every_kind_of_strike_is_sound(seed: int) -> None:
    result = run_seed(with_transformers(seed))
    assert result.violation is None, f"seed {seed}: {result.violation}"


def test_seeds_have_every_moment() -> None:
    drawn = {one.kind for seed in range(100) for one in with_transformers(seed).moments}
    assert drawn == set(KINDS)
    assert {kind.partition(" ")[2] for kind in drawn} == set(HARMS)
    assert 5 < sum(not with_transformers(seed).moments for seed in range(100)) < 40

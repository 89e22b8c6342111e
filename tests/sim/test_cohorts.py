"""Clusters with a cohort keep what the consumer promises, and bugs that only a cluster shows are found."""

from __future__ import annotations

import pytest

from tests.sim.cohorts import run_seed, with_cohort
from tests.sim.planted.cohorts import BUGS, find


# With splits under members, and members that are killed, stand still and are replaced.
@pytest.mark.parametrize("seed", [2])
def test_members_are_given_each_row_in_order_and_none_again(seed: int) -> None:
    result = run_seed(with_cohort(seed))
    assert result.violation is None, f"seed {seed}: {result.violation}"
    assert result.counts["rows_given_to_members"] > 1_000
    assert result.counts["hold_given"] > 1


# Seeds that showed it when they were last tried, and are sound without it.
SHOWN_BY = {"children_at_once": (2,)}


def test_every_bug_is_looked_for() -> None:
    assert SHOWN_BY.keys() == BUGS.keys()


@pytest.mark.parametrize("name", sorted(SHOWN_BY))
def test_a_bug_of_cohorts_is_found(name: str) -> None:
    seed, broken = find(name, SHOWN_BY[name])
    assert broken is not None, f"{name} is not shown by the seeds up to {seed}"

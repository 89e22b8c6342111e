"""Clusters with a cohort keep what the consumer promises, and bugs that only a cluster shows are found."""

from __future__ import annotations

import pytest

from tests.sim.cohorts import modes_of, run_seed, with_cohort
from tests.sim.planted.cohorts import BUGS, SHOWN_BY, find, seeds_of


# With splits under members, and members that are killed, stand still and are replaced.
@pytest.mark.parametrize(
    ("mode", "seed", "least"),
    [
        ("stream", 2, {"rows_given_to_members": 1_000, "hold_given": 2}),
        ("queue", 2, {"rows_done": 1_000, "rows_parked": 1, "parked_put_back": 1, "sought": 1}),
        ("checkpoint", 2, {"rows_saved": 1_000, "hold_given": 2}),
    ],
)
def test_members_are_given_each_row_by_the_rules_of_their_mode(
    mode: str, seed: int, least: dict[str, int]
) -> None:
    result = run_seed(with_cohort(seed, modes=(mode,)))
    assert result.violation is None, f"seed {seed}: {result.violation}"
    assert all(result.counts.get(name, 0) >= count for name, count in least.items()), result.counts


def test_seeds_have_cohorts_of_every_mode_and_sometimes_of_two() -> None:
    drawn = [modes_of(seed) for seed in range(200)]
    assert {mode for modes in drawn for mode in modes} == {"stream", "queue", "checkpoint"}
    assert 5 < sum(len(modes) == 2 for modes in drawn) < 50


def test_every_bug_is_looked_for() -> None:
    assert SHOWN_BY.keys() >= BUGS.keys()


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_bug_of_cohorts_is_found(name: str) -> None:
    mode, known, rule = SHOWN_BY[name]
    seed, broken = find(name, mode, seeds_of(name))
    assert broken is not None, f"{name} is not shown by seeds up to {seed}"
    assert seed != known or broken.invariant.startswith(rule), broken

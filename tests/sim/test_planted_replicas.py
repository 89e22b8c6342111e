"""Bugs planted into changes and replicas are found by a move that nobody disturbs, or within a few seeds.

The others, and how many seeds they need, are in the record (`python -m tests.sim.planted --replicas`).
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim import matrix, simulation
from tests.sim.faults.plan import Plan, with_older_logs
from tests.sim.planted import replicas
from tests.sim.planted.__main__ import find_in_replicas
from tests.sim.planted.known_seeds import known_first

SEEDS_MAX = 60
QUICK = ("dual_write_stops_before_the_hold", "the_hold_ends_by_timer", "ends_are_counted_in_rows")
CELL_SEEDS_MAX = 4
LOST = {"I5", "I6", "I14"}
"""What names lost rows: by the ledger, by their producers, by their readers."""


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_of_changes_is_found(name: str) -> None:
    needed, broken = find_in_replicas(partial(replicas.planted, name), range(1, SEEDS_MAX + 1))
    assert broken is not None, f"{name} is {needed}"
    assert broken.invariant


def test_who_proves_what_is_not_durable_loses_rows_that_nobody_else_does() -> None:
    """Disks take time in these seeds: what a killed target had appended only is in nobody's files."""
    found = 0
    seeds = known_first("what_is_not_durable_proves", range(1, SEEDS_MAX + 1))
    for plan in (plan for plan in map(Plan.drawn, seeds) if plan.moves):
        assert simulation.run(plan).violation is None, f"replay: python -m tests.sim --seed {plan.seed}"
        with replicas.planted("what_is_not_durable_proves"):
            broken = simulation.run(plan).violation
        if broken is not None:
            assert broken.invariant in LOST, broken
            found = plan.seed
            break
    assert found, f"not found in {SEEDS_MAX} seeds"


def test_rows_that_an_older_log_lacks_are_lost_where_it_counts() -> None:
    found = 0
    seeds = known_first("an_older_log_counts", range(1, SEEDS_MAX + 1))
    for plan in (with_older_logs(Plan.drawn(seed)) for seed in seeds):
        assert simulation.run(plan).violation is None, f"seed {plan.seed}"
        with replicas.planted("an_older_log_counts"):
            broken = simulation.run(plan).violation
        if broken is not None:
            assert broken.invariant in LOST, broken
            found = plan.seed
            break
    assert found, f"not found in {SEEDS_MAX} seeds"


@pytest.mark.parametrize("name", replicas.SHOWN_BY)
def test_a_cell_of_the_matrix_shows_it_and_is_clean_without_it(name: str) -> None:
    cell = replicas.SHOWN_BY[name]
    for seed in range(1, CELL_SEEDS_MAX + 1):
        clean, _ = matrix.run(cell, seed)
        assert clean.violation is None, clean.violation
        with replicas.planted(name):
            result, _ = matrix.run(cell, seed)
        if result.violation is not None:
            assert result.violation.invariant in LOST, result.violation
            return
    pytest.fail(f"{name} is not found in {CELL_SEEDS_MAX} seeds of {cell}")

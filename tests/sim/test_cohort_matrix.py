"""A cohort that is struck at any step goes on, and keeps every promise: the matrix's short form."""

from __future__ import annotations

from typing import Final

import pytest

from tests.sim import cohort_matrix
from tests.sim.cohort_steps import STEPS, cells
from tests.sim.faults.struck import Cell
from tests.sim.planted.cohorts import planted

FIXED: Final = (
    Cell("held", "holder", "kill", "short"),
    Cell("acknowledged", "owner", "power", "short"),
    Cell("acknowledged", "control", "away", "long"),
    Cell("revoked", "leader", "kill", "short"),
    Cell("committed", "owner", "pause", "long"),
    Cell("leased", "holder", "kill", "short"),
    Cell("parked", "owner", "kill", "short"),
    Cell("checkpoint_committed", "rows_owner", "kill", "short"),
)
"""`python -m tests.sim.cohort_matrix --all` has all cells."""
SHOWN_BY: Final = {
    "children_at_once": (Cell("committed", "holder", "pause", "short"), "cohort early"),
    "acknowledged_when_given": (Cell("leased", "holder", "kill", "short"), "queue"),
    "reported_when_given": (Cell("saved", "holder", "kill", "short"), "checkpoint ahead"),
}
"""A cell that shows the planted fault, and what breaks."""


@pytest.mark.parametrize("cell", FIXED, ids=str)
def test_a_cohort_that_is_struck_goes_on_and_keeps_its_promises(cell: Cell) -> None:
    result, end = cohort_matrix.run_cell(cell)
    replay = f"python -m tests.sim.cohort_matrix --only {cell}"
    assert result.violation is None, f"{result.violation}; replay: {replay}"
    assert end == "sound"


def test_each_step_has_each_kind_of_victim() -> None:
    victims = {"owner", "leader", "home", "control", "holder", "waiter"}
    for step in STEPS:
        assert {cell.victim for cell in cells() if cell.step == step} >= victims


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_planted_fault_is_found(name: str) -> None:
    cell, rule = SHOWN_BY[name]
    with planted(name) as module:
        broken = cohort_matrix.run_cell(cell, native=module)[0].violation
    assert broken is not None and broken.invariant.startswith(rule), broken

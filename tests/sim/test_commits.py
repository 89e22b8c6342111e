"""A commit that is struck at any step ends whole, or as if it had never begun: the matrix's second flow."""

from __future__ import annotations

import datetime
from random import Random

import pytest

from tests.sim import commits, matrix
from tests.sim.faults.struck import Cell

FIXED = (
    Cell("begun", "leader", "kill", "short"),
    Cell("install_scopes", "owner", "pause", "long"),
    Cell("count_staged", "owner", "power", "long"),
    Cell("count_staged", "owner", "move", "short"),
    Cell("count_staged", "owner", "late", "short"),
    Cell("decided", "owner", "kill", "long"),
    Cell("decided", "owner", "move", "short"),
    Cell("decided", "leader", "partition", "long"),
    Cell("publish", "owner", "power", "long"),
    Cell("publish", "client", "kill", "short"),
    Cell("confirmed", "owner", "kill", "short"),
)
ROTATING = 4
"""Others each day; a failure names its cell. `python -m tests.sim.matrix` has all of them."""


@pytest.mark.parametrize("cell", FIXED, ids=str)
def test_a_commit_ends_whole_or_not_at_all(cell: Cell) -> None:
    result, outcome = matrix.run(cell)
    assert result.violation is None, f"{result.violation}; replay: python -m tests.sim.matrix --only {cell}"
    assert outcome in {"committed", "begun anew"}


def test_so_do_those_of_the_day(soak: int) -> None:
    day = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
    for cell in Random(day).sample([*commits.cells()], ROTATING * min(soak, 30)):
        broken = matrix.run(cell, seed=day)[0].violation
        assert broken is None, f"{broken}; replay: python -m tests.sim.matrix --seed {day} --only {cell}"

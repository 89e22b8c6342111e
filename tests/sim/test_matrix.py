"""A move that is struck at any step ends whole, or as if it had never begun: the matrix's short form."""

from __future__ import annotations

import datetime
from random import Random

import pytest

from tests.sim import matrix
from tests.sim.faults.struck import Cell

FIXED = (
    Cell("prepared", "target", "power", "long"),
    Cell("sync_start", "source", "kill", "short"),
    Cell("held", "source", "partition", "long"),
    Cell("hold", "source", "power", "long"),
    Cell("committed", "target", "kill", "short"),
    Cell("committed", "target", "late", "short"),
    Cell("committed", "leader", "pause", "long"),
    Cell("hold", "source", "late", "short"),
    Cell("adopt", "target", "power", "short"),
    Cell("opened", "source", "pause", "long"),
)
ROTATING = 6
"""Others each day; a failure names its cell. `python -m tests.sim.matrix` has all of them."""


@pytest.mark.parametrize("seed", [1, 2], ids=["of_three", "of_one"])
@pytest.mark.parametrize("cell", FIXED, ids=str)
def test_a_move_ends_whole_or_not_at_all(cell: Cell, seed: int) -> None:
    result, outcome = matrix.run(cell, seed)
    replay = f"python -m tests.sim.matrix --seed {seed} --only {cell}"
    assert result.violation is None, f"{result.violation}; replay: {replay}"
    assert outcome in {"committed", "rolled back"}


def test_so_do_those_of_the_day(soak: int) -> None:
    day = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
    for cell in Random(day).sample([*matrix.cells()], ROTATING * min(soak, 50)):
        broken = matrix.run(cell, seed=day)[0].violation
        assert broken is None, f"{broken}; replay: python -m tests.sim.matrix --seed {day} --only {cell}"

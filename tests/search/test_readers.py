"""Every order of rows, layout changes, tables, prunes and restarts, in small worlds.

A reader loses no row, returns none twice and none out of order, or raises an error where rows were pruned.
From every state it can still read everything, or has raised.
"""

from __future__ import annotations

import pytest

from ringfence.common.lineage import Effect, Lineage, Part
from tests.search import readers
from tests.search.explore import exhaust
from tests.search.readers import AROUND, DEEP, DIAMOND, ONE, SHIFT, SHIFTED, TWO, ReaderWorld

WORLDS = {
    "split, two rows of a slot": lambda: ReaderWorld(ONE, AROUND[0], rows=2, budget=(1, 0, 1)),
    "split, merge, begun again": lambda: ReaderWorld(ONE, *AROUND, budget=(1, 0, 1)),
    "split, merge, one is pruned": lambda: ReaderWorld(ONE, *AROUND, budget=(1, 1, 1)),
    "three generations, two are pruned": lambda: ReaderWorld(ONE, *DEEP, budget=(1, 2, 0)),
    "merge, split, two are pruned": lambda: ReaderWorld(TWO, *DIAMOND, budget=(1, 2, 1)),
    "repartition, begun again": lambda: ReaderWorld(SHIFTED, *SHIFT, budget=(1, 0, 1)),
    "repartition, one is pruned": lambda: ReaderWorld(SHIFTED, *SHIFT, budget=(1, 1, 1)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_every_row_is_read_once_in_order_or_its_loss_is_an_error(name: str) -> None:
    found = exhaust(WORLDS[name]())
    assert found.wrong is None, str(found)
    assert found.ends > 0


class ChildAtOnce(Lineage):
    def _add(self, part: Part, *, is_open: bool) -> bool:
        return super()._add(part._replace(older=()), is_open=is_open)


class DoneWithoutTable(Lineage):
    def _is_sealed(self, partition: int) -> bool:
        return True


class PrunedIsDone(Lineage):
    def missing(self, partition: int, offset: int) -> list[Effect]:
        return self.skip(partition)


class GoneIsNew(Lineage):
    def _add_missed(self, partitions: object) -> list[Effect]:
        return []


class NeverFinished(Lineage):
    """It waits for a table for ever: no state is wrong, and no end can be reached."""

    def ended(self, partition: int) -> list[Effect]:
        return []


@pytest.mark.parametrize("planted", [ChildAtOnce, DoneWithoutTable, PrunedIsDone, GoneIsNew, NeverFinished])
def test_a_planted_bug_is_found(planted: type[Lineage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "faults", lambda _: iter(()))
    monkeypatch.setattr(ReaderWorld, "machine", planted)
    worlds = (
        readers.ReaderWorld(ONE, AROUND[0], rows=2, budget=(0, 0, 0)),
        readers.ReaderWorld(ONE, *AROUND, budget=(1, 0, 1)),
        readers.ReaderWorld(ONE, *AROUND, budget=(0, 2, 0)),
        readers.ReaderWorld(TWO, *DIAMOND, budget=(1, 2, 1)),
    )
    assert any(exhaust(world).wrong for world in worlds)

"""The engine's part of layout changes over the fake native node of one process.

Children, fences and openings are orders of the fake node. Tables and gates are kept here: what each source
has, and what each child was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError, OrderWithdrawnError
from ringfence.control.runtime.layout import parts
from ringfence.control.runtime.layout.engine import NativeEngine, Permit, Place, SourceSlots, TablePart

Taken = list[tuple[PartitionId, bytes, bool]]


class FakeEngine(NativeEngine):
    """Tables of `pages` per source, gates of `gates`; `taken` and `gates_taken` are what children got."""

    made: ClassVar[list[FakeEngine]] = []

    def __init__(self, native_node: NativeNode) -> None:
        super().__init__(native_node)
        self.made.append(self)
        self.pages: dict[PartitionId, list[bytes]] = {}
        self.gates: dict[PartitionId, bytes] = {}
        self.taken: defaultdict[PartitionId, Taken] = defaultdict(list)
        self.gates_taken: list[tuple[PartitionId, PartitionId, bytes]] = []
        self.refuses = ""

    async def table_out(self, source: SourceSlots, since: int, after: int) -> TablePart:
        del since
        pages = self.pages.get(source.source, [b"all"])
        records = self.figures([(source.topic, source.source)])[source.topic, source.source].end.records
        return TablePart(pages[after], records, after + 1, after + 1 < len(pages))

    async def table_in(
        self,
        child: PartitionId,
        source: SourceSlots,
        number: ChangeId,
        part: TablePart,
        *,
        is_final: bool,
        permit: Permit,
    ) -> None:
        self._check(permit)
        del number
        self.taken[child].append((source.source, part.page, is_final))
        if is_final:
            fake: Any = self._native_node.node
            fake.hosted[source.topic, child].setdefault("sources", []).append((source.source, 1))

    async def gates_out(
        self, place: Place, number: ChangeId, records: int, partitions: Sequence[int] | None = None
    ) -> bytes:
        del number, records, partitions
        return self.gates.get(place[1], b"")

    async def gates_in(
        self, child: Place, source: PartitionId, number: ChangeId, gates: bytes, permit: Permit
    ) -> None:
        self._check(permit)
        del number
        self.gates_taken.append((child[1], source, gates))

    def _check(self, permit: Permit) -> None:
        if not permit():
            raise OrderWithdrawnError("withdrawn")
        if self.refuses:
            raise OrderError(self.refuses)


def install(monkeypatch: pytest.MonkeyPatch) -> list[FakeEngine]:
    """Let new nodes have fake engines; the list of them."""
    made: list[FakeEngine] = []
    monkeypatch.setattr(FakeEngine, "made", made)
    monkeypatch.setattr(parts, "NativeEngine", FakeEngine)
    return made

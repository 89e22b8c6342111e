"""Copy what a child inherits: producer tables of its sources and the gates of their registered readers.

    base   (PREPARED)  pages of the whole table of each source; a table of one page is left for the rest
    gates  (HELD)      of each source, those whose lowest slot the child has, as of the source's end
    rest   (HELD)      entries touched since the base's first page, exactly at the end; the last page says so

A log with the last page of a source has everything of it, its gates too: these always come before. Pages
repeat without harm, so a new leader simply asks again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final, NamedTuple

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import Child, Transition
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.layout.engine import LayoutEngine, Permit, SourceSlots, TablePart
from ringfence.control.runtime.layout.sources import SourceAnswers
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.layout_messages import Gates, GatesOf, TableOf, TablePage
from ringfence.control.state_machines.metadata.cohort_lineage import inherited_gates
from ringfence.native.wire import RETRIABLE, Code

# Timeout of one question to a source's owner, in seconds; the leader's order is repeated after it.
ASK_TIMEOUT_S: Final = 2.0
# Tries of one question, and the pause before the next one, in seconds: a lost answer does not begin the copy
# from scratch.
TRIES_MAX: Final = 6
PAUSE_S: Final = 0.02
# Pages of one source: a table of 16 MiB has 64 full pages. An owner that gives more does not advance.
PAGES_MAX: Final = 1_024


class SourceReader:
    """Asks the owners of sources, which may be this node. RequestRefused."""

    def __init__(self, peer_client: PeerClient, answers: SourceAnswers) -> None:
        self._peer_client, self._answers = peer_client, answers

    async def table_of(self, node: NodeId, call: TableOf) -> TablePage:
        reply = await self._ask(node, call)
        if isinstance(reply, TablePage):
            return reply
        raise _other_message(node, reply)

    async def gates_of(self, node: NodeId, call: GatesOf) -> Gates:
        reply = await self._ask(node, call)
        if isinstance(reply, Gates):
            return reply
        raise _other_message(node, reply)

    async def _ask(self, node: NodeId, call: TableOf | GatesOf) -> messages.Reply:
        for remaining in reversed(range(TRIES_MAX)):
            try:
                return await self._ask_once(node, call)
            except RequestRefused as refusal:
                if not remaining or refusal.code not in RETRIABLE:
                    raise
            await asyncio.sleep(PAUSE_S)
        raise AssertionError("the last try returns or raises")

    async def _ask_once(self, node: NodeId, call: TableOf | GatesOf) -> messages.Reply:
        if node != self._peer_client.here:
            return await self._peer_client.ask(node, call, ASK_TIMEOUT_S)
        if isinstance(call, TableOf):
            return await self._answers.table_of(call)
        return await self._answers.gates_of(call)


class _Heritage(NamedTuple):
    """One source of one child: its owner, and the partitions whose gates the child takes; None: all there."""

    source: PartitionId
    owner: NodeId
    gates: tuple[PartitionId, ...] | None


class Inheritance:
    """What this node's children have inherited so far. Soft: after a restart pages are copied again."""

    def __init__(self, engine: LayoutEngine, sources: SourceReader) -> None:
        self._engine, self._sources = engine, sources
        # The record that the first page of a base was as of, by child and source. Without an entry the rest
        # is the whole table.
        self._base_records: dict[tuple[ChangeId, PartitionId, PartitionId], int] = {}

    def keep_only(self, open_changes: Mapping[ChangeId, Transition]) -> None:
        """Forget changes that are over."""
        self._base_records = {
            key: records for key, records in self._base_records.items() if key[0] in open_changes
        }

    async def copy_base(
        self, state: MetadataState, transition: Transition, child: Child, permit: Permit
    ) -> dict[PartitionId, int]:
        """Copy tables while the sources take rows. Return the sizes of the gates that the child inherits.

        Raises:
            RequestRefused: an owner does not answer yet.
            OrderError: the engine refuses; a repeat changes nothing.
        """
        sizes: dict[PartitionId, int] = {}
        for heritage in heritages(state, transition, child):
            if heritage.gates != ():
                call = GatesOf(
                    change=transition.change,
                    topic=transition.topic,
                    source=heritage.source,
                    size_only=True,
                    partitions=heritage.gates,
                )
                sizes[heritage.source] = (await self._sources.gates_of(heritage.owner, call)).size
            await self._copy_base_table(transition, child, heritage, permit)
        return sizes

    async def _copy_base_table(
        self, transition: Transition, child: Child, heritage: _Heritage, permit: Permit
    ) -> None:
        key = transition.change, child.partition, heritage.source
        if key in self._base_records:
            return
        records = after = 0
        for pages in itertools.count(1):
            page = await self._page(transition, child, heritage, since=0, after=after)
            if pages == 1 and not page.more:
                return  # the rest has all of it
            records = records or page.records
            await self._append(transition, child, heritage, page, is_final=False, permit=permit)
            if not page.more:
                break
            _check_advance(heritage, page, pages)
            after = page.last
        self._base_records[key] = records

    async def copy_rest(
        self,
        state: MetadataState,
        transition: Transition,
        child: Child,
        ends: Mapping[PartitionId, LogEnd],
        permit: Permit,
    ) -> None:
        """Copy gates and the rest of the tables, exactly at the sources' ends. Raises as `copy_base`."""
        for heritage in heritages(state, transition, child):
            end = ends[heritage.source]
            if heritage.gates != ():
                call = GatesOf(
                    change=transition.change,
                    topic=transition.topic,
                    source=heritage.source,
                    records=end.records,
                    partitions=heritage.gates,
                )
                gates = (await self._sources.gates_of(heritage.owner, call)).gates
                if gates:
                    place = transition.topic, child.partition
                    await self._engine.gates_in(place, heritage.source, transition.change, gates, permit)
            await self._copy_rest_table(transition, child, heritage, end, permit)

    async def _copy_rest_table(
        self, transition: Transition, child: Child, heritage: _Heritage, end: LogEnd, permit: Permit
    ) -> None:
        since = self._base_records.get((transition.change, child.partition, heritage.source), 0)
        after = 0
        for pages in itertools.count(1):
            page = await self._page(transition, child, heritage, since=since, after=after)
            if page.records != end.records:
                message = (
                    f"partition {heritage.source}: its table is as of record {page.records}, its log ends "
                    f"after {end.records}"
                )
                raise RequestRefused(Code.HELD, message, retry_after_ms=20)
            await self._append(transition, child, heritage, page, is_final=not page.more, permit=permit)
            if not page.more:
                return
            _check_advance(heritage, page, pages)
            after = page.last

    async def _page(
        self, transition: Transition, child: Child, heritage: _Heritage, *, since: int, after: int
    ) -> TablePage:
        call = TableOf(
            change=transition.change,
            topic=transition.topic,
            source=heritage.source,
            lo=child.slots.lo,
            hi=child.slots.hi,
            since=since,
            after=after,
        )
        return await self._sources.table_of(heritage.owner, call)

    async def _append(
        self,
        transition: Transition,
        child: Child,
        heritage: _Heritage,
        page: TablePage,
        *,
        is_final: bool,
        permit: Permit,
    ) -> None:
        part = TablePart(page.page, page.records, page.last, page.more)
        source = SourceSlots(transition.topic, heritage.source, child.slots)
        await self._engine.table_in(
            child.partition, source, transition.change, part, is_final=is_final, permit=permit
        )


def heritages(state: MetadataState, transition: Transition, child: Child) -> list[_Heritage]:
    """The sources of one child, in the order of their slots."""
    topic = state.topics[transition.topic]
    parts = topic.layout.by_id()
    sources: list[Partition] = sorted(
        (parts[source] for source in transition.sources), key=lambda part: part.slots
    )
    return [
        _Heritage(
            part.partition,
            topic.assignments[part.partition].owner.node,
            inherited_gates(parts, part.partition, child.slots),
        )
        for part in sources
        if part.slots.lo <= child.slots.hi and child.slots.lo <= part.slots.hi
    ]


def _check_advance(heritage: _Heritage, page: TablePage, pages: int) -> None:
    """An owner whose pages never end would keep the child's owner busy until the change is aborted."""
    if pages >= PAGES_MAX or not page.last:
        message = f"partition {heritage.source}: its producer table has more than {PAGES_MAX} pages"
        raise RequestRefused(Code.TOO_LARGE, message)


def _other_message(node: NodeId, reply: messages.Reply) -> RequestRefused:
    return RequestRefused(Code.INTERNAL, f"node {node} answered with another message: {reply!r:.200}")

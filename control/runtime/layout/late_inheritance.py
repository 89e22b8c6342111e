"""Inherit again where an owner's log lacks what its partition inherited: its owner was chosen by force.

A log says itself of which sources it has the last page. A partition whose log lacks one does not admit rows,
names or readers of registered groups. What the layout still names is copied from the sealed log, as of its
end. What was pruned counts as forgotten: producers that had something there are told so, never that nothing
is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import OrderError
from ringfence.control.runtime.layout.engine import LayoutEngine, SourceSlots, TablePart
from ringfence.control.runtime.layout.inheritance import PAGES_MAX, SourceReader
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.layout_messages import GatesOf, TableOf
from ringfence.control.state_machines.metadata.cohort_lineage import inherited_gates

_LOG = structlog.get_logger("ringfence.layouts")
# Pause after an opening, in seconds: those of a start come by the hundred.
GATHER_S: Final = 0.2
# Interval of looks while a partition lacks something, and without an opening, in seconds.
RETRY_S: Final = 1.0
IDLE_S: Final = 60.0
# A page that says of a pruned source that everything of it is forgotten.
_PRUNED: Final = TablePart(page=b"", records=0, last=0, more=False)


class _Lack(NamedTuple):
    """A partition of this owner, and a source of which its log has no last page."""

    topic: Topic
    part: Partition
    source: PartitionId


class LateInheritance:
    """One task of a node; it waits for openings."""

    def __init__(
        self,
        proposer: RaftProposer,
        executor: OrderExecutor,
        engine: LayoutEngine,
        sources: SourceReader,
        here: Replica,
    ) -> None:
        self._proposer, self._executor, self._engine = proposer, executor, engine
        self._sources, self._here = sources, here
        # Sources that were inherited again since the start of this process.
        self.count = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="late inheritance")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            is_complete = await self.look()
            await self._executor.opens.until_opened(IDLE_S if is_complete else RETRY_S)
            await asyncio.sleep(GATHER_S)

    async def look(self) -> bool:
        """Copy what is missing now. Whether nothing is missing any more."""
        for lack in list(self._lacks()):
            try:
                await self._inherit(lack)
            except (RequestRefused, OrderError) as error:
                _LOG.info("not inherited yet", partition=lack.part.partition, why=str(error))
        return next(self._lacks(), None) is None

    def _lacks(self) -> Iterator[_Lack]:
        topics = [topic for topic in self._proposer.state.topics.values() if topic.layout.version > 1]
        if not topics:
            return
        owned = [
            (topic, part)
            for topic in topics
            for part in topic.layout.active()
            if topic.assignments[part.partition].owner == self._here
        ]
        figures = self._engine.figures([(topic.topic, part.partition) for topic, part in owned])
        for topic, part in owned:
            key = topic.topic, part.partition
            known = figures.get(key)
            is_open = self._executor.opens.epoch(key) == topic.assignments[part.partition].epoch
            if known is not None and is_open:
                pruned = (parent.partition for parent in topic.pruned_parents(part.partition))
                for source in (*part.parents, *pruned):
                    if source not in known.sources:
                        yield _Lack(topic, part, source)

    async def _inherit(self, lack: _Lack) -> None:
        topic, part, source = lack
        epoch = ChangeId(topic.assignments[part.partition].epoch)
        seal = topic.seal(source)
        into = SourceSlots(topic.topic, source, part.slots)

        def is_current() -> bool:
            newest = self._proposer.state.topics.get(topic.topic)
            return (
                newest is not None
                and newest.assignments.get(part.partition) == topic.assignments[part.partition]
            )

        if seal is None:  # it was pruned, and its end with it
            await self._engine.table_in(
                part.partition, into, epoch, _PRUNED, is_final=True, permit=is_current
            )
            self._done(lack)
            return
        owner = topic.assignments[source].owner.node
        wanted = inherited_gates(topic.layout.by_id(), source, part.slots)
        if wanted != ():
            call = GatesOf(
                change=0, topic=topic.topic, source=source, records=seal.end.records, partitions=wanted
            )
            gates = (await self._sources.gates_of(owner, call)).gates
            if gates:
                await self._engine.gates_in((topic.topic, part.partition), source, epoch, gates, is_current)
        after = 0
        for _ in range(PAGES_MAX):
            table = TableOf(
                change=0, topic=topic.topic, source=source, lo=part.slots.lo, hi=part.slots.hi, after=after
            )
            page = await self._sources.table_of(owner, table)
            copied = TablePart(page.page, page.records, page.last, page.more)
            await self._engine.table_in(
                part.partition, into, epoch, copied, is_final=not page.more, permit=is_current
            )
            if not page.more:
                self._done(lack)
                return
            after = page.last

    def _done(self, lack: _Lack) -> None:
        self.count += 1
        _LOG.warning(
            "inherited again",
            topic=lack.topic.name,
            partition=lack.part.partition,
            source=lack.source,
            why="its log lacked what it had inherited: an owner was chosen by force",
        )

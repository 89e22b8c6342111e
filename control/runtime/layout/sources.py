"""Answer other nodes' questions about sources of layout changes and about sealed partitions.

The owner of a source gives pages of its producer table and the gates of its registered readers. It answers
while its own log has the change in PREPARED or HELD, or after the source is sealed. Gates that children
inherit are read only while the log cannot grow: fenced at the change's number, or sealed.
"""

from __future__ import annotations

from typing import Final

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.ranges import SLOT_LAST, SlotRange
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import OrderError
from ringfence.control.runtime.layout.engine import LayoutEngine, SourceSlots
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer_interface import Proposer
from ringfence.control.runtime.rpc.layout_messages import (
    GATES_BYTES_MAX,
    PAGE_BYTES_MAX,
    Gates,
    GatesOf,
    SealedLog,
    SealedLogs,
    SketchOf,
    SketchWeights,
    TableOf,
    TablePage,
    TellSealed,
)
from ringfence.control.state_machines.layout.plan import BUCKETS
from ringfence.control.state_machines.metadata.drained import registered_readers
from ringfence.native.wire import Code

# Advice for a question that is too early, in ms.
RETRY_MS: Final = 20


class SourceAnswers:
    """The handlers of one node; they raise RequestRefused."""

    def __init__(
        self, proposer: Proposer, executor: OrderExecutor, engine: LayoutEngine, here: Replica
    ) -> None:
        self._proposer, self._executor, self._engine, self._here = proposer, executor, engine, here

    async def table_of(self, call: TableOf) -> TablePage:
        """One page, as of the record that the answer names."""
        if not call.lo <= call.hi <= SLOT_LAST:
            message = f"slots {call.lo} to {call.hi}: ascending, at most {SLOT_LAST}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        self._check_source(call)
        await self._executor.until_executed(self._proposer.applied.index)
        slots = SlotRange(call.lo, call.hi)
        source = SourceSlots(TopicId(call.topic), PartitionId(call.source), slots)
        try:
            part = await self._engine.table_out(source, call.since, call.after)
        except OrderError as error:
            raise RequestRefused(Code.HELD, self._text(call, error), retry_after_ms=RETRY_MS) from error
        if len(part.page) > PAGE_BYTES_MAX + 4_096:
            message = f"a page of {len(part.page)} bytes exceeds the limit of {PAGE_BYTES_MAX}"
            raise RequestRefused(Code.TOO_LARGE, message)
        return TablePage(page=part.page, records=part.records, last=part.last, more=part.more)

    async def gates_of(self, call: GatesOf) -> Gates:
        """The gates as of the source's end, or only their size."""
        topic, transition_phase = self._check_source(call)
        source = PartitionId(call.source)
        is_final = transition_phase is not ChangePhase.PREPARED
        if not call.size_only and not is_final:
            message = f"partition {source}: its log may still grow; its gates are inherited after the HOLD"
            raise RequestRefused(Code.HELD, message, retry_after_ms=RETRY_MS)
        if call.size_only and not registered_readers(self._proposer.state, topic.topic):
            return Gates()
        await self._executor.until_executed(self._proposer.applied.index)
        records = 0 if call.size_only else call.records
        seal = topic.seal(source)
        if seal is not None and not call.size_only and call.records != seal.end.records:
            message = f"partition {source} ends after {seal.end.records} records, not after {call.records}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        try:
            place = topic.topic, source
            gates = await self._engine.gates_out(place, ChangeId(call.change), records, call.partitions)
        except OrderError as error:
            raise RequestRefused(Code.HELD, self._text(call, error), retry_after_ms=RETRY_MS) from error
        if call.size_only:
            return Gates(size=len(gates))
        if len(gates) > GATES_BYTES_MAX:
            message = (
                f"registered readers of partition {source} have {len(gates)} bytes of gates, a child takes "
                f"{GATES_BYTES_MAX}: drain or delete some"
            )
            raise RequestRefused(Code.TOO_LARGE, message)
        return Gates(gates=gates, size=len(gates))

    async def tell_sealed(self, call: TellSealed) -> SealedLogs:
        """Figures of those sealed partitions that this node owns and serves."""
        await self._executor.until_executed(self._proposer.applied.index)
        topic = self._proposer.state.topics.get(TopicId(call.topic))
        if topic is None:
            raise RequestRefused(Code.UNKNOWN_TOPIC, f"no topic has the id {call.topic}")
        numbers, logs = [*map(PartitionId, call.partitions)], []
        figures = self._engine.figures([(topic.topic, number) for number in numbers])
        for number in numbers:
            assignment, seal = topic.assignments.get(number), topic.seal(number)
            known = figures.get((topic.topic, number))
            if assignment is None or assignment.owner != self._here or seal is None or known is None:
                continue
            # A store that lacks records of the end, or whose records are damaged, tells nothing.
            if not known.is_quarantined and known.end.records == seal.end.records:
                logs.append(SealedLog(number, known.start_offset, known.end.offset, known.stages))
        return SealedLogs(logs=tuple(logs))

    async def sketch_of(self, call: SketchOf) -> SketchWeights:
        """The sketch of a partition that this node owns; empty if the engine has none of it."""
        topic, number = self._proposer.state.topics.get(TopicId(call.topic)), PartitionId(call.partition)
        assignment = None if topic is None else topic.assignments.get(number)
        if topic is None or assignment is None or assignment.owner != self._here:
            message = f"node {self._here.node}: partition {number} is not owned by this store"
            raise RequestRefused(Code.TOO_OLD, message, retry_after_ms=RETRY_MS)
        place = topic.topic, number
        known = self._engine.figures([place]).get(place)
        return SketchWeights(weights=() if known is None else known.weights[:BUCKETS])

    def _check_source(self, call: TableOf | GatesOf) -> tuple[Topic, ChangePhase | None]:
        """The topic, and the phase of the change; None of a source that is sealed."""
        state, source = self._proposer.state, PartitionId(call.source)
        topic = state.topics.get(TopicId(call.topic))
        assignment = None if topic is None else topic.assignments.get(source)
        if topic is None or assignment is None or assignment.owner != self._here:
            raise self._early_or_wrong(call, "is not owned by this store")
        if topic.seal(source) is not None:
            return topic, None
        phase = _phase_of(state, call)
        if phase is None:
            raise self._early_or_wrong(call, f"is no source of an open layout change {call.change}")
        return topic, phase

    def _early_or_wrong(self, call: TableOf | GatesOf, why: str) -> RequestRefused:
        is_early = self._proposer.applied.index < call.change
        message = f"node {self._here.node}: partition {call.source} {why}"
        code = Code.HELD if is_early else Code.TOO_OLD
        return RequestRefused(code, message, retry_after_ms=RETRY_MS)

    def _text(self, call: TableOf | GatesOf, error: OrderError) -> str:
        return f"node {self._here.node}, partition {call.source}: {error}"[:1_000]


def _phase_of(state: MetadataState, call: TableOf | GatesOf) -> ChangePhase | None:
    """The phase of the change before its COMMIT if it has the source; else None."""
    transition = state.transitions.get(ChangeId(call.change))
    if transition is None or not transition.may_abort or call.source not in transition.sources:
        return None
    return transition.phase

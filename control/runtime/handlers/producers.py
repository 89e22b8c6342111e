"""Open producers (PRODUCER_OPEN) and fence named producers so that their names can be forgotten.

A named producer gets the resume points of its predecessor: the last batch in each partition.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import (
    ConfirmNamedProducer,
    ForgetNamedProducer,
    OpenNamedProducer,
    OpenProducers,
)
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.ranges import SlotCover
from ringfence.control.model.reassignments import ChangeId, ChangeKind, ChangePhase
from ringfence.control.model.results import ProducersOpened
from ringfence.control.model.topics import ProducerRule, Topic
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.producer_epochs import raise_epoch
from ringfence.control.runtime.handlers.resume_points import check_client, resume_points
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages as calls
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S
from ringfence.control.state_machines.metadata.producers import check_current, has_lost_entries, rule_of
from ringfence.native import messages
from ringfence.native.wire import Code

# Time of an open without a deadline of its own, in seconds.
OPEN_S: Final = 10.0
# Longest wait for an entry before held partitions are asked again, and shortest pause, in seconds.
RETRY_S: Final = 0.1
PAUSE_S: Final = 0.02
# Partitions that the text of a refusal lists; its details have all of them.
SHOWN_MAX: Final = 20

Resume = list[messages.ResumePoint]


class ProducerRequests:
    """Handlers; each returns the answer's body or raises RequestRefused."""

    def __init__(self, proposer: RaftProposer, native_node: NativeNode, peer_client: PeerClient) -> None:
        self._proposer, self._native_node, self._peer_client = proposer, native_node, peer_client

    async def open(self, request: messages.ProducerOpen) -> messages.ProducerOpened:
        topic = await topic_named(self._proposer, request.topic)
        if request.name is None:
            applied = await self._proposer.propose(OpenProducers(topic=topic.topic, count=request.count))
            assert isinstance(applied.result, ProducersOpened), applied.result
            opened = applied.result
            return messages.ProducerOpened(producer_id=opened.producer, producer_epoch=opened.epoch)
        if request.count != 1:
            message = f"count={request.count}: a named producer has one id"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        return await self._open_named(topic, request, request.name)

    async def _open_named(
        self, topic: Topic, request: messages.ProducerOpen, name: str
    ) -> messages.ProducerOpened:
        check_client(self._proposer.state, topic, name)
        opened = await self._draw_identity(topic, name, spread=request.spread is True)
        is_known = has_lost_entries(self._proposer.state, topic.topic, name)
        previous = opened.previous_epoch if is_known and not request.accept_fresh_start else Epoch(0)
        resume = await self._reach_all(topic, name, _call_of(opened, name.encode(), previous))
        if name in self._proposer.state.unopened.get(topic.topic, ()):
            await self._proposer.propose(
                ConfirmNamedProducer(topic=topic.topic, name=name, epoch=opened.epoch)
            )
        rule = rule_of(self._proposer.state, topic.topic, name)
        if any(point.lo is not UNSET for point in resume):  # the layout changed meanwhile
            check_client(self._proposer.state, topic, name)
        return messages.ProducerOpened(
            producer_id=opened.producer,
            producer_epoch=opened.epoch,
            resume=resume,
            rule=UNSET if rule is ProducerRule.NONE else rule,
        )

    async def fence(self, topic: Topic, name: str) -> ForgetNamedProducer:
        """Fence the last holder of a name in every partition; return the command that forgets the name.

        The name stays until that command is applied: a try that fails before it changes no more than an open
        does.
        """
        holder = self._proposer.state.producers.get(topic.topic, {}).get(name)
        epoch = Epoch(0) if holder is None else holder.epoch
        command = ForgetNamedProducer(topic=topic.topic, name=name, epoch=epoch)
        refusal = check_current(self._proposer.state, command)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        opened = await self._draw_identity(topic, name)
        # The empty name makes the entries evictable once they are idle.
        await self._reach_all(topic, name, _call_of(opened, b"", Epoch(0)))
        return ForgetNamedProducer(topic=topic.topic, name=name, epoch=opened.epoch)

    async def _draw_identity(self, topic: Topic, name: str, *, spread: bool = False) -> ProducersOpened:
        command = OpenNamedProducer(topic=topic.topic, name=name, spread=True if spread else UNSET)
        applied = await self._proposer.propose(command)
        assert isinstance(applied.result, ProducersOpened), applied.result
        return applied.result

    async def _reach_all(self, topic: Topic, name: str, call: calls.OpenProducer) -> Resume:
        """Raise the epoch for every slot; return the predecessor's resume points.

        A partition that has the epoch covers its slots permanently, whatever becomes of the layout: children
        inherit the epoch with the table of their source. A refusal covers nothing: rows of the predecessor
        may be on their way to children that do not know the epoch. So a SEALED partition counts for nothing,
        and a held one is waited for.
        """
        resume: Resume = []
        covered = SlotCover()
        end_s = _due_s()
        while True:
            current = self._proposer.state.topics.get(topic.topic)
            if current is None:
                raise RequestRefused(Code.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted meanwhile")
            missing = [part for part in current.layout.active() if not covered.has(part.slots)]
            if not missing:
                return sorted(resume, key=lambda point: (point.partition, point.send))
            index = self._proposer.applied.index
            reached, forgotten, faults = await self._fence_predecessor(current, missing, call)
            for part, result in reached:
                own = part.slots if current.layout.version > 1 else None
                resume += resume_points(part.partition, own, result, covered.missing(part.slots))
            covered.add(part.slots for part, _ in reached)
            lasting = await self._lasting(current, faults)
            if lasting or (faults and _now_s() >= end_s):
                raise _not_open(name, lasting or faults)
            if forgotten:
                raise _resume_unknown(topic, name, forgotten)
            if faults:
                await self._until_changed(index, end_s)

    async def _lasting(
        self, decided: Topic, faults: dict[PartitionId, RequestRefused]
    ) -> dict[PartitionId, RequestRefused]:
        """The refusals that no layout change explains, as of the newest entry."""
        if faults and self._proposer.state.level >= LAYOUT_LEVEL:
            await self._proposer.read_barrier()
        return {number: fault for number, fault in faults.items() if not self._is_passing(decided, number)}

    def _is_passing(self, decided: Topic, partition: PartitionId) -> bool:
        """Whether a refusal of the partition may come from a layout change that goes on or has just ended."""
        state = self._proposer.state
        if state.level < LAYOUT_LEVEL:
            return False
        topic = state.topics.get(decided.topic)
        if topic is None or topic.layout.version != decided.layout.version:
            return True
        change = state.changes.get(partition)
        opening = state.transitions.get(ChangeId(topic.assignments[partition].epoch))
        is_opening = opening is not None and opening.phase is ChangePhase.COMMITTED
        is_new_owner = topic.assignments[partition] != decided.assignments[partition]
        return is_opening or is_new_owner or (change is not None and change.kind is ChangeKind.SEAL)

    async def _until_changed(self, index: int, end_s: float) -> None:
        """Wait for an entry after `index`, or a short time: an owner may lag behind this node."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(RETRY_S, max(0.0, end_s - _now_s()))):
                await self._proposer.until_applied(index + 1)
        # Refusals come as fast as they are asked for.
        await asyncio.sleep(PAUSE_S)

    async def _fence_predecessor(
        self, topic: Topic, partitions: Sequence[Partition], call: calls.OpenProducer
    ) -> tuple[list[tuple[Partition, dict[str, Any]]], list[int], dict[PartitionId, RequestRefused]]:
        """Write the producer record into these partitions.

        Return the partitions that have the record, each with the predecessor's last batch there; those that
        have forgotten the name; and the refusals.
        """
        outcomes = await asyncio.gather(
            *(self._raise_epoch(topic, part.partition, call) for part in partitions), return_exceptions=True
        )
        reached: list[tuple[Partition, dict[str, Any]]] = []
        forgotten: list[int] = []
        faults: dict[PartitionId, RequestRefused] = {}
        for part, outcome in zip(partitions, outcomes, strict=True):
            if isinstance(outcome, RequestRefused):
                faults[part.partition] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome.get("forgotten"):
                forgotten.append(part.partition)
            else:
                reached.append((part, outcome))
        return reached, forgotten, faults

    async def _raise_epoch(
        self, topic: Topic, partition: PartitionId, call: calls.OpenProducer
    ) -> dict[str, Any]:
        """Raise the epoch at the partition's owner, this node or another one."""
        call = replace(call, topic=topic.topic, partition=partition)
        owner = topic.assignments[partition].owner.node
        if owner == self._peer_client.here:
            return await raise_epoch(self._native_node, call)
        return await self._peer_client.open_producer(owner, call)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _due_s() -> float:
    """The time on the loop's clock until which held partitions are asked again."""
    due_s = ANSWER_DUE_S.get()
    return _now_s() + OPEN_S if due_s is None else due_s


def _call_of(opened: ProducersOpened, name: bytes, previous: Epoch) -> calls.OpenProducer:
    """The question to each partition; the caller fills in topic and partition."""
    return calls.OpenProducer(
        topic=0, partition=0, producer=opened.producer, epoch=opened.epoch, name=name, previous=previous
    )


def _not_open(name: str, faults: dict[PartitionId, RequestRefused]) -> RequestRefused:
    """The refusal of the open, for the fault that lasts longest."""
    for partition, fault in faults.items():
        if fault.code is Code.QUARANTINED:
            message = (
                f"producer {name!r} is not open: partition {partition}: {fault.message}. The predecessor's "
                "last batch there is unknown, and the predecessor cannot be fenced: open the producer once "
                "the partition is repaired (docs/operations.md, Damage), or send without a name meanwhile"
            )
            return RequestRefused(Code.QUARANTINED, message, partition=partition)
    partition, fault = next(iter(faults.items()))
    message = f"producer {name!r} is not open: partition {partition}: {fault.message}"
    code = Code.OVERLOADED if fault.code is Code.OVERLOADED else Code.INTERNAL
    return RequestRefused(code, message, retry_after_ms=1_000, partition=partition)


def _resume_unknown(topic: Topic, name: str, partitions: list[int]) -> RequestRefused:
    shown = ", ".join(map(str, partitions[:SHOWN_MAX]))
    more = len(partitions) - SHOWN_MAX
    message = (
        f"producer {name!r} of topic {topic.name!r} was opened before, and its last batch is not known any "
        f"more in partitions {shown}{f' and {more} others' if more > 0 else ''}: its state there was lost or "
        "has expired. Find the last stored rows by reading, then open the name with "
        "accept_fresh_start=True, or remove the name: ringfence producer forget TOPIC NAME"
    )
    return RequestRefused(Code.RESUME_UNKNOWN, message, producer=name, partitions=partitions)

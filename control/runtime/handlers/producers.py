"""Open producers (PRODUCER_OPEN) and fence named producers so that their names can be forgotten.

A named producer gets the resume points of its predecessor: the last batch in each partition.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec.structs import replace

from ringfence.control.model.commands import (
    ConfirmNamedProducer,
    ForgetNamedProducer,
    OpenNamedProducer,
    OpenProducers,
)
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.results import ProducersOpened
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.producer_epochs import raise_epoch
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages as calls
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.producers import check_current, has_lost_entries
from ringfence.native import messages
from ringfence.native.wire import Code

# Layout changes during one open before the client is told to retry.
ROUNDS_MAX: Final = 8
# Partitions that the text of a refusal lists; its details have all of them.
SHOWN_MAX: Final = 20

Resume = dict[int, messages.ResumePoint]


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
        return await self._open_named(topic, request.name, accepts=request.accept_fresh_start)

    async def _open_named(self, topic: Topic, name: str, *, accepts: bool) -> messages.ProducerOpened:
        opened = await self._draw_identity(topic, name)
        is_known = has_lost_entries(self._proposer.state, topic.topic, name)
        previous = opened.previous_epoch if is_known and not accepts else Epoch(0)
        resume = await self._reach_all(topic, name, _call_of(opened, name.encode(), previous))
        if name in self._proposer.state.unopened.get(topic.topic, ()):
            await self._proposer.propose(
                ConfirmNamedProducer(topic=topic.topic, name=name, epoch=opened.epoch)
            )
        return messages.ProducerOpened(
            producer_id=opened.producer,
            producer_epoch=opened.epoch,
            resume=[resume[partition] for partition in sorted(resume)],
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

    async def _draw_identity(self, topic: Topic, name: str) -> ProducersOpened:
        applied = await self._proposer.propose(OpenNamedProducer(topic=topic.topic, name=name))
        assert isinstance(applied.result, ProducersOpened), applied.result
        return applied.result

    async def _reach_all(self, topic: Topic, name: str, call: calls.OpenProducer) -> Resume:
        """Raise the epoch in every partition; return the predecessor's resume points."""
        resume: Resume = {}
        for _ in range(ROUNDS_MAX):
            current = self._proposer.state.topics.get(topic.topic)
            if current is None:
                raise RequestRefused(Code.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted meanwhile")
            resume |= await self._fence_predecessor(current, name, call)
            # The open ends once all ACTIVE partitions of one layout version have the epoch. Otherwise a split
            # in between would leave the predecessor partitions that do not know the new epoch.
            after = self._proposer.state.topics.get(topic.topic)
            if after is not None and after.layout.version == current.layout.version:
                return resume
        message = f"the layout of topic {topic.name!r} changed {ROUNDS_MAX} times meanwhile"
        raise RequestRefused(Code.HELD, message, retry_after_ms=1_000)

    async def _fence_predecessor(self, topic: Topic, name: str, call: calls.OpenProducer) -> Resume:
        """Write the producer record into every ACTIVE partition; return the predecessor's last batches."""
        partitions = [part.partition for part in topic.layout.active()]
        outcomes = await asyncio.gather(
            *(self._raise_epoch(topic, partition, call) for partition in partitions), return_exceptions=True
        )
        resume: Resume = {}
        forgotten: list[int] = []
        faults: dict[PartitionId, RequestRefused] = {}
        for partition, outcome in zip(partitions, outcomes, strict=True):
            if isinstance(outcome, RequestRefused):
                faults[partition] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome.get("forgotten"):
                forgotten.append(partition)
            elif outcome:
                resume[partition] = _resume_point(partition, outcome)
        if faults:
            raise _not_open(name, faults)
        if forgotten:
            raise _resume_unknown(topic, name, forgotten)
        return resume

    async def _raise_epoch(
        self, topic: Topic, partition: PartitionId, call: calls.OpenProducer
    ) -> dict[str, Any]:
        """Raise the epoch at the partition's owner, this node or another one."""
        call = replace(call, topic=topic.topic, partition=partition)
        owner = topic.assignments[partition].owner.node
        if owner == self._peer_client.here:
            return await raise_epoch(self._native_node, call)
        return await self._peer_client.open_producer(owner, call)


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


def _resume_point(partition: int, result: dict[str, Any]) -> messages.ResumePoint:
    return messages.ResumePoint(
        partition=partition,
        sequence=result["sequence"],
        send=result["send"],
        note=result.get("note"),
        first_offset=result["offset"],
        rows=result.get("rows", 0),
    )

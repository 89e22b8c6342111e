"""PRODUCER_OPEN: an identity, and for a name what its predecessor left; and names that are given back."""

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
from ringfence.control.runtime.handlers.topics import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages as calls
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.producers import check_known, has_lost_entries
from ringfence.native import messages
from ringfence.native.wire import Code

ROUNDS_MAX: Final = 8
"""Layout changes that one open may live through before the client is told to come back."""
SHOWN_MAX: Final = 20
"""Partitions that the text of a refusal lists; its details have all of them."""

Resume = dict[int, messages.ResumePoint]


class ProducerRequests:
    """Handlers; each returns the answer's body or raises RequestRefused."""

    def __init__(self, proposer: RaftProposer, driver: NativeNode, peer_client: PeerClient) -> None:
        self._proposer, self._driver, self._peer_client = proposer, driver, peer_client

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
        opened = await self._drawn(topic, name)
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

    async def fenced(self, topic: Topic, name: str) -> ForgetNamedProducer:
        """The entry that forgets a name, once its last holder is fenced in every partition.

        Until that entry is applied the name stays as it is: a try that fails in between changes no more than
        an open does.
        """
        known = self._proposer.state.producers.get(topic.topic, {}).get(name)
        epoch = Epoch(0) if known is None else known.epoch
        command = ForgetNamedProducer(topic=topic.topic, name=name, epoch=epoch)
        refusal = check_known(self._proposer.state, command)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        opened = await self._drawn(topic, name)
        # Entries without a name are evicted when they are idle.
        await self._reach_all(topic, name, _call_of(opened, b"", Epoch(0)))
        return ForgetNamedProducer(topic=topic.topic, name=name, epoch=opened.epoch)

    async def _drawn(self, topic: Topic, name: str) -> ProducersOpened:
        applied = await self._proposer.propose(OpenNamedProducer(topic=topic.topic, name=name))
        assert isinstance(applied.result, ProducersOpened), applied.result
        return applied.result

    async def _reach_all(self, topic: Topic, name: str, call: calls.OpenProducer) -> Resume:
        """Raise the epoch in every partition; what the predecessor left there."""
        resume: Resume = {}
        for _ in range(ROUNDS_MAX):
            current = self._proposer.state.topics.get(topic.topic)
            if current is None:
                raise RequestRefused(Code.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted meanwhile")
            resume |= await self._fence_predecessor(current, name, call)
            # The open ends when one version's whole ACTIVE set has the epoch: a split in between would
            # give the predecessor partitions that never heard of it.
            after = self._proposer.state.topics.get(topic.topic)
            if after is not None and after.layout.version == current.layout.version:
                return resume
        message = f"the layout of topic {topic.name!r} changed {ROUNDS_MAX} times meanwhile"
        raise RequestRefused(Code.HELD, message, retry_after_ms=1_000)

    async def _fence_predecessor(self, topic: Topic, name: str, call: calls.OpenProducer) -> Resume:
        """Write the producer record into every ACTIVE partition; the predecessor's last batch in each."""
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
        """At the partition's owner, here or elsewhere."""
        call = replace(call, topic=topic.topic, partition=partition)
        owner = topic.assignments[partition].owner.node
        if owner == self._peer_client.here:
            return await raise_epoch(self._driver, call)
        return await self._peer_client.open_producer(owner, call)


def _call_of(opened: ProducersOpened, name: bytes, previous: Epoch) -> calls.OpenProducer:
    """What each partition is asked; topic and partition are filled in for each."""
    return calls.OpenProducer(
        topic=0, partition=0, producer=opened.producer, epoch=opened.epoch, name=name, previous=previous
    )


def _not_open(name: str, faults: dict[PartitionId, RequestRefused]) -> RequestRefused:
    """The open is refused, by what lasts longest."""
    for partition, fault in faults.items():
        if fault.code is Code.QUARANTINED:
            message = (
                f"producer {name!r} is not open: partition {partition}: {fault.message}. What its "
                "predecessor stored there cannot be told, nor can it be fenced: open it when that is whole "
                "again (docs/operations.md, Damage), or send without a name meanwhile"
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
        f"producer {name!r} of topic {topic.name!r} was opened before, and what it stored is not known any "
        f"more in partitions {shown}{f' and {more} others' if more > 0 else ''}: their state was lost or has "
        "expired. Find out from the rows what is stored, then open the name with accept_fresh_start=True, or "
        "give it back: ringfence producer forget TOPIC NAME"
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

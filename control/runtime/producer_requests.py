"""PRODUCER_OPEN: an identity, and for a name what its predecessor left."""

from __future__ import annotations

import asyncio
from typing import Any

from ringfence.control.model.commands import OpenNamedProducer, OpenProducers
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.results import ProducersOpened
from ringfence.control.model.topics import Topic
from ringfence.control.runtime import calls
from ringfence.control.runtime.driver import Driver
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.others import Others
from ringfence.control.runtime.producer_epochs import raise_epoch
from ringfence.control.runtime.raft_proposer import RaftProposer
from ringfence.control.runtime.topic_requests import topic_named
from ringfence.native import messages
from ringfence.native.wire import Code

ROUNDS_MAX = 8
"""Layout changes that one open may live through before the client is told to come back."""


class ProducerRequests:
    """Handlers; each returns the answer's body or raises RequestRefused."""

    def __init__(self, proposer: RaftProposer, driver: Driver, others: Others) -> None:
        self._proposer, self._driver, self._others = proposer, driver, others

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
        return await self._open_named(topic, request.name)

    async def _open_named(self, topic: Topic, name: str) -> messages.ProducerOpened:
        applied = await self._proposer.propose(OpenNamedProducer(topic=topic.topic, name=name))
        assert isinstance(applied.result, ProducersOpened), applied.result
        opened = applied.result
        resume: dict[int, messages.ResumePoint] = {}
        for _ in range(ROUNDS_MAX):
            current = self._proposer.state.topics.get(topic.topic)
            if current is None:
                raise RequestRefused(Code.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted meanwhile")
            resume |= await self._fence_predecessor(current, name, opened)
            # The open ends when one version's whole ACTIVE set has the epoch: a split in between would
            # give the predecessor partitions that never heard of it.
            after = self._proposer.state.topics.get(topic.topic)
            if after is not None and after.layout.version == current.layout.version:
                return messages.ProducerOpened(
                    producer_id=opened.producer,
                    producer_epoch=opened.epoch,
                    resume=[resume[partition] for partition in sorted(resume)],
                )
        message = f"the layout of topic {topic.name!r} changed {ROUNDS_MAX} times meanwhile"
        raise RequestRefused(Code.HELD, message, retry_after_ms=1_000)

    async def _fence_predecessor(
        self, topic: Topic, name: str, opened: ProducersOpened
    ) -> dict[int, messages.ResumePoint]:
        """Write the producer record into every ACTIVE partition; the predecessor's last batch in each."""
        partitions = [part.partition for part in topic.layout.active()]
        outcomes = await asyncio.gather(
            *(self._raise_epoch(topic, partition, name, opened) for partition in partitions),
            return_exceptions=True,
        )
        resume: dict[int, messages.ResumePoint] = {}
        faults: dict[PartitionId, RequestRefused] = {}
        for partition, outcome in zip(partitions, outcomes, strict=True):
            if isinstance(outcome, RequestRefused):
                faults[partition] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                point = _resume_point(partition, outcome)
                if point is not None:
                    resume[partition] = point
        if faults:
            raise _not_open(name, faults)
        return resume

    async def _raise_epoch(
        self, topic: Topic, partition: PartitionId, name: str, opened: ProducersOpened
    ) -> dict[str, Any]:
        """At the partition's owner, here or elsewhere."""
        call = calls.OpenProducer(
            topic=topic.topic, partition=partition, producer=opened.producer, epoch=opened.epoch,
            name=name.encode(),
        )  # fmt: skip
        owner = topic.assignments[partition].owner.node
        if owner == self._others.here:
            return await raise_epoch(self._driver, call)
        return await self._others.open_producer(owner, call)


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
    return RequestRefused(Code.INTERNAL, message, retry_after_ms=1_000, partition=partition)


def _resume_point(partition: int, result: dict[str, Any]) -> messages.ResumePoint | None:
    if not result:
        return None
    return messages.ResumePoint(
        partition=partition,
        sequence=result["sequence"],
        send=result["send"],
        note=result.get("note"),
        first_offset=result["offset"],
        rows=result.get("rows", 0),
    )

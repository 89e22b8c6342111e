"""Open producers (PRODUCER_OPEN) and fence named producers so that their names can be forgotten.

A named producer gets the resume points of its predecessor: the last batch in each partition.
"""

from __future__ import annotations

import asyncio
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
from ringfence.control.model.results import ProducersOpened
from ringfence.control.model.topics import ProducerRule, Topic
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.producer_epochs import raise_epoch
from ringfence.control.runtime.handlers.topics import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages as calls
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.producers import check_current, has_lost_entries, rule_of
from ringfence.native import messages
from ringfence.native.wire import SLOT_COUNT, Code

# An open waits for partitions on HOLD and for layout changes. Its client gives up after its own deadline.
OPEN_S_MAX: Final = 30.0
# Pause before partitions that could not be reached are looked at again: a layout change has ended by then.
AGAIN_S: Final = 0.02
# Partitions that the text of a refusal lists; its details have all of them.
SHOWN_MAX: Final = 20

Slots = tuple[int, int]  # first and last
# Faults of a partition that pass when it opens again, or when its children take its place.
PASSING: Final = frozenset({Code.HELD, Code.INTERNAL})


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
        opened = await self._draw_identity(topic, name, spread=request.spread is True)
        is_known = has_lost_entries(self._proposer.state, topic.topic, name)
        previous = opened.previous_epoch if is_known and not request.accept_fresh_start else Epoch(0)
        resume = await self._reach_all(topic, name, _call_of(opened, name.encode(), previous))
        if name in self._proposer.state.unopened.get(topic.topic, ()):
            await self._proposer.propose(
                ConfirmNamedProducer(topic=topic.topic, name=name, epoch=opened.epoch)
            )
        rule = rule_of(self._proposer.state, topic.topic, name)
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

    async def _reach_all(
        self, topic: Topic, name: str, call: calls.OpenProducer
    ) -> list[messages.ResumePoint]:
        """Raise the epoch until every slot is covered; return the predecessor's resume points.

        A partition that was reached covers its slots also after it is split or merged: its children inherit
        its producers. One that was not reached covers nothing, also if it is sealed meanwhile: rows of the
        predecessor may be on their way to its children.
        """
        uncovered = [(0, SLOT_COUNT - 1)]
        found: list[messages.ResumePoint] = []
        end = asyncio.get_running_loop().time() + OPEN_S_MAX
        while True:
            current = self._proposer.state.topics.get(topic.topic)
            if current is None:
                raise RequestRefused(Code.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted meanwhile")
            wanted = {
                part.partition: (part.slots.lo, part.slots.hi)
                for part in current.layout.active()
                if any(lo <= part.slots.hi and part.slots.lo <= hi for lo, hi in uncovered)
            }
            outcomes = await self._raise_everywhere(current, list(wanted), call)
            reached = {part: each for part, each in outcomes.items() if not isinstance(each, RequestRefused)}
            forgotten = [part for part, result in reached.items() if result.get("forgotten")]
            if forgotten:
                raise _resume_unknown(topic, name, forgotten)
            for partition, result in reached.items():
                own = wanted[partition] if current.layout.version > 1 else None
                found += resume_points(partition, own, result, uncovered)
                uncovered = without(uncovered, wanted[partition])
            if not uncovered:
                return sorted(found, key=lambda point: (point.partition, point.send))
            faults = {part: each for part, each in outcomes.items() if isinstance(each, RequestRefused)}
            await self._wait_for_change(current, name, faults, end)

    async def _wait_for_change(
        self, topic: Topic, name: str, faults: dict[PartitionId, RequestRefused], end: float
    ) -> None:
        """Return if the partitions may be reached in the next round; else refuse the open."""
        state, is_late = self._proposer.state, asyncio.get_running_loop().time() >= end
        after = state.topics.get(topic.topic)
        if after is not None and after.layout.version != topic.layout.version and not is_late:
            return
        left = {
            partition: fault
            for partition, fault in faults.items()
            if partition not in state.changes or fault.code not in PASSING
        }
        if left or is_late:
            raise _not_open(name, left or faults)
        await asyncio.sleep(AGAIN_S)

    async def _raise_everywhere(
        self, topic: Topic, partitions: list[PartitionId], call: calls.OpenProducer
    ) -> dict[PartitionId, dict[str, Any] | RequestRefused]:
        """Write the producer record into these partitions; by partition its result or its refusal."""
        outcomes = await asyncio.gather(
            *(self._raise_epoch(topic, partition, call) for partition in partitions), return_exceptions=True
        )
        found: dict[PartitionId, dict[str, Any] | RequestRefused] = {}
        for partition, outcome in zip(partitions, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, RequestRefused):
                raise outcome
            found[partition] = outcome
        return found

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


def _resume_unknown(topic: Topic, name: str, partitions: Sequence[int]) -> RequestRefused:
    shown = ", ".join(map(str, partitions[:SHOWN_MAX]))
    more = len(partitions) - SHOWN_MAX
    message = (
        f"producer {name!r} of topic {topic.name!r} was opened before, and its last batch is not known any "
        f"more in partitions {shown}{f' and {more} others' if more > 0 else ''}: its state there was lost or "
        "has expired. Find the last stored rows by reading, then open the name with "
        "accept_fresh_start=True, or remove the name: ringfence producer forget TOPIC NAME"
    )
    return RequestRefused(Code.RESUME_UNKNOWN, message, producer=name, partitions=list(partitions))


def resume_points(
    partition: int, own: Slots | None, result: dict[str, Any], uncovered: list[Slots]
) -> list[messages.ResumePoint]:
    """The resume points of one partition, for slots that are not covered yet.

    `own`: the slots of the partition; None in a topic that never changed its layout: points have no slots
    there, and clients of older programs read them.
    """
    if "points" not in result:
        if not result:
            return []
        lo, hi = (UNSET, UNSET) if own is None else own
        point = messages.ResumePoint(
            partition=partition,
            sequence=result["sequence"],
            send=result["send"],
            note=result.get("note"),
            first_offset=result["offset"],
            rows=result.get("rows", 0),
            lo=lo,
            hi=hi,
        )
        return [point]
    found = []
    for lo, hi, at, sequence, send, note, offset, rows in result["points"]:
        for first, last in uncovered:
            if max(lo, first) <= min(hi, last):
                point = messages.ResumePoint(
                    partition=at,
                    sequence=sequence or 0,
                    send=send,
                    note=note,
                    first_offset=offset,
                    rows=rows,
                    lo=max(lo, first),
                    hi=min(hi, last),
                )
                found.append(point)
    return found


def without(ranges: list[Slots], covered: Slots) -> list[Slots]:
    """The slots of `ranges` that are not in `covered`."""
    lo, hi = covered
    left = []
    for first, last in ranges:
        if first < lo:
            left.append((first, min(last, lo - 1)))
        if last > hi:
            left.append((max(first, hi + 1), last))
    return [(first, last) for first, last in left if first <= last]

"""Plan layout changes of operators, and wait until they have taken effect.

A split or a merge is decided again if an owner changed between the decision and its entry. A repartition is
not: it speaks of the whole topic, so of two at the same time exactly one takes effect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ringfence.control.model.ids import Index, PartitionId, TopicId, drawn_at
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import AbortLayout, PrepareLayout
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.results import Done, Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.commands import Build, Outcome, Plan, Wait
from ringfence.control.runtime.handlers.topic_plans import full_name
from ringfence.control.runtime.layout.auto import AskSketch
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.layout_messages import SketchOf
from ringfence.control.state_machines.layout import plan as layout_plan
from ringfence.control.state_machines.layout.plan import Weights
from ringfence.control.state_machines.metadata.layout_checks import closed_fault
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.native.wire import Code

# Decisions of one split or merge. A try fails only if an owner changes between the decision and its entry.
TRIES_MAX: Final = 3
# Text of an operator's reason in the log.
WHY_BY_HAND: Final = "aborted by an operator"


class Split(NamedTuple):
    """Split a partition at the slots `at`, which begin a part each, or into `into` parts."""

    partition: str
    at: tuple[int, ...] = ()
    into: int = 2


class Merge(NamedTuple):
    """Merge two adjacent partitions, in either order."""

    one: str
    other: str


class Repartition(NamedTuple):
    """Give the topic this number of partitions. `even`: of equal ranges, although the number is right."""

    partitions: int
    even: bool = False


LayoutRequest = Split | Merge | Repartition


class Progress(StrEnum):
    """What became of a layout change; see `progress_of`."""

    # The layout is the one before, and may stay so.
    RUNNING = "RUNNING"
    # The layout has the children.
    COMMITTED = "COMMITTED"
    # The change ended without effect.
    ABORTED = "ABORTED"


class LayoutChanges:
    """Plans and waits of one node; each raises RequestRefused."""

    def __init__(
        self, proposer: RaftProposer, ask_sketch: AskSketch, is_aborted: Callable[[ChangeId], bool]
    ) -> None:
        """`ask_sketch` asks a partition's owner where its load is, `is_aborted` tells how a change ended."""
        self._proposer, self._ask_sketch, self._is_aborted = proposer, ask_sketch, is_aborted

    def planned(self, name: str, request: LayoutRequest) -> Build:
        """Plan the change on the newest state. The plan of a topic that has this layout has no command."""
        tries = 0

        async def build() -> Plan:
            topic, weights = await self._with_weights(name, request)
            command = self._command(topic, request, weights)
            if command is None:
                return Plan(done=Outcome(0, Done()))

            async def is_overtaken(refusal: RequestRefused) -> bool:
                nonlocal tries
                tries += 1
                if refusal.code != Code.TOO_OLD:
                    return False
                if tries < TRIES_MAX and command.kind is not TransitionKind.REPARTITION:
                    return True
                raise RequestRefused(Code.ALREADY_EXISTS, refusal.message) from refusal

            return Plan((command,), topic=topic, is_overtaken=is_overtaken)

        return build

    async def preview(self, name: str, request: LayoutRequest) -> PrepareLayout | None:
        """The command that would be proposed now; None if the topic has this layout. Nothing changes."""
        topic, weights = await self._with_weights(name, request)
        command = self._command(topic, request, weights)
        if command is not None:
            self._check(validate(self._proposer.state, command))
        return command

    def planned_abort(self, change: int, why: str) -> Build:
        """Plan the end of an open change. One that is aborted already, by whomever, is done."""

        async def is_overtaken(_: RequestRefused) -> bool:
            return ChangeId(change) not in self._proposer.state.transitions

        async def build() -> Plan:
            await self._proposer.read_barrier()
            state = self._proposer.state
            transition = state.transitions.get(ChangeId(change))
            if transition is None and self._is_aborted(ChangeId(change)):
                return Plan(done=Outcome(0, Done()))
            if transition is None:
                raise unknown_change(state, change)
            return Plan(
                (AbortLayout(change=transition.change, why=why or WHY_BY_HAND),),
                topic=state.topics[transition.topic],
                is_overtaken=is_overtaken,
            )

        return build

    def until_decided(self, wait_s: float) -> Wait:
        """Wait until the change is committed or aborted, at most `wait_s`; the answer shows what it is."""

        async def wait(index: int, plan: Plan) -> Sequence[str]:
            if plan.topic is not None:
                await self._until_decided(plan.topic.topic, ChangeId(index), wait_s)
            return ()

        return wait

    async def _until_decided(self, topic: TopicId, change: ChangeId, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        while progress_of(self._proposer.state, topic, change) is Progress.RUNNING:
            left_s = end - time.monotonic()
            if left_s <= 0:
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._proposer.until_applied(self._proposer.applied.index + 1)
            except TimeoutError:
                return

    async def _newest_topic(self, name: str) -> Topic:
        """The topic as of the newest entry. RequestRefused while layout changes are closed."""
        await self._proposer.read_barrier()
        self._check(closed_fault(self._proposer.state))
        topic = self._proposer.state.topic_named(full_name(name))
        if topic is None:
            message = f"no topic is named {name[:300]!r}; `ringfence topic list` lists them"
            raise RequestRefused(Code.UNKNOWN_TOPIC, message)
        return topic

    async def _with_weights(self, name: str, request: LayoutRequest) -> tuple[Topic, Weights]:
        """The topic as of the newest entry; for a split without slots, the weights of the partition's slots.

        Empty: the owner has no sketch, or does not answer. Then the parts have equal ranges.
        """
        topic = await self._newest_topic(name)
        if not isinstance(request, Split) or request.at:
            return topic, ()
        part = partition_named(topic, request.partition)
        if not part.is_active:
            return topic, ()
        call = SketchOf(topic=topic.topic, partition=part.partition)
        try:
            sketch = await self._ask_sketch(topic.assignments[part.partition].owner.node, call)
        except RequestRefused:
            return await self._newest_topic(name), ()
        return await self._newest_topic(name), sketch.weights

    def _command(self, topic: Topic, request: LayoutRequest, weights: Weights) -> PrepareLayout | None:
        state = self._proposer.state
        planned: PrepareLayout | Refused | None
        match request:
            case Split(partition, at, into):
                number = partition_named(topic, partition).partition
                planned = layout_plan.split(state, topic, number, at=at, into=into, weights=weights)
            case Merge(one, other):
                numbers = [partition_named(topic, text).partition for text in (one, other)]
                planned = layout_plan.merge(state, topic, numbers[0], numbers[1])
            case Repartition(partitions, even):
                planned = layout_plan.repartition(state, topic, partitions, even=even)
        if isinstance(planned, Refused):
            raise RequestRefused(planned.code, planned.message)
        return planned

    def _check(self, refusal: Refused | None) -> None:
        if refusal is not None:
            # No decision is older than the state that it was made on; a stale one is a conflict for callers.
            code = Code.ALREADY_EXISTS if refusal.code is Code.TOO_OLD else refusal.code
            raise RequestRefused(code, refusal.message)


def partition_named(topic: Topic, text: str) -> Partition:
    """The partition with this id or name. RequestRefused: none has it, or it is sealed and in the layout."""
    digits = text.rpartition("-")[2]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 19
    number = int(digits) if is_number else 0
    part = topic.layout.find(number)
    if part is not None and text in {str(number), part.name}:
        return part
    pruned = pruned_end(topic, PartitionId(number)) if is_number else None
    message = f"topic {topic.name!r} has no partition {text[:100]!r}"
    if pruned is not None and text == digits:
        message += f"; it was sealed, ended at offset {pruned}, and was pruned"
        raise RequestRefused(Code.UNKNOWN_PARTITION, message, pruned=True, end_offset=pruned)
    raise RequestRefused(
        Code.UNKNOWN_PARTITION, f"{message}; `ringfence topic layout {topic.name}` lists them"
    )


def pruned_end(topic: Topic, partition: PartitionId) -> int | None:
    """The offset at which a pruned partition ended, as long as a child of it is in the layout."""
    for parents in (topic.gone or {}).values():
        for parent in parents:
            if parent.partition == partition:
                return parent.offset
    return None


def progress_of(state: MetadataState, topic: TopicId, change: ChangeId) -> Progress:
    """What became of a layout change of the topic.

    Ids of children are drawn from its number and never used again. So the layout, or what it notes of pruned
    parents, tells it permanently.
    """
    transition = state.transitions.get(change)
    if transition is not None:
        return Progress.RUNNING if transition.may_abort else Progress.COMMITTED
    entry = state.topics.get(topic)
    if entry is None:
        return Progress.ABORTED
    numbers = (
        *(part.partition for part in entry.layout.partitions),
        *(parent.partition for parents in (entry.gone or {}).values() for parent in parents),
    )
    is_known = any(drawn_at(number) == Index(change) for number in numbers)
    return Progress.COMMITTED if is_known else Progress.ABORTED


def unknown_change(state: MetadataState, change: int) -> RequestRefused:
    """The refusal for a number that no open layout change has."""
    for topic in state.topics.values():
        if progress_of(state, topic.topic, ChangeId(change)) is Progress.COMMITTED:
            message = f"layout change {change} of topic {topic.name!r} is committed: it only goes forward"
            return RequestRefused(Code.ALREADY_EXISTS, message)
    message = f"no open layout change has the number {change}; `ringfence topic transitions` lists them"
    return RequestRefused(Code.UNKNOWN_PARTITION, message)

"""What the metadata says becomes orders to the native node, one entry after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane import table_bodies
from ringfence.control.runtime.data_plane.load_hints import LoadHints
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.data_plane.retries import OrderRetries, RetriedOrder
from ringfence.control.runtime.process.health import Health
from ringfence.control.state_machines import orders
from ringfence.control.state_machines.orders import (
    ClosePartition,
    DropPartition,
    FencePartition,
    FollowPartition,
    InstallTable,
    InstallTopic,
    LocateNode,
    OpenPartition,
    Order,
    RemoveTopic,
    SetLevel,
    TruncatePartition,
)
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release, StopSync
from ringfence.native import messages

_LOG = structlog.get_logger("ringfence.orders")
FAULTS_MAX: Final = 1_024
"""Entries whose failed orders are remembered for those who wait for them."""


@dataclass(frozen=True, slots=True)
class _Step:
    index: int
    state: MetadataState
    phases: orders.Phases


class OrderExecutor:
    """Carries out orders in the order of the entries that gave them.

    A failed order is a reason, and the rest goes on.
    """

    def __init__(
        self,
        driver: NativeNode,
        here: Replica,
        health: Health,
        *,
        on_dropped: Callable[[TopicId], None],
        on_left: Callable[[Adopt | Discard | Release], None],
        on_failed: Callable[[Exception], None],
        on_level: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_dropped` hears of a deleted topic of which this store holds nothing more, `on_left` of what
        a change had left to do here, `on_level` of the cluster's level before the native node does.
        """
        self._native_node, self._here, self._health = driver, here, health
        self.load_hints = LoadHints(driver)
        self._on_dropped, self._on_left, self._on_failed = on_dropped, on_left, on_failed
        self._on_level = on_level
        self._steps: deque[_Step] = deque()
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._faults: OrderedDict[int, list[str]] = OrderedDict()
        self._newest: _Step | None = None
        self._retries = OrderRetries(
            here, state=self._newest_state, give=self._once_more, given_up=self._given_up, on_failed=on_failed
        )
        self._task: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="orders")
        self._task.add_done_callback(self._ended)

    def enqueue(self, before: MetadataState, after: MetadataState, index: int) -> None:
        """Note what the entry at `index` asks for. Called in the order of indexes."""
        phases = orders.between(before, after, self._here)
        self._newest = _Step(index, after, phases)
        if phases:
            self._steps.append(_Step(index, after, phases))
            self._wake.set()

    async def until_executed(self, index: int) -> list[str]:
        """Wait until every order up to the entry at `index` has ended; why those of it that failed did."""
        if self._steps and self._steps[0].index <= index:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._steps or self._steps[0].index > index)
        return self._faults.get(index, [])

    def executed_index(self, applied: int) -> int:
        """The index up to which everything is carried out, when `applied` is the last applied one."""
        return self._steps[0].index - 1 if self._steps else applied

    async def close(self) -> None:
        await self.load_hints.close()
        for opening in self._opening:
            opening.cancel()
        await self._retries.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception), error
            self._on_failed(error)

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            while self._steps:
                step = self._steps[0]
                faults = await self._carry_out(step)
                if faults:
                    self._faults[step.index] = faults
                    while len(self._faults) > FAULTS_MAX:
                        self._faults.popitem(last=False)
                async with self._changed:
                    self._steps.popleft()
                    self._changed.notify_all()
            self._wake.clear()

    async def _carry_out(self, step: _Step) -> list[str]:
        faults: list[str] = []
        for phase in step.phases:
            told = await asyncio.gather(*(self._perform(order, step) for order in phase))
            faults += [fault for fault in told if fault is not None]
        if not faults:
            for topic in sorted(orders.dropped_topics(step.phases)):
                self._on_dropped(topic)
        return faults

    async def _perform(self, order: Order, step: _Step) -> str | None:
        key, give = self._call(order, step)
        if isinstance(order, OpenPartition) and order.replicas:
            # It ends when a majority has it, and theirs may wait for entries behind this one: nobody waits
            # for it.
            opening = asyncio.get_running_loop().create_task(self._open(order, key, give), name=key)
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            return None
        try:
            await self._give(order, give)
        except OrderError as error:
            if isinstance(order, DropPartition) and self._is_gone(order):
                # Dropped before a crash that came before the confirmation.
                return None
            if self._is_done(order):
                return None
            fault = f"{key}: {error}"
            self._health.set_reason(key, fault)
            if isinstance(order, RetriedOrder):
                self._retries.failed(order)
            return fault
        self._health.clear_reason(key)
        if isinstance(order, Adopt | Discard | Release):
            self._on_left(order)
        return None

    async def _give(self, order: Order, give: Callable[[], int]) -> None:
        await self._native_node.order(give)
        if isinstance(order, Discard) and self._is_forgotten(order):
            await self._native_node.order(partial(self._native_node.node.drop, order.topic, order.partition))
        if isinstance(order, DropPartition | Discard | Release) and self._native_node.storage_failed:
            raise OrderError("a disk has failed here: the next start finds out what was dropped")

    async def _open(self, order: OpenPartition, key: str, give: Callable[[], int]) -> None:
        try:
            await self._native_node.order(give, holds_slot=False)
        except OrderError as error:
            self._health.set_reason(key, f"{key}: {error}")
            self._retries.failed(order)
        else:
            self._health.clear_reason(key)

    def _is_done(self, order: Order) -> bool:
        """Steps of changes are repeated by every start until the log knows that they were carried out."""
        match order:
            case StopSync():
                return True
            case Adopt() if self._holds(order):
                self._on_left(order)
                return True
            case Release() if self._is_gone(order):
                self._on_left(order)
                return True
            case _:
                return False

    def _is_gone(self, order: DropPartition | Release) -> bool:
        """Nothing of it is on this store, so that it may be confirmed.

        The engine forgets a partition before its drop is on disk. Where that failed, the next start may find
        it again: who confirmed it would keep it for ever.
        """
        return not self._native_node.storage_failed and not self._holds(order)

    def _is_forgotten(self, order: Discard) -> bool:
        """It was received before a restart: for which change, the log knows, the engine does not any more."""
        topic = self._newest_state().topics.get(order.topic)
        assignment = None if topic is None else topic.assignments.get(order.partition)
        is_replica = assignment is None or self._here in assignment.replicas
        return not is_replica and self._holds(order)

    def _newest_state(self) -> MetadataState:
        assert self._newest is not None, "an order before any state"
        return self._newest.state

    async def _once_more(self, order: RetriedOrder) -> bool:
        assert self._newest is not None, "an order before any state"
        is_done = await self._perform(order, self._newest) is None
        if is_done and isinstance(order, DropPartition) and not self._holds_any(order.topic):
            self._on_dropped(order.topic)
        return is_done

    def _holds(self, order: DropPartition | Adopt | Release | Discard) -> bool:
        place = (order.topic, order.partition)
        return any(
            (known["topic"], known["partition"]) == place for known in self._native_node.node.partitions()
        )

    def _given_up(self, order: RetriedOrder) -> None:
        assert self._newest is not None, "an order before any state"
        self._health.clear_reason(self._call(order, self._newest)[0])

    def _holds_any(self, topic: TopicId) -> bool:
        return any(known["topic"] == topic for known in self._native_node.node.partitions())

    def _call(self, order: Order, step: _Step) -> tuple[str, Callable[[], int]]:
        """The name of an order in reasons, and the call that gives it."""
        node = self._native_node.node
        match order:
            case SetLevel(level):
                return f"raising the level to {level}", partial(self._set_level, level)
            case InstallTopic(topic):
                return f"installing topic {topic.name}", partial(
                    node.install_topic,
                    topic.topic,
                    [schema.message for schema in topic.schemas],
                    order.key_columns,
                    *_given_up_alone(topic),
                )
            case OpenPartition() | FollowPartition() | LocateNode():
                return self._place_call(order)
            case FencePartition(topic, partition, epoch):
                name = f"fencing partition {partition} of topic {topic}"
                return name, partial(node.fence, topic, partition, epoch)
            case ClosePartition(topic, partition):
                return f"closing partition {partition} of topic {topic}", partial(
                    node.close, topic, partition
                )
            case TruncatePartition(topic, partition, before, epoch):
                name = f"truncating partition {partition} of topic {topic}"
                return name, partial(node.truncate, topic, partition, before, epoch)
            case StopSync() | Adopt() | Discard() | Release():
                return self._step_call(order)
            case InstallTable(topic):
                return f"installing the table of topic {topic.name}", self._table_call(order, step)
            case RemoveTopic(topic):
                self.load_hints.removed(topic)
                return f"removing topic {topic}", partial(node.remove_topic, topic)
            case DropPartition(topic, partition):
                return f"dropping partition {partition} of topic {topic}", partial(
                    node.drop, topic, partition
                )

    def _set_level(self, level: int) -> int:
        self._on_level(level)
        return self._native_node.node.set_level(level)

    def _place_call(
        self, order: OpenPartition | FollowPartition | LocateNode
    ) -> tuple[str, Callable[[], int]]:
        node = self._native_node.node
        match order:
            case OpenPartition(topic, partition, slots, epoch, replicas):
                name = f"opening partition {partition} of topic {topic}"
                places = [(replica.node, replica.store) for replica in replicas]
                more = (places, order.quorum) if places else ()
                return name, partial(node.open, topic, partition, slots.lo, slots.hi, epoch, *more)
            case FollowPartition(topic, partition, slots, epoch, owner, forced):
                name = f"following partition {partition} of topic {topic}"
                given = (topic, partition, slots.lo, slots.hi, epoch, owner, forced)
                return name, partial(node.follow, *given)
            case LocateNode(other, addresses):
                return f"locating node {other}", partial(node.set_peer, other, addresses)

    def _step_call(self, step: StopSync | Adopt | Discard | Release) -> tuple[str, Callable[[], int]]:
        node: Any = self._native_node.node
        number = (step.change, step.attempt)
        what = f"of change {step.change} of partition {step.partition}"
        match step:
            case StopSync():
                return f"ending the copy {what}", lambda: node.sync_stop(step.change)
            case Adopt():
                return f"adopting the copy {what}", lambda: node.adopt(*number)
            case Discard():
                return f"discarding the copy {what}", lambda: node.discard(*number)
            case Release():
                return f"releasing the replica {what}", lambda: node.drop(step.topic, step.partition)

    def _table_call(self, order: InstallTable, step: _Step) -> Callable[[], int]:
        topic, state = order.topic, step.state
        active: list[tuple[int, int, int, int, int]] = []
        for part in topic.layout.active():
            assignment: Any = topic.assignments[part.partition]
            active.append(
                (part.partition, part.slots.lo, part.slots.hi, assignment.owner.node, assignment.epoch)
            )
        table = table_bodies.table(state, topic, step.index)
        own = messages.encode(table_bodies.redirect(state, self._here.node))
        owners = [
            (node.node, messages.encode(table_bodies.redirect(state, node.node))) for node in table.nodes
        ]

        def install(body: bytes) -> int:
            number: int = self._native_node.node.install_table(
                topic.topic, step.index, topic.layout.version, body, active, own, owners
            )
            return number

        self.load_hints.installed(topic, table, install)
        return partial(install, messages.encode(table))


def _given_up_alone(topic: Topic) -> tuple[int, int]:
    """Retention in bytes and ms as the engine carries it out by itself; 0 = no bound."""
    if topic.properties.get(messages.RETENTION) == messages.COMPACTED:
        return 0, 0
    return topic.retention_bytes or 0, topic.retention_ms or 0

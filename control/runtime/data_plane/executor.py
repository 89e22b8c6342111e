"""Turn applied metadata entries into orders, and execute them on the native node in entry order."""

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
    NodeOrder,
    OpenPartition,
    RemoveTopic,
    SetLevel,
    TruncatePartition,
)
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release, StopSync
from ringfence.native import messages

_LOG = structlog.get_logger("ringfence.orders")
# Entries whose faults are kept for callers of `until_executed`; the oldest are dropped first.
FAULTS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class _EntryOrders:
    """The orders of one metadata entry; the orders of a phase run together, phases one after the other."""

    index: int
    state: MetadataState
    phases: orders.Phases


class OrderExecutor:
    """Executes orders in the order of their metadata entries.

    A failed order becomes a reason of the node's health; the orders after it are still executed.
    """

    def __init__(
        self,
        native_node: NativeNode,
        here: Replica,
        health: Health,
        *,
        on_dropped: Callable[[TopicId], None],
        on_cleaned_up: Callable[[Adopt | Discard | Release], None],
        on_failed: Callable[[Exception], None],
        on_level: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Set the callbacks; `start` starts the execution.

        Args:
            native_node: executes the orders.
            here: the replica id of this store.
            health: gets a reason per failed order.
            on_dropped: called with a deleted topic once this store has dropped all of its partitions.
            on_cleaned_up: called after a cleanup order of a finished reassignment.
            on_failed: called with a defect; the node must stop.
            on_level: called with the cluster's level before the native node gets the level.
        """
        self._native_node, self._here, self._health = native_node, here, health
        self.load_hints = LoadHints(native_node)
        self._on_dropped, self._on_cleaned_up, self._on_failed = on_dropped, on_cleaned_up, on_failed
        self._on_level = on_level
        # Entries with orders that are not executed yet, the oldest first. The first one is being executed.
        self._entries: deque[_EntryOrders] = deque()
        self._entry_executed = asyncio.Condition()
        self._wake = asyncio.Event()  # set while `_entries` may have entries
        # Faults by index of an entry; at most FAULTS_MAX.
        self._faults: OrderedDict[int, list[str]] = OrderedDict()
        # The newest entry of `enqueue`; None before the first one. Retries use its state.
        self._newest: _EntryOrders | None = None
        self._retries = OrderRetries(
            here,
            state=self._newest_state,
            execute=self._retry,
            on_withdrawn=self._withdrawn,
            on_failed=on_failed,
        )
        self._task: asyncio.Task[None] | None = None
        # Orders to open replicated partitions; their entries do not wait for them.
        self._opening_tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="orders")
        self._task.add_done_callback(self._run_ended)

    def enqueue(self, before: MetadataState, after: MetadataState, index: int) -> None:
        """Queue the orders of the entry at `index`, from `before` to `after`. Indexes must ascend."""
        phases = orders.between(before, after, self._here)
        self._newest = _EntryOrders(index, after, phases)
        if phases:
            self._entries.append(_EntryOrders(index, after, phases))
            self._wake.set()

    async def until_executed(self, index: int) -> list[str]:
        """Wait until every order up to the entry at `index` has ended; return the faults of that entry."""
        if self._entries and self._entries[0].index <= index:
            async with self._entry_executed:
                await self._entry_executed.wait_for(
                    lambda: not self._entries or self._entries[0].index > index
                )
        return self._faults.get(index, [])

    def executed_index(self, applied: int) -> int:
        """The index up to which all orders are executed; `applied` is the last applied index."""
        return self._entries[0].index - 1 if self._entries else applied

    async def close(self) -> None:
        await self.load_hints.close()
        for opening in self._opening_tasks:
            opening.cancel()
        await self._retries.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception), error
            self._on_failed(error)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            while self._entries:
                entry = self._entries[0]
                faults = await self._execute_entry(entry)
                if faults:
                    self._faults[entry.index] = faults
                    while len(self._faults) > FAULTS_MAX:
                        self._faults.popitem(last=False)
                async with self._entry_executed:
                    self._entries.popleft()
                    self._entry_executed.notify_all()
            self._wake.clear()

    async def _execute_entry(self, entry: _EntryOrders) -> list[str]:
        faults: list[str] = []
        for phase in entry.phases:
            outcomes = await asyncio.gather(*(self._execute(order, entry) for order in phase))
            faults += [fault for fault in outcomes if fault is not None]
        if not faults:
            for topic in sorted(orders.dropped_topics(entry.phases)):
                self._on_dropped(topic)
        return faults

    async def _execute(self, order: NodeOrder, entry: _EntryOrders) -> str | None:
        key, give = self._call(order, entry)
        if isinstance(order, OpenPartition) and order.replicas:
            # The order ends only when a majority has the partition, and other nodes may need later entries
            # for that. So the entry does not wait for it.
            opening = asyncio.get_running_loop().create_task(self._open(order, key, give), name=key)
            self._opening_tasks.add(opening)
            opening.add_done_callback(self._opening_tasks.discard)
            return None
        try:
            await self._give(order, give)
        except OrderError as error:
            if isinstance(order, DropPartition) and self._is_gone(order):
                # The partition was dropped before a crash; the confirmation was not sent.
                return None
            if self._was_executed(order):
                return None
            fault = f"{key}: {error}"
            self._health.set_reason(key, fault)
            if isinstance(order, RetriedOrder):
                self._retries.failed(order)
            return fault
        self._health.clear_reason(key)
        if isinstance(order, Adopt | Discard | Release):
            self._on_cleaned_up(order)
        return None

    async def _give(self, order: NodeOrder, give: Callable[[], int]) -> None:
        await self._native_node.order(give)
        if isinstance(order, Discard) and self._is_unknown_copy(order):
            await self._native_node.order(partial(self._native_node.node.drop, order.topic, order.partition))
        if isinstance(order, DropPartition | Discard | Release) and self._native_node.storage_failed:
            raise OrderError(
                "a disk of this node has failed: the next start finds out which partitions were dropped"
            )

    async def _open(self, order: OpenPartition, key: str, give: Callable[[], int]) -> None:
        try:
            await self._native_node.order(give, holds_slot=False)
        except OrderError as error:
            self._health.set_reason(key, f"{key}: {error}")
            self._retries.failed(order)
        else:
            self._health.clear_reason(key)

    def _was_executed(self, order: NodeOrder) -> bool:
        """Whether an earlier process has executed `order`.

        Each start repeats the cleanup orders of reassignments until the log has their confirmation.
        """
        match order:
            case StopSync():
                return True
            case Adopt() if self._has_partition(order):
                self._on_cleaned_up(order)
                return True
            case Release() if self._is_gone(order):
                self._on_cleaned_up(order)
                return True
            case _:
                return False

    def _is_gone(self, order: DropPartition | Release) -> bool:
        """Whether this store has nothing of the partition, so that the drop may be confirmed.

        The engine removes a partition from memory before the drop is on disk. If the disk failed, the next
        start may find the partition again: after a confirmation its files would stay forever.
        """
        return not self._native_node.storage_failed and not self._has_partition(order)

    def _is_unknown_copy(self, order: Discard) -> bool:
        """Whether the copy was received before a restart: the engine has forgotten its reassignment."""
        topic = self._newest_state().topics.get(order.topic)
        assignment = None if topic is None else topic.assignments.get(order.partition)
        is_replica = assignment is None or self._here in assignment.replicas
        return not is_replica and self._has_partition(order)

    def _newest_state(self) -> MetadataState:
        assert self._newest is not None, "an order came before any state"
        return self._newest.state

    async def _retry(self, order: RetriedOrder) -> bool:
        assert self._newest is not None, "an order came before any state"
        is_executed = await self._execute(order, self._newest) is None
        if is_executed and isinstance(order, DropPartition) and not self._has_any_of(order.topic):
            self._on_dropped(order.topic)
        return is_executed

    def _has_partition(self, order: DropPartition | Adopt | Release | Discard) -> bool:
        key = (order.topic, order.partition)
        return any(
            (counters["topic"], counters["partition"]) == key
            for counters in self._native_node.node.partitions()
        )

    def _withdrawn(self, order: RetriedOrder) -> None:
        assert self._newest is not None, "an order came before any state"
        self._health.clear_reason(self._call(order, self._newest)[0])

    def _has_any_of(self, topic: TopicId) -> bool:
        return any(counters["topic"] == topic for counters in self._native_node.node.partitions())

    def _call(self, order: NodeOrder, entry: _EntryOrders) -> tuple[str, Callable[[], int]]:
        """The name of an order in fault texts, and the call that gives the order to the native node."""
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
                    *_engine_retention(topic),
                )
            case OpenPartition() | FollowPartition() | LocateNode():
                return self._replica_call(order)
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
                return self._cleanup_call(order)
            case InstallTable(topic):
                return f"installing the table of topic {topic.name}", self._table_call(order, entry)
            case RemoveTopic(topic):
                self.load_hints.remove_table(topic)
                return f"removing topic {topic}", partial(node.remove_topic, topic)
            case DropPartition(topic, partition):
                return f"dropping partition {partition} of topic {topic}", partial(
                    node.drop, topic, partition
                )

    def _set_level(self, level: int) -> int:
        self._on_level(level)
        return self._native_node.node.set_level(level)

    def _replica_call(
        self, order: OpenPartition | FollowPartition | LocateNode
    ) -> tuple[str, Callable[[], int]]:
        node = self._native_node.node
        match order:
            case OpenPartition(topic, partition, slots, epoch, replicas):
                name = f"opening partition {partition} of topic {topic}"
                members = [(replica.node, replica.store) for replica in replicas]
                quorum = (members, order.quorum) if members else ()
                return name, partial(node.open, topic, partition, slots.lo, slots.hi, epoch, *quorum)
            case FollowPartition(topic, partition, slots, epoch, owner, forced):
                name = f"following partition {partition} of topic {topic}"
                arguments = (topic, partition, slots.lo, slots.hi, epoch, owner, forced)
                return name, partial(node.follow, *arguments)
            case LocateNode(other, addresses):
                return f"locating node {other}", partial(node.set_peer, other, addresses)

    def _cleanup_call(self, order: StopSync | Adopt | Discard | Release) -> tuple[str, Callable[[], int]]:
        node: Any = self._native_node.node
        attempt = (order.change, order.attempt)
        what = f"of change {order.change} of partition {order.partition}"
        match order:
            case StopSync():
                return f"ending the copy {what}", lambda: node.sync_stop(order.change)
            case Adopt():
                return f"adopting the copy {what}", lambda: node.adopt(*attempt)
            case Discard():
                return f"discarding the copy {what}", lambda: node.discard(*attempt)
            case Release():
                return f"releasing the replica {what}", lambda: node.drop(order.topic, order.partition)

    def _table_call(self, order: InstallTable, entry: _EntryOrders) -> Callable[[], int]:
        topic, state = order.topic, entry.state
        active: list[tuple[int, int, int, int, int]] = []
        for part in topic.layout.active():
            assignment: Any = topic.assignments[part.partition]
            active.append(
                (part.partition, part.slots.lo, part.slots.hi, assignment.owner.node, assignment.epoch)
            )
        table = table_bodies.table(state, topic, entry.index)
        own = messages.encode(table_bodies.redirect(state, self._here.node))
        owners = [
            (node.node, messages.encode(table_bodies.redirect(state, node.node))) for node in table.nodes
        ]

        def install(body: bytes) -> int:
            number: int = self._native_node.node.install_table(
                topic.topic, entry.index, topic.layout.version, body, active, own, owners
            )
            return number

        self.load_hints.set_table(topic, table, install)
        return partial(install, messages.encode(table))


def _engine_retention(topic: Topic) -> tuple[int, int]:
    """Retention limits in bytes and ms that the engine applies by itself; 0 = no limit."""
    if topic.properties.get(messages.RETENTION) == messages.COMPACTED:
        return 0, 0
    return topic.retention_bytes or 0, topic.retention_ms or 0

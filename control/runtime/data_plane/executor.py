"""Turn applied metadata entries into orders, and execute them on the native node in entry order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

import structlog

from ringfence.control.model.cohorts import CohortId
from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.cohort_orders import install_order
from ringfence.control.runtime.data_plane.load_hints import LoadHints
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.data_plane.native_orders import describe, table_order, to_native
from ringfence.control.runtime.data_plane.partition_opens import PartitionOpens
from ringfence.control.runtime.data_plane.retries import OrderRetries, RetriedOrder
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.tasks import failure_of
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.cohorts.gates import DrainedWords
from ringfence.control.state_machines.node_orders import (
    DropPartition,
    FollowSealed,
    InstallCohorts,
    InstallTable,
    NodeOrder,
    OpenPartition,
    OpenSealed,
    RemoveTopic,
    SetLevel,
)
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release, StopSync
from ringfence.native import messages
from ringfence.native._node import Order

_LOG = structlog.get_logger("ringfence.orders")
# Entries whose faults are kept for callers of `until_executed`; the oldest are dropped first.
FAULTS_MAX: Final = 1_024
# Pause before rules of cohorts that the engine refused are installed again, in seconds.
COHORTS_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _EntryOrders:
    """The orders of one metadata entry; the orders of a phase run together, phases one after the other."""

    index: int
    state: MetadataState
    phases: node_orders.Phases


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
        self.load_hints, self.opens = LoadHints(native_node), PartitionOpens()
        self._on_dropped, self._on_cleaned_up, self._on_failed = on_dropped, on_cleaned_up, on_failed
        self._on_level = on_level
        # What owners told of drained partitions; rules of cohorts are derived with it.
        self.words = DrainedWords()
        # Called with cohorts whose rules the engine has, and the state that they are of.
        self.on_cohorts: Callable[[MetadataState, tuple[CohortId, ...]], None] = lambda *_: None
        # Installs what rules of cohorts build on: pending commits, before a gate opens (CG15).
        self.before_cohorts: Callable[[], Awaitable[object]] = _nothing
        # Cohorts whose rules are installed again once no entry is left.
        self._again: set[CohortId] = set()
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
        # Topics whose newest table could not be installed: clients are given tables that may be old.
        self._stale_tables: set[TopicId] = set()
        # Sealed partitions that this store was given and lacks records of, or that have other ones here.
        self.lacking: set[PartitionId] = set()
        # Orders to open replicated partitions; their entries do not wait for them.
        self._opening_tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="orders")
        self._task.add_done_callback(self._run_ended)

    def enqueue(self, before: MetadataState, after: MetadataState, index: int) -> None:
        """Queue the orders of the entry at `index`, from `before` to `after`. Indexes must ascend."""
        phases = node_orders.between(before, after, self._here)
        self._newest = _EntryOrders(index, after, phases)
        if phases:
            self._entries.append(_EntryOrders(index, after, phases))
            self._wake.set()
        else:
            self._settle()

    def reinstall(self, cohorts: Collection[CohortId]) -> None:
        """Derive and install the rules of these cohorts again: other owners told more, or it failed."""
        self._again |= {*cohorts}
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
        if (error := failure_of(task)) is not None:
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
                self._settle()
            self._wake.clear()
            await self._install_again()

    async def _install_again(self) -> None:
        """Install rules on the newest state; entries that come meanwhile wake the loop."""
        cohorts, self._again = self._again, set()
        if not cohorts or self._newest is None:
            return
        state = self._newest.state
        known = tuple(sorted(cohort for cohort in cohorts if cohort in state.cohorts))
        if known:
            await self._execute(InstallCohorts(known), self._newest)

    def _settle(self) -> None:
        """Tell the engine up to which entry its tables are installed."""
        assert self._newest is not None, "an order came before any state"
        if not self._stale_tables:
            self._native_node.settled(self.executed_index(self._newest.index))

    async def _execute_entry(self, entry: _EntryOrders) -> list[str]:
        faults: list[str] = []
        for phase in entry.phases:
            outcomes = await asyncio.gather(*(self._execute(order, entry) for order in phase))
            faults += [fault for fault in outcomes if fault is not None]
        if not faults:
            for topic in sorted(node_orders.dropped_topics(entry.phases)):
                self._on_dropped(topic)
        return faults

    async def _execute(self, order: NodeOrder, entry: _EntryOrders) -> str | None:
        key, native_order = describe(order), self._to_native(order, entry)
        if isinstance(order, OpenPartition) and order.replicas:
            # The order ends only when a majority has the partition, and other nodes may need later entries
            # for that. So the entry does not wait for it.
            opening = asyncio.get_running_loop().create_task(self._open(order, key, native_order), name=key)
            self._opening_tasks.add(opening)
            opening.add_done_callback(self._opening_tasks.discard)
            return None
        try:
            await self._give(order, native_order)
        except OrderError as error:
            if isinstance(order, DropPartition) and self._is_gone(order):
                # The partition was dropped before a crash; the confirmation was not sent.
                return None
            if self._was_executed(order):
                return None
            fault = f"{key}: {error}"
            self._health.set_reason(key, fault)
            self._note_failed(order)
            if isinstance(order, InstallCohorts):
                asyncio.get_running_loop().call_later(COHORTS_AGAIN_S, self.reinstall, order.cohorts)
            if isinstance(order, RetriedOrder):
                self._retries.failed(order)
            return fault
        self._health.clear_reason(key)
        self._note_done(order)
        if isinstance(order, InstallCohorts):
            self.on_cohorts(entry.state, order.cohorts)
        if isinstance(order, Adopt | Discard | Release):
            self._on_cleaned_up(order)
        if isinstance(order, OpenPartition | OpenSealed):
            self.opens.opened((order.topic, order.partition), order.epoch)
        return None

    def _note_failed(self, order: NodeOrder) -> None:
        match order:
            case InstallTable(topic):
                self._stale_tables.add(topic.topic)
            case OpenSealed():
                self.lacking.add(order.partition)
            case _:
                pass

    def _note_done(self, order: NodeOrder) -> None:
        match order:
            case InstallTable(topic):
                self._stale_tables.discard(topic.topic)
            case RemoveTopic(topic):
                self._stale_tables.discard(topic)
            case OpenSealed() | FollowSealed() | DropPartition() | Release():
                self.lacking.discard(order.partition)
            case _:
                pass

    async def _give(self, order: NodeOrder, native_order: Order) -> None:
        if isinstance(order, SetLevel):
            try:
                self._on_level(order.level)
            except OSError as error:
                raise OrderError(str(error)) from error
        if isinstance(order, InstallCohorts):
            await self.before_cohorts()
        await self._native_node.order(native_order)
        if isinstance(order, Discard) and self._is_unknown_copy(order):
            await self._native_node.order(Order.drop(order.topic, order.partition))
        if isinstance(order, DropPartition | Discard | Release) and self._native_node.storage_failed:
            raise OrderError(
                "a disk of this node has failed: the next start finds out which partitions were dropped"
            )

    async def _open(self, order: OpenPartition, key: str, native_order: Order) -> None:
        try:
            await self._native_node.order(native_order, holds_slot=False)
        except OrderError as error:
            self._health.set_reason(key, f"{key}: {error}")
            self._retries.failed(order)
        else:
            self._health.clear_reason(key)
            self.opens.opened((order.topic, order.partition), order.epoch)

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
        return bool(self._native_node.node.partitions_of([(order.topic, order.partition)]))

    def _withdrawn(self, order: RetriedOrder) -> None:
        self._health.clear_reason(describe(order))

    def _has_any_of(self, topic: TopicId) -> bool:
        return any(counters["topic"] == topic for counters in self._native_node.node.partitions())

    def _to_native(self, order: NodeOrder, entry: _EntryOrders) -> Order:
        match order:
            case InstallTable(topic):
                table, install = table_order(topic, entry.state, entry.index, self._here)
                self.load_hints.set_table(topic, table, install)
                return install(messages.encode(table))
            case InstallCohorts():
                return install_order(order, entry.state, entry.index, self._here, self.words)
            case RemoveTopic(topic):
                self.load_hints.remove_table(topic)
            case DropPartition(topic, partition) | Release(topic=topic, partition=partition):
                self.opens.dropped((topic, partition))
        return to_native(order)


async def _nothing() -> None:
    """Nothing has to be installed before."""

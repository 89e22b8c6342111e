"""Execute the leader's reassignment orders on this node, and answer with their progress.

A node checks an order against its own metadata before execution (`messages.evaluate_order`). It checks again
after a step that it cannot undo: an ABORT may have been applied meanwhile, and the abort's Discard may have
run before there was a copy to discard.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any, Final

import structlog
from msgspec import UNSET

from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.order_terms import OrderTerms
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.reassignment_rules import awaits_owner
from ringfence.control.state_machines.reassignment.messages import (
    Ended,
    Failed,
    Fence,
    LookOpen,
    OrderDone,
    OrderVerdict,
    Prove,
    ReassignmentAnswer,
    ReassignmentOrder,
    Receive,
    Sync,
    Synced,
    SyncState,
    evaluate_order,
)
from ringfence.native._node import Node, Order
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.changes")
# Time that an order waits for this node's metadata, or for the log's end, in seconds. After it the leader
# repeats the order.
WAIT_S: Final = 1.0
# Time that the first answer of a request waits for the others, in seconds: with orders that write to disk,
# and with questions whether partitions are open.
GATHER_S: Final = 0.1
OPEN_GATHER_S: Final = 0.02
# Records of finished reassignments before they are dropped; a search after each order would cost too much.
FINISHED_MAX: Final = 64
# Shortest time between two reads of the counters, as a multiple of the duration of a read.
READ_PAUSE_FACTOR: Final = 4


class Participant:
    """Executes the leader's reassignment orders, once the node serves. One per node."""

    def __init__(
        self, proposer: RaftProposer, executor: OrderExecutor, native_node: NativeNode, here: Replica
    ) -> None:
        self._proposer, self._executor, self._native_node, self._here = proposer, executor, native_node, here
        self._terms = OrderTerms(proposer)
        # Copies that this node receives: (change, attempt).
        self._receiving: set[tuple[int, int]] = set()
        # Copy rates in bytes/s by (change, target): this node may copy a partition to several targets.
        self._syncing: dict[tuple[int, NodeId], int] = {}
        self._counter_snapshot = _CounterSnapshot(native_node.node)

    async def execute(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        """Execute an order of the leader of `term`.

        Raises:
            RequestRefused: the order is too early, or withdrawn; a later attempt may succeed.
        """
        self._terms.check(term)
        await self._until_valid(order)
        self._drop_finished()
        await self._executor.until_executed(self._proposer.applied.index)
        match order:
            case Receive():
                return await self._receive(order)
            case Sync():
                return await self._sync(order)
            case Fence():
                return await self._fence(order)
            case Prove():
                return await self._prove(order)
            case LookOpen():
                return await self._open(order)

    async def execute_many(
        self, term: int, orders: Sequence[ReassignmentOrder]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        """Execute orders together; None for one that is refused, or not done soon after the first answer.

        Raises:
            RequestRefused: the term is older than the newest one of an order, or consensus does not know it.
        """
        self._terms.check(term)
        polls = [order for order in orders if isinstance(order, LookOpen) and order.to == self._here]
        others = [order for order in orders if not isinstance(order, LookOpen)]
        tasks = [asyncio.create_task(self._try_execute(term, order)) for order in others]
        if polls:
            tasks.append(asyncio.create_task(self._opened(polls)))
        try:
            _, unfinished = (
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED) if tasks else ((), ())
            )
            if unfinished:
                await asyncio.wait(unfinished, timeout=GATHER_S)
        finally:
            for task in tasks:
                task.cancel()
        answers: dict[ReassignmentOrder, ReassignmentAnswer] = {}
        for task in tasks:
            if task.done() and not task.cancelled():
                answers |= task.result()
        return tuple(answers.get(order) for order in orders)

    async def _try_execute(
        self, term: int, order: ReassignmentOrder
    ) -> dict[ReassignmentOrder, ReassignmentAnswer]:
        try:
            return {order: await self.execute(term, order)}
        except RequestRefused as refusal:
            _LOG.debug("order not executed", order=repr(order), why=refusal.message)
            return {}

    def _drop_finished(self) -> None:
        """Drop the records of finished changes now and then; their orders are refused."""
        changes = self._proposer.state.changes
        if len(self._receiving) + len(self._syncing) > 2 * len(changes) + FINISHED_MAX:
            unfinished = {change.change for change in changes.values()}
            self._receiving = {attempt for attempt in self._receiving if attempt[0] in unfinished}
            self._syncing = {key: rate for key, rate in self._syncing.items() if key[0] in unfinished}

    async def _until_valid(self, order: ReassignmentOrder) -> None:
        end = time.monotonic() + WAIT_S
        while True:
            result = evaluate_order(self._proposer.state, self._proposer.applied.index, order, self._here)
            if result is OrderVerdict.EXECUTE:
                return
            if result is OrderVerdict.NEVER or time.monotonic() >= end:
                is_never = result is OrderVerdict.NEVER
                message = (
                    f"{type(order).__name__} for change {order.change} of partition {order.partition}: "
                    f"{'finished, or not for this store' if is_never else 'not in this log'}"
                )
                raise RequestRefused(Code.TOO_OLD, message, retry_after_ms=50)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end - time.monotonic()):
                    await self._proposer.until_applied(self._proposer.applied.index + 1)

    async def _receive(self, order: Receive) -> ReassignmentAnswer:
        attempt = (order.change, order.attempt)
        if attempt not in self._receiving:
            slots = self._slots(order)
            topic = self._proposer.state.topics[order.topic]
            try:
                await self._native_node.order(
                    Order.receive_start(
                        order.topic,
                        order.partition,
                        *slots,
                        *attempt,
                        topic.assignments[order.partition].epoch,
                        order.owner.node,
                        topic.forced_epoch(order.partition),
                    )
                )
            except OrderError as error:
                return Failed(why=str(error))
            self._receiving.add(attempt)
            if self._is_over(order):
                await self._native_node.order(Order.discard(*attempt))
                self._receiving.discard(attempt)
        return OrderDone()

    async def _sync(self, order: Sync) -> ReassignmentAnswer:
        key = order.change, order.target.node
        if key not in self._syncing:
            target = self._proposer.state.nodes[order.target.node]
            try:
                await self._native_node.order(Order.set_peer(target.node, target.addresses))
                await self._native_node.order(
                    Order.sync_start(
                        order.topic,
                        order.partition,
                        order.change,
                        order.attempt,
                        order.target.node,
                        order.target.store,
                        order.bytes_per_s,
                    )
                )
            except OrderError as error:
                return Failed(why=str(error))
            self._syncing[key] = order.bytes_per_s
            if self._is_over(order):
                await self._native_node.order(Order.sync_stop(order.change))
        elif self._syncing[key] != order.bytes_per_s:
            await self._native_node.order(Order.sync_rate(order.change, order.bytes_per_s))
            self._syncing[key] = order.bytes_per_s
        return self._copy_progress(order)

    def _copy_progress(self, order: Sync) -> Synced:
        for sync in self._native_node.node.syncs():
            if (sync["change"], sync["node"]) == (order.change, order.target.node):
                state = {"contiguous": SyncState.CONTIGUOUS, "failed": SyncState.FAILED}.get(
                    sync["state"], SyncState.COPYING
                )
                return Synced(
                    state=state,
                    rows=sync["rows"],
                    bytes=sync["bytes"],
                    gap=sync["gap"],
                    why=str(sync["why"] or ""),
                )
        return Synced(state=SyncState.COPYING)

    async def _fence(self, order: Fence) -> ReassignmentAnswer:
        # A planned reassignment needs the owner's end, durable on its quorum. In a failover each replica
        # reports its own end.
        is_failover = awaits_owner(self._proposer.state, order.partition)
        place = order.topic, order.partition, order.change
        try:
            if is_failover:
                outcome = await self._native_node.order(Order.fence(*place))
            else:
                # A hold ends only after other nodes have answered.
                outcome = await self._native_node.order(Order.hold(*place), holds_slot=False)
        except OrderError as error:
            raise RequestRefused(Code.INTERNAL, str(error), retry_after_ms=100) from error
        if is_failover:
            lacks = self._lacks(order)
            return Ended(end=_end(outcome), cut=bool(outcome.get("cut")), lacks=lacks or UNSET)
        self._counter_snapshot.renew(time.monotonic())
        counters = self._counters(order) or {}
        stopped_us = int(outcome.get("stopped_us", counters.get("last_acknowledged_us", 0)))
        return Ended(end=_end(outcome), cut=bool(outcome.get("cut")), stopped_us=stopped_us)

    def _lacks(self, order: Fence) -> tuple[PartitionId, ...]:
        """Partitions that this one came from, of which the log here has not the last page."""
        topic = self._proposer.state.topics.get(order.topic)
        part = None if topic is None else topic.layout.find(order.partition)
        if topic is None or part is None or topic.layout.version == 1:
            return ()
        parents = {*part.parents, *(parent.partition for parent in topic.pruned_parents(order.partition))}
        if not parents:
            return ()
        self._counter_snapshot.renew(time.monotonic())
        counters = self._counters(order) or {}
        return tuple(sorted(parents - {PartitionId(source) for source, _ in counters.get("sources") or ()}))

    async def _prove(self, order: Prove) -> ReassignmentAnswer:
        # Rows that are not on disk yet would be lost if this node were killed right after the commit: the
        # native node ends the order once they are.
        timeout_ms = round(WAIT_S * 1_000)
        awaited = Order.await_records(order.topic, order.partition, order.records, timeout_ms)
        try:
            outcome = await self._native_node.order(awaited, holds_slot=False)
        except OrderError as error:
            raise RequestRefused(Code.HELD, str(error), retry_after_ms=20) from error
        return Ended(end=_end(outcome))

    async def _open(self, order: LookOpen) -> ReassignmentAnswer:
        answers = await self._opened([order])
        if order not in answers:
            message = f"{type(order).__name__} for partition {order.partition}: not yet"
            raise RequestRefused(Code.HELD, message, retry_after_ms=20)
        return answers[order]

    async def _opened(self, orders: Sequence[LookOpen]) -> dict[ReassignmentOrder, ReassignmentAnswer]:
        """Wait until all partitions are open, or until OPEN_GATHER_S after the first one, or WAIT_S."""
        await self._executor.until_executed(self._proposer.applied.index)
        opens, arrived_s = self._executor.opens, time.monotonic()
        end = arrived_s + WAIT_S
        answers: dict[ReassignmentOrder, ReassignmentAnswer] = {}
        while True:
            waiting = [order for order in orders if order not in answers]
            due = [order for order in waiting if opens.epoch(_place(order)) == order.epoch]
            if due:
                # A snapshot taken just before the order arrived is new enough: a message takes as long.
                await self._counter_snapshot.renew_soon(
                    max(opens.last_s, arrived_s - self._counter_snapshot.pause_s)
                )
            opened: dict[ReassignmentOrder, ReassignmentAnswer] = {
                order: answer for order in due if (answer := self._opening(order)) is not None
            }
            if opened and not answers:
                end = min(end, time.monotonic() + OPEN_GATHER_S)
            answers |= opened
            if len(answers) == len(orders) or time.monotonic() >= end:
                return answers
            await opens.until_opened(end - time.monotonic())

    def _opening(self, order: LookOpen) -> ReassignmentAnswer | None:
        """The answer if the partition is open now, with the time of its first acknowledgement."""
        counters = self._counters(order)
        if counters is None:
            return None
        if counters.get("sealed") is not None:
            # It takes no rows: `opens` has the epoch under which it serves, its log that of its last record.
            return OrderDone() if counters["sealed"]["reached"] else None
        if not counters["open"] or counters["owner_epoch"] != order.epoch:
            return None
        return OrderDone(first_us=int(counters.get("first_acknowledged_us", 0)))

    def _counters(self, order: ReassignmentOrder) -> dict[str, Any] | None:
        return self._counter_snapshot.get(_place(order))

    def _is_over(self, order: ReassignmentOrder) -> bool:
        now = evaluate_order(self._proposer.state, self._proposer.applied.index, order, self._here)
        change = self._proposer.state.changes.get(order.partition)
        is_adopted = change is not None and change.change == order.change and change.is_committed
        return now is OrderVerdict.NEVER and not is_adopted

    def _slots(self, order: ReassignmentOrder) -> tuple[int, int]:
        part = self._proposer.state.topics[order.topic].layout.find(order.partition)
        assert part is not None, "the change's partition is in its topic's layout"
        return part.slots.lo, part.slots.hi


class _CounterSnapshot:
    """Counters of all partitions of the native node at one moment, shared by all waiting orders.

    The native node returns all partitions in one call. With a thousand partitions and a hundred waiting
    orders, a call per order would block the loop.
    """

    def __init__(self, native: Node) -> None:
        self._native = native
        self._taken_s = -math.inf
        self._counters: dict[tuple[int, int], dict[str, Any]] = {}
        # Shortest pause between two calls, in seconds: a few times the duration of a call.
        self.pause_s = 0.0

    async def renew_soon(self, not_before_s: float) -> None:
        """Like `renew`, after the pause: partitions that open one after the other share a snapshot."""
        pause_s = self._taken_s + self.pause_s - time.monotonic()
        if self._taken_s <= not_before_s and pause_s > 0:
            await asyncio.sleep(pause_s)
        self.renew(not_before_s)

    def renew(self, not_before_s: float) -> None:
        """Read the counters, unless the snapshot is newer than `not_before_s` (monotonic clock)."""
        if self._taken_s > not_before_s:
            return
        self._taken_s = time.monotonic()
        self._counters = {(part["topic"], part["partition"]): part for part in self._native.partitions()}
        self.pause_s = READ_PAUSE_FACTOR * (time.monotonic() - self._taken_s)

    def get(self, key: tuple[int, int]) -> dict[str, Any] | None:
        return self._counters.get(key)


def _place(order: ReassignmentOrder) -> tuple[TopicId, PartitionId]:
    return order.topic, order.partition


def _end(counters: dict[str, Any]) -> LogEnd:
    epoch = counters.get("epoch", counters.get("owner_epoch", 0))
    return LogEnd(Epoch(epoch), counters["records"], counters["end_offset"], counters["chain"])

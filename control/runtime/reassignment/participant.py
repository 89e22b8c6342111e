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
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import structlog

from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.reassignments import LogEnd
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
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
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.changes")
# Time that an order waits for this node's metadata, or for the log's end, in seconds. After it the leader
# repeats the order.
WAIT_S: Final = 1.0
# Time that the first answer of a request waits for the others, in seconds: with orders that write to disk,
# and with orders that only poll.
GATHER_S: Final = 0.1
OPEN_GATHER_S: Final = 0.02
# Records of finished reassignments before they are dropped; a search after each order would cost too much.
FINISHED_MAX: Final = 64
# First and longest interval of polls of the native node, in seconds; each is twice the one before. The native
# node does not report that a log has grown or a partition opened. A few of these are the gap of a move.
POLL_S: Final = 0.0005
POLL_S_MAX: Final = 0.003
# Pause after a poll, as a multiple of the poll's duration.
POLL_PAUSE_FACTOR: Final = 4

OrderT = TypeVar("OrderT", bound=ReassignmentOrder)


class Participant:
    """Executes the leader's reassignment orders. One per node, created once the data plane serves."""

    def __init__(
        self, proposer: RaftProposer, executor: OrderExecutor, native_node: NativeNode, here: Replica
    ) -> None:
        self._proposer, self._executor, self._native_node, self._here = proposer, executor, native_node, here
        self._native: Any = native_node.node
        # The newest term of an order; orders of older terms are refused.
        self._term = 0
        # Copies that this node receives: (change, attempt).
        self._receiving: set[tuple[int, int]] = set()
        # Copy rates in bytes/s by (change, target): this node may copy a partition to several targets.
        self._syncing: dict[tuple[int, NodeId], int] = {}
        self._counter_snapshot = _CounterSnapshot(self._native)

    async def execute(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        """Execute an order of the leader of `term`.

        Raises:
            RequestRefused: the order is too early, or withdrawn; a later attempt may succeed.
        """
        self._check_term(term)
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
            case Prove(records=records):
                return await self._prove(order, records)
            case LookOpen():
                return await self._open(order)

    async def execute_many(
        self, term: int, orders: Sequence[ReassignmentOrder]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        """Execute orders together; None for one that is refused, or not done soon after the first answer.

        Raises:
            RequestRefused: the term is older than the newest term that this node has seen.
        """
        self._check_term(term)
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

    def _check_term(self, term: int) -> None:
        if term < self._term:
            message = f"the order is of term {term}, but this node has seen term {self._term}"
            raise RequestRefused(Code.TOO_OLD, message)
        self._term = term

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
                await self._order(
                    "receive_start",
                    order.topic,
                    order.partition,
                    *slots,
                    *attempt,
                    topic.assignments[order.partition].epoch,
                    order.owner.node,
                    topic.forced_epoch(order.partition),
                )
            except OrderError as error:
                return Failed(why=str(error))
            self._receiving.add(attempt)
            if self._is_over(order):
                await self._order("discard", *attempt)
                self._receiving.discard(attempt)
        return OrderDone()

    async def _sync(self, order: Sync) -> ReassignmentAnswer:
        key = order.change, order.target.node
        if key not in self._syncing:
            target = self._proposer.state.nodes[order.target.node]
            try:
                await self._order("set_peer", target.node, list(target.addresses))
                await self._order(
                    "sync_start",
                    order.topic,
                    order.partition,
                    order.change,
                    order.attempt,
                    order.target.node,
                    order.target.store,
                    order.bytes_per_s,
                )
            except OrderError as error:
                return Failed(why=str(error))
            self._syncing[key] = order.bytes_per_s
            if self._is_over(order):
                await self._order("sync_stop", order.change)
        elif self._syncing[key] != order.bytes_per_s:
            await self._order("sync_rate", order.change, order.bytes_per_s)
            self._syncing[key] = order.bytes_per_s
        return self._copy_progress(order)

    def _copy_progress(self, order: Sync) -> Synced:
        for sync in self._native.syncs():
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
        name = "fence" if is_failover else "hold"
        try:
            outcome = await self._order(name, order.topic, order.partition, order.change)
        except OrderError as error:
            raise RequestRefused(Code.INTERNAL, str(error), retry_after_ms=100) from error
        stopped_us = 0
        if not is_failover:
            self._counter_snapshot.renew(time.monotonic())
            counters = self._counters(order) or {}
            stopped_us = int(outcome.get("stopped_us", counters.get("last_acknowledged_us", 0)))
        return Ended(end=_end(outcome), cut=bool(outcome.get("cut")), stopped_us=stopped_us)

    async def _prove(self, order: Prove, records: int) -> ReassignmentAnswer:
        def proof(order: Prove) -> ReassignmentAnswer | None:
            counters = self._counters(order)
            # Rows that are not on disk yet would be lost if this node were killed right after the commit.
            if counters is None or not counters["durable"] or counters["records"] < records:
                return None
            return Ended(end=_end(counters))

        return _only(order, await self._poll([order], proof))

    async def _open(self, order: LookOpen) -> ReassignmentAnswer:
        return _only(order, await self._opened([order]))

    async def _opened(self, orders: Sequence[LookOpen]) -> dict[ReassignmentOrder, ReassignmentAnswer]:
        def opening(order: LookOpen) -> ReassignmentAnswer | None:
            counters = self._counters(order)
            if counters is None or not counters["open"] or counters["owner_epoch"] != order.epoch:
                return None
            return OrderDone(first_us=int(counters.get("first_acknowledged_us", 0)))

        await self._executor.until_executed(self._proposer.applied.index)
        return await self._poll(orders, opening)

    async def _poll(
        self, orders: Sequence[OrderT], answer_of: Callable[[OrderT], ReassignmentAnswer | None]
    ) -> dict[ReassignmentOrder, ReassignmentAnswer]:
        """Poll until `answer_of` has all answers, or until OPEN_GATHER_S after the first one, or WAIT_S."""
        end, pause_s = time.monotonic() + WAIT_S, POLL_S
        answers: dict[ReassignmentOrder, ReassignmentAnswer] = {}
        # A snapshot taken just before the order arrived is new enough: a message takes as long.
        self._counter_snapshot.renew(time.monotonic() - self._counter_snapshot.pause_s)
        while True:
            for order in orders:
                answer = None if order in answers else answer_of(order)
                if answer is not None:
                    end = end if answers else min(end, time.monotonic() + OPEN_GATHER_S)
                    answers[order] = answer
            if len(answers) == len(orders) or time.monotonic() >= end:
                return answers
            polled_s = time.monotonic()
            await asyncio.sleep(max(pause_s, self._counter_snapshot.pause_s))
            self._counter_snapshot.renew(polled_s)
            pause_s = min(2 * pause_s, POLL_S_MAX)

    async def _order(self, name: str, *arguments: Any) -> dict[str, Any]:
        """Give the native node an order by its method's name. OrderError."""
        # A hold ends only after other nodes have answered.
        holds_slot = name != "hold"
        return await self._native_node.order(
            lambda: int(getattr(self._native, name)(*arguments)), holds_slot=holds_slot
        )

    def _counters(self, order: ReassignmentOrder) -> dict[str, Any] | None:
        return self._counter_snapshot.get((order.topic, order.partition))

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

    def __init__(self, native: Any) -> None:
        self._native = native
        self._taken_s = -math.inf
        self._counters: dict[tuple[int, int], dict[str, Any]] = {}
        # Shortest pause between two calls, in seconds: a few times the duration of a call.
        self.pause_s = 0.0

    def renew(self, not_before_s: float) -> None:
        """Read the counters, unless the snapshot is newer than `not_before_s` (monotonic clock)."""
        if self._taken_s > not_before_s:
            return
        self._taken_s = time.monotonic()
        self._counters = {(part["topic"], part["partition"]): part for part in self._native.partitions()}
        self.pause_s = POLL_PAUSE_FACTOR * (time.monotonic() - self._taken_s)

    def get(self, key: tuple[int, int]) -> dict[str, Any] | None:
        return self._counters.get(key)


def _only(
    order: ReassignmentOrder, answers: dict[ReassignmentOrder, ReassignmentAnswer]
) -> ReassignmentAnswer:
    if order not in answers:
        message = f"{type(order).__name__} for partition {order.partition}: not yet"
        raise RequestRefused(Code.HELD, message, retry_after_ms=20)
    return answers[order]


def _end(counters: dict[str, Any]) -> LogEnd:
    epoch = counters.get("epoch", counters.get("owner_epoch", 0))
    return LogEnd(Epoch(epoch), counters["records"], counters["end_offset"], counters["chain"])

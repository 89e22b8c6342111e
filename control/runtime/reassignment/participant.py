"""What this node does for changes that a leader coordinates: orders come as questions, answers go back.

A node looks into its own log before it obeys (`change_orders.standing`), and again behind what it cannot take
back: an ABORT may have been applied meanwhile, and its Discard have run before there was anything to discard.
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
    Answer,
    Ended,
    Failed,
    Fence,
    LookOpen,
    Order,
    Prove,
    Ready,
    Receive,
    Standing,
    Sync,
    Synced,
    SyncState,
    standing,
)
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.changes")
LATER_S: Final = 1.0
"""How long an order waits for this node's log to reach it, or for the log's end: then it is asked again."""
GATHER_S: Final = 0.1
LINGER_S: Final = 0.02
"""How long answers that are there wait for others of the same question: for orders that write to the disk,
and for looks at what opens by itself."""
KNOWN_MAX: Final = 64
"""Changes kept beyond those under way: looking for ones that are over is worth it only now and then."""
LOOK_FIRST_S: Final = 0.0005
LOOK_SHARE: Final = 4
LOOK_S: Final = 0.003
"""How often it looks at the native node, which tells nobody that a log has grown or a partition opened:
after half a millisecond, then after twice as long, up to this. A few of these are the gap of a move."""

Asked = TypeVar("Asked", bound=Order)


class Participant:
    """Obeys. One for a node, once its data plane serves."""

    def __init__(
        self, proposer: RaftProposer, executor: OrderExecutor, driver: NativeNode, here: Replica
    ) -> None:
        self._proposer, self._executor, self._native_node, self._here = proposer, executor, driver, here
        self._native: Any = driver.node
        self._term = 0
        self._receiving: set[tuple[int, int]] = set()
        self._syncing: dict[tuple[int, NodeId], int] = {}
        """Rates by change and target: a change may be copied from here to several."""
        self._figures_of = _Figures(self._native)

    async def execute(self, term: int, order: Order) -> Answer:
        """Do what a leader of `term` asks.

        Raises:
            RequestRefused: not now, or not any more; asking again later may be answered otherwise.
        """
        self._hear(term)
        await self._stands(order)
        self._forget()
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

    async def execute_many(self, term: int, orders: Sequence[Order]) -> tuple[Answer | None, ...]:
        """As `obey`, each; None for one that is refused, or has no answer soon after the first that has.

        Raises:
            RequestRefused: the term is older than one that this node has seen.
        """
        self._hear(term)
        looks = [order for order in orders if isinstance(order, LookOpen) and order.to == self._here]
        others = [order for order in orders if not isinstance(order, LookOpen)]
        tasks = [asyncio.create_task(self._obeyed(term, order)) for order in others]
        if looks:
            tasks.append(asyncio.create_task(self._opened(looks)))
        try:
            _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED) if tasks else ((), ())
            if left:
                await asyncio.wait(left, timeout=GATHER_S)
        finally:
            for task in tasks:
                task.cancel()
        answers: dict[Order, Answer] = {}
        for task in tasks:
            if task.done() and not task.cancelled():
                answers |= task.result()
        return tuple(answers.get(order) for order in orders)

    async def _obeyed(self, term: int, order: Order) -> dict[Order, Answer]:
        try:
            return {order: await self.execute(term, order)}
        except RequestRefused as refusal:
            _LOG.debug("not obeyed", order=repr(order), why=refusal.message)
            return {}

    def _hear(self, term: int) -> None:
        if term < self._term:
            message = f"an order of term {term}, this node has seen term {self._term}"
            raise RequestRefused(Code.TOO_OLD, message)
        self._term = term

    def _forget(self) -> None:
        """What is known of changes that are over: orders of those are refused."""
        changes = self._proposer.state.changes
        if len(self._receiving) + len(self._syncing) > 2 * len(changes) + KNOWN_MAX:
            under_way = {change.change for change in changes.values()}
            self._receiving = {one for one in self._receiving if one[0] in under_way}
            self._syncing = {key: rate for key, rate in self._syncing.items() if key[0] in under_way}

    async def _stands(self, order: Order) -> None:
        end = time.monotonic() + LATER_S
        while True:
            found = standing(self._proposer.state, self._proposer.applied.index, order, self._here)
            if found is Standing.OBEY:
                return
            if found is Standing.NEVER or time.monotonic() >= end:
                message = (
                    f"{type(order).__name__} for change {order.change} of partition {order.partition}: "
                    f"{'over, or not for this store' if found is Standing.NEVER else 'not in this log yet'}"
                )
                raise RequestRefused(Code.TOO_OLD, message, retry_after_ms=50)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end - time.monotonic()):
                    await self._proposer.reached(self._proposer.applied.index + 1)

    async def _receive(self, order: Receive) -> Answer:
        number = (order.change, order.attempt)
        if number not in self._receiving:
            slots = self._slots(order)
            topic = self._proposer.state.topics[order.topic]
            try:
                await self._order(
                    "receive_start",
                    order.topic,
                    order.partition,
                    *slots,
                    *number,
                    topic.assignments[order.partition].epoch,
                    order.owner.node,
                    topic.forced_epoch(order.partition),
                )
            except OrderError as error:
                return Failed(why=str(error))
            self._receiving.add(number)
            if self._is_over(order):
                await self._order("discard", *number)
                self._receiving.discard(number)
        return Ready()

    async def _sync(self, order: Sync) -> Answer:
        key = order.change, order.target.node
        if key not in self._syncing:
            known = self._proposer.state.nodes[order.target.node]
            try:
                await self._order("set_peer", known.node, list(known.addresses))
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
        return self._how_far(order)

    def _how_far(self, order: Sync) -> Synced:
        for known in self._native.syncs():
            if (known["change"], known["node"]) == (order.change, order.target.node):
                state = {"contiguous": SyncState.CONTIGUOUS, "failed": SyncState.FAILED}.get(
                    known["state"], SyncState.COPYING
                )
                return Synced(
                    state=state,
                    rows=known["rows"],
                    bytes=known["bytes"],
                    gap=known["gap"],
                    why=str(known["why"] or ""),
                )
        return Synced(state=SyncState.COPYING)

    async def _fence(self, order: Fence) -> Answer:
        # Of a planned change the owner's end must be durable on its quorum; of a failover each tells its own.
        is_failover = awaits_owner(self._proposer.state, order.partition)
        name = "fence" if is_failover else "hold"
        try:
            told = await self._order(name, order.topic, order.partition, order.change)
        except OrderError as error:
            raise RequestRefused(Code.INTERNAL, str(error), retry_after_ms=100) from error
        stopped_us = 0
        if not is_failover:
            self._figures_of.renew(time.monotonic())
            known = self._figures(order) or {}
            stopped_us = int(told.get("stopped_us", known.get("last_acknowledged_us", 0)))
        return Ended(end=_end(told), cut=bool(told.get("cut")), stopped_us=stopped_us)

    async def _prove(self, order: Prove, records: int) -> Answer:
        def reached(order: Prove) -> Answer | None:
            known = self._figures(order)
            # What is appended and not on disk yet is gone if this node is killed right behind the commit.
            if known is None or not known["durable"] or known["records"] < records:
                return None
            return Ended(end=_end(known))

        return _only(order, await self._found([order], reached))

    async def _open(self, order: LookOpen) -> Answer:
        return _only(order, await self._opened([order]))

    async def _opened(self, orders: Sequence[LookOpen]) -> dict[Order, Answer]:
        def opened(order: LookOpen) -> Answer | None:
            known = self._figures(order)
            if known is None or not known["open"] or known["owner_epoch"] != order.epoch:
                return None
            return Ready(first_us=int(known.get("first_acknowledged_us", 0)))

        await self._executor.until_executed(self._proposer.applied.index)
        return await self._found(orders, opened)

    async def _found(
        self, orders: Sequence[Asked], look: Callable[[Asked], Answer | None]
    ) -> dict[Order, Answer]:
        """The answers that `look` finds until all are there, or LINGER_S after the first, or LATER_S."""
        end, pause_s = time.monotonic() + LATER_S, LOOK_FIRST_S
        found: dict[Order, Answer] = {}
        # A look that was taken just before the order came says the same: a message takes as long.
        self._figures_of.renew(time.monotonic() - self._figures_of.pause_s)
        while True:
            for order in orders:
                answer = None if order in found else look(order)
                if answer is not None:
                    end = end if found else min(end, time.monotonic() + LINGER_S)
                    found[order] = answer
            if len(found) == len(orders) or time.monotonic() >= end:
                return found
            looked_s = time.monotonic()
            await asyncio.sleep(max(pause_s, self._figures_of.pause_s))
            self._figures_of.renew(looked_s)
            pause_s = min(2 * pause_s, LOOK_S)

    async def _order(self, name: str, *arguments: Any) -> dict[str, Any]:
        """An order to the native node by its name. OrderError."""
        # A hold ends with the help of other nodes.
        slot = name != "hold"
        return await self._native_node.order(
            lambda: int(getattr(self._native, name)(*arguments)), holds_slot=slot
        )

    def _figures(self, order: Order) -> dict[str, Any] | None:
        return self._figures_of.get((order.topic, order.partition))

    def _is_over(self, order: Order) -> bool:
        now = standing(self._proposer.state, self._proposer.applied.index, order, self._here)
        change = self._proposer.state.changes.get(order.partition)
        adopts = change is not None and change.change == order.change and change.is_committed
        return now is Standing.NEVER and not adopts

    def _slots(self, order: Order) -> tuple[int, int]:
        part = self._proposer.state.topics[order.topic].layout.find(order.partition)
        assert part is not None, "the change's partition is in its topic's layout"
        return part.slots.lo, part.slots.hi


class _Figures:
    """Partitions of the native node as they were at one moment: those who wait look together.

    A look asks for all partitions. With a thousand of them and a hundred orders that wait, a look for each
    order would take the loop.
    """

    def __init__(self, native: Any) -> None:
        self._native = native
        self._taken_s = -math.inf
        self._known: dict[tuple[int, int], dict[str, Any]] = {}
        self.pause_s = 0.0
        """A few times what a look takes: the least time between two."""

    def renew(self, not_before_s: float) -> None:
        """Look again, unless somebody has looked since `not_before_s`."""
        if self._taken_s > not_before_s:
            return
        self._taken_s = time.monotonic()
        self._known = {(one["topic"], one["partition"]): one for one in self._native.partitions()}
        self.pause_s = LOOK_SHARE * (time.monotonic() - self._taken_s)

    def get(self, place: tuple[int, int]) -> dict[str, Any] | None:
        return self._known.get(place)


def _only(order: Order, found: dict[Order, Answer]) -> Answer:
    if order not in found:
        message = f"{type(order).__name__} for partition {order.partition}: not yet"
        raise RequestRefused(Code.HELD, message, retry_after_ms=20)
    return found[order]


def _end(told: dict[str, Any]) -> LogEnd:
    epoch = told.get("epoch", told.get("owner_epoch", 0))
    return LogEnd(Epoch(epoch), told["records"], told["end_offset"], told["chain"])

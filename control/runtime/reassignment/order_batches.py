"""Send the leader's orders for one node in one request: a wide failover has hundreds for each node.

Orders of one turn of the loop go together. While a node has BATCH_ORDERS_MIN pending orders, the next ones
wait BATCH_DELAY_S for others. Below that none waits, because a few ms are the gap of a move. Fewer orders
than that, and all orders in a cluster below BATCH_LEVEL, are sent in requests of their own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from ringfence.control.model.ids import NodeId
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.messages import ORDERS_MAX
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.native.wire import Code

# The level of the cluster from which its nodes accept requests with several orders.
BATCH_LEVEL: Final = 1
# From this number on, orders of one turn are batched. Planned reassignments have a few at a time.
BATCH_ORDERS_MIN: Final = 8
BATCH_DELAY_S: Final = 0.01

# (term, order): the answer of the order's node, or RequestRefused.
AskOne = Callable[[int, ReassignmentOrder], Awaitable[ReassignmentAnswer]]
# Like `AskOne`, for several orders to one node; None for an order without an answer yet.
AskMany = Callable[[int, tuple[ReassignmentOrder, ...]], Awaitable[Sequence[ReassignmentAnswer | None]]]


class _PendingOrder(NamedTuple):
    term: int
    order: ReassignmentOrder
    answer: asyncio.Future[ReassignmentAnswer]


class OrderBatches:
    """All methods run on the loop's thread. The coordinator's current orders bound the queues."""

    def __init__(self, *, level: Callable[[], int], one: AskOne, many: AskMany) -> None:
        self._level, self._one, self._many = level, one, many
        self._waiting: defaultdict[NodeId, list[_PendingOrder]] = defaultdict(list)
        self._pending_counts: defaultdict[NodeId, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        """Send `order` to its node, and return the answer. RequestRefused."""
        loop = asyncio.get_running_loop()
        node = order.to.node
        answer: asyncio.Future[ReassignmentAnswer] = loop.create_future()
        if not self._waiting[node]:
            if self._pending_counts[node] >= BATCH_ORDERS_MIN:
                loop.call_later(BATCH_DELAY_S, self._flush, node)
            else:
                loop.call_soon(self._flush, node)
        self._waiting[node].append(_PendingOrder(term, order, answer))
        return await answer

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _flush(self, node: NodeId) -> None:
        waiting = [pending for pending in self._waiting.pop(node, ()) if not pending.answer.done()]
        for _, same_term in itertools.groupby(waiting, key=lambda pending: pending.term):
            orders = tuple(same_term)
            for first in range(0, len(orders), ORDERS_MAX):
                batch = orders[first : first + ORDERS_MAX]
                if len(batch) >= BATCH_ORDERS_MIN and self._level() >= BATCH_LEVEL:
                    self._begin(node, batch)
                else:
                    for pending in batch:
                        self._begin(node, (pending,))

    def _begin(self, node: NodeId, batch: tuple[_PendingOrder, ...]) -> None:
        self._pending_counts[node] += len(batch)
        task = asyncio.get_running_loop().create_task(self._ask(node, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, node: NodeId, batch: tuple[_PendingOrder, ...]) -> None:
        term, order, _ = batch[0]
        answers: Sequence[ReassignmentAnswer | None] = ()
        code, why = Code.HELD, f"node {node} has no answer to the order yet"
        try:
            if len(batch) == 1:
                answers = (await self._one(term, order),)
            else:
                answers = await self._many(term, tuple(pending.order for pending in batch))
        except RequestRefused as error:
            code, why = error.code, error.message
        finally:
            self._pending_counts[node] -= len(batch)
            for pending, answer in itertools.zip_longest(batch, answers[: len(batch)]):
                if pending.answer.done():
                    continue  # the coordinator has withdrawn the order
                if answer is None:
                    pending.answer.set_exception(RequestRefused(code, why, retry_after_ms=20))
                else:
                    pending.answer.set_result(answer)

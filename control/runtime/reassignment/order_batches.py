"""Orders of the leader to nodes, many in one question: a wide failover has hundreds for each node.

Orders that are asked in one turn of the loop go together. While MANY of a node are under way, the next ones
wait HOLD_S for others; below that none waits, for a few ms are the gap of a move. A few orders, and all of a
cluster below BATCH_LEVEL, go alone.
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
from ringfence.control.state_machines.reassignment.messages import Answer, Order
from ringfence.native.wire import Code

BATCH_LEVEL: Final = 1
"""The cluster's level from which on its nodes know questions with several orders."""
MANY: Final = 8
"""So many orders of one turn are worth one question. Planned changes have a few at a time."""
HOLD_S: Final = 0.01

AskOne = Callable[[int, Order], Awaitable[Answer]]
"""(term, order): the node that it is for answers, or RequestRefused."""
AskMany = Callable[[int, tuple[Order, ...]], Awaitable[Sequence[Answer | None]]]
"""As `AskOne` for orders to one node; None where it has no answer yet."""


class _Asked(NamedTuple):
    term: int
    order: Order
    answer: asyncio.Future[Answer]


class OrderBatches:
    """Everything on the loop's thread. What waits is bounded by the orders that the coordinator wants."""

    def __init__(self, *, level: Callable[[], int], one: AskOne, many: AskMany) -> None:
        self._level, self._one, self._many = level, one, many
        self._waiting: defaultdict[NodeId, list[_Asked]] = defaultdict(list)
        self._under_way: defaultdict[NodeId, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, term: int, order: Order) -> Answer:
        """The answer to one order. RequestRefused."""
        loop = asyncio.get_running_loop()
        node = order.to.node
        answer: asyncio.Future[Answer] = loop.create_future()
        if not self._waiting[node]:
            if self._under_way[node] >= MANY:
                loop.call_later(HOLD_S, self._flush, node)
            else:
                loop.call_soon(self._flush, node)
        self._waiting[node].append(_Asked(term, order, answer))
        return await answer

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _flush(self, node: NodeId) -> None:
        waiting = [asked for asked in self._waiting.pop(node, ()) if not asked.answer.done()]
        for _, same_term in itertools.groupby(waiting, key=lambda asked: asked.term):
            orders = tuple(same_term)
            for at in range(0, len(orders), ORDERS_MAX):
                part = orders[at : at + ORDERS_MAX]
                if len(part) >= MANY and self._level() >= BATCH_LEVEL:
                    self._begin(node, part)
                else:
                    for asked in part:
                        self._begin(node, (asked,))

    def _begin(self, node: NodeId, part: tuple[_Asked, ...]) -> None:
        self._under_way[node] += len(part)
        task = asyncio.get_running_loop().create_task(self._ask(node, part))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, node: NodeId, part: tuple[_Asked, ...]) -> None:
        term, order, _ = part[0]
        answers: Sequence[Answer | None] = ()
        code, why = Code.HELD, f"node {node}: not yet"
        try:
            if len(part) == 1:
                answers = (await self._one(term, order),)
            else:
                answers = await self._many(term, tuple(asked.order for asked in part))
        except RequestRefused as error:
            code, why = error.code, error.message
        finally:
            self._under_way[node] -= len(part)
            for asked, answer in itertools.zip_longest(part, answers[: len(part)]):
                if asked.answer.done():
                    continue  # nobody wants it any more
                if answer is None:
                    asked.answer.set_exception(RequestRefused(code, why, retry_after_ms=20))
                else:
                    asked.answer.set_result(answer)

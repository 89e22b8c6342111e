"""Which orders go to a node in one question, and what becomes of each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignment_commands import FailOver
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.reassignment import order_batches
from ringfence.control.runtime.reassignment.order_batches import BATCH_ORDERS_MIN, OrderBatches
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.messages import ORDERS_MAX
from ringfence.control.state_machines.reassignment.messages import (
    Ended,
    Fence,
    LookOpen,
    OrderDone,
    ReassignmentAnswer,
    ReassignmentOrder,
)
from ringfence.native.wire import Code
from tests.fakes.reassignment_cluster import ReassignmentCluster


def order(number: int, node: int = 2) -> Fence:
    place = Replica(node=NodeId(node), store=bytes(16))
    return Fence(to=place, topic=TopicId(9), partition=PartitionId(number), change=ChangeId(12))


class Node:
    """Answers what it is told to, when `open` is set."""

    def __init__(self, level: int = 1) -> None:
        self.questions: list[tuple[ReassignmentOrder, ...]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.came = asyncio.Semaphore(0)
        self.reply: Callable[[ReassignmentOrder], ReassignmentAnswer | None] = lambda _: OrderDone()
        self.batches = OrderBatches(level=lambda: level, one=self.one, many=self.many)

    async def one(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        (answer,) = await self.many(term, (order,))
        assert answer is not None
        return answer

    async def many(
        self, term: int, orders: tuple[ReassignmentOrder, ...]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        assert term == 3
        self.questions.append(orders)
        self.came.release()
        await self.open.wait()
        return tuple(map(self.reply, orders))

    async def all(self, numbers: range) -> list[ReassignmentAnswer | BaseException]:
        asked = (self.batches.ask(3, order(number)) for number in numbers)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def asked(self, number: int) -> None:
        """Until the question of that number has come, from 1 on."""
        while len(self.questions) < number:
            await self.came.acquire()

    @property
    def sizes(self) -> list[int]:
        return [len(orders) for orders in self.questions]


def played(work: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(run())


def test_orders_of_one_turn_go_together_if_they_are_many() -> None:
    async def work() -> None:
        node = Node()
        assert await node.all(range(BATCH_ORDERS_MIN - 1)) == [OrderDone()] * (BATCH_ORDERS_MIN - 1)
        assert node.sizes == [1] * (BATCH_ORDERS_MIN - 1), "a few go alone"
        node.questions.clear()
        assert await node.all(range(ORDERS_MAX + BATCH_ORDERS_MIN)) == [OrderDone()] * (
            ORDERS_MAX + BATCH_ORDERS_MIN
        )
        assert node.sizes == [ORDERS_MAX, BATCH_ORDERS_MIN]
        old = Node(level=0)
        await old.all(range(2 * BATCH_ORDERS_MIN))
        assert old.sizes == [1] * 2 * BATCH_ORDERS_MIN, "programs of level 0 do not know such questions"

    played(work())


def test_each_order_has_its_own_answer() -> None:
    async def work() -> None:
        node = Node()
        node.reply = lambda asked: None if asked.partition % 3 == 0 else OrderDone(first_us=asked.partition)
        for number, answer in enumerate(await node.all(range(3 * BATCH_ORDERS_MIN))):
            if number % 3:
                assert answer == OrderDone(first_us=number)
            else:
                assert isinstance(answer, RequestRefused), "it is asked again"

    played(work())


def test_a_question_that_is_refused_or_too_short_refuses_each() -> None:
    async def work() -> None:
        node = Node()

        def refuse(_: ReassignmentOrder) -> ReassignmentAnswer:
            raise RequestRefused(Code.TOO_OLD, "an older term")

        node.reply = refuse
        for answer in await node.all(range(BATCH_ORDERS_MIN)):
            assert isinstance(answer, RequestRefused)
            assert (answer.code, answer.message) == (Code.TOO_OLD, "an older term")

        async def short(_: int, __: tuple[ReassignmentOrder, ...]) -> tuple[ReassignmentAnswer, ...]:
            return (OrderDone(),)

        node.batches = OrderBatches(level=lambda: 1, one=node.one, many=short)
        first, *others = await node.all(range(BATCH_ORDERS_MIN))
        assert first == OrderDone()
        assert all(isinstance(answer, RequestRefused) for answer in others)

    played(work())


def test_while_many_are_under_way_the_next_ones_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        order_batches, "BATCH_DELAY_S", 1.0
    )  # above what a busy machine takes for a few turns

    async def work() -> None:
        node = Node()
        node.open.clear()
        waiting = [asyncio.create_task(node.all(range(BATCH_ORDERS_MIN)))]
        await node.asked(1)
        for number in range(BATCH_ORDERS_MIN, 2 * BATCH_ORDERS_MIN):  # one in a turn
            waiting.append(asyncio.create_task(node.all(range(number, number + 1))))
            await asyncio.sleep(0)
        await node.asked(2)
        assert node.sizes == [BATCH_ORDERS_MIN, BATCH_ORDERS_MIN]
        node.open.set()
        await asyncio.gather(*waiting)

    played(work())


def test_who_asks_no_more_is_left_out() -> None:
    async def work() -> None:
        node = Node()
        tasks = [
            asyncio.create_task(node.batches.ask(3, order(number))) for number in range(BATCH_ORDERS_MIN + 1)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert [asked.partition for orders in node.questions for asked in orders] == [
            *range(1, BATCH_ORDERS_MIN + 1)
        ]

    played(work())


def test_a_node_answers_each_order_of_a_question_by_its_own_log() -> None:
    """One that is over and one for another store have no answer; an older term is refused as a whole."""

    async def work() -> None:
        async with ReassignmentCluster(3, replication=3, partitions=3, level=1) as small:
            small.leader.coordinator.step = lambda *_: ((), ())  # type: ignore[assignment, method-assign]
            await small.log.propose(
                FailNode(node=NodeId(1), changed=small.log.state.nodes[NodeId(1)].changed)
            )
            changed = small.log.state.nodes[NodeId(1)].changed
            begun = await small.log.propose(FailOver(node=NodeId(1), changed=changed))
            here = Replica(node=NodeId(2), store=small.log.state.nodes[NodeId(2)].store)
            which: dict[str, Any] = {"topic": small.topic, "change": ChangeId(begun.index)}
            fences = [Fence(to=here, partition=number, **which) for number in small.partitions]
            over = msgspec.structs.replace(fences[0], change=ChangeId(1))
            strange = msgspec.structs.replace(fences[1], to=Replica(node=NodeId(2), store=bytes(16)))
            closed = LookOpen(to=here, partition=small.partitions[2], epoch=Epoch(1), **which)
            small.log.replica.term = 5
            with pytest.raises(RequestRefused, match="terms up to 5"):
                await small.obeys[2].execute_many(6, fences)
            first, *told = await small.obeys[2].execute_many(5, (over, *fences, strange, closed))
            assert first is None
            assert all(isinstance(answer, Ended) for answer in told[:3])
            assert told[3:] == [None, None]
            with pytest.raises(RequestRefused, match="term 4"):
                await small.obeys[2].execute_many(4, fences)

    played(work())


def test_a_question_has_no_more_orders_than_its_limit() -> None:
    body = messages.encode(messages.ExecuteOrders(term=1, orders=tuple(map(order, range(ORDERS_MAX + 1)))))
    with pytest.raises(msgspec.ValidationError):
        messages.decode_call(body)
    fits = messages.ExecuteOrders(term=1, orders=tuple(map(order, range(ORDERS_MAX))))
    assert messages.decode_call(messages.encode(fits)) == fits

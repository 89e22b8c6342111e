"""Commits of one scope at one node: none overtakes another; who waits for a publish ends with who asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.scopes import CommitScope, ConfirmPublished
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import EXECUTION_TIMEOUT_S
from ringfence.control.runtime.rpc.dispatch import RequestDispatch, Route
from ringfence.control.runtime.transactions import commit_queue, publish_watch, staged_row_counts
from ringfence.control.runtime.transactions.commit_queue import CommitQueue
from ringfence.control.runtime.transactions.requests import TransactionRequests
from ringfence.control.runtime.transactions.unpublished import UnpublishedEpochs
from ringfence.native import wire
from ringfence.native.cluster_messages import AlreadyCommitted, ScopeCommit, ScopeCommitted
from ringfence.native.messages import Refused, decode, encode
from ringfence.native.wire import Code
from tests.fakes.committing_node import TOKEN, TOPIC, CommittingNode
from tests.fakes.virtual_time import run_in_virtual_time


class Node(CommittingNode):
    """Owners answer an epoch when `told` has it. What is decided is published at once, unless `is_stuck`."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        super().__init__()
        here: Any = SimpleNamespace(node=self.here)
        driver: Any = SimpleNamespace()
        proposer: Any = self
        self.requests = TransactionRequests(
            proposer, driver, here, self.checks, UnpublishedEpochs(Health(), self.here), lambda _: None
        )
        self.is_stuck, self.decided = is_stuck, list[int]()
        self.told: dict[int, asyncio.Event] = {}
        self.questions = 0

    async def propose(self, command: Command) -> SimpleNamespace:
        await asyncio.sleep(0)  # a majority takes longer
        result = self.do(command)
        assert isinstance(command, CommitScope)
        self.decided.append(command.epoch)
        if not self.is_stuck:
            parts = tuple((part.topic, part.partition) for part in command.parts)
            self.do(ConfirmPublished(scope=command.scope, epoch=command.epoch, parts=parts))
        self.requests.apply(self.state)
        return SimpleNamespace(result=result)

    async def ask(self, node: NodeId, call: messages.CountStaged, timeout_s: float) -> messages.Reply:
        assert (node, timeout_s) == (7, EXECUTION_TIMEOUT_S)
        self.questions += 1
        if call.epoch in self.told:
            await self.told[call.epoch].wait()
        if self.answers:
            raise RequestRefused(Code.INTERNAL, str(self.answers.pop()))
        return messages.StagedCounts(counts=(self.counted(5),))

    def request(self, epoch: int) -> ScopeCommit:
        return ScopeCommit(
            scope_id=self.begun.scope,
            driver=self.begun.driver,
            epoch=epoch,
            tokens=[TOKEN],
            parts=[(TOPIC, self.partition, 5)],
        )

    def sent(self, epoch: int) -> asyncio.Task[Any]:
        return asyncio.create_task(self.requests.commit(self.request(epoch)))


def test_a_commit_whose_owners_are_slow_is_not_overtaken_by_the_next_epochs() -> None:
    async def run() -> None:
        node = Node()
        node.told[7] = asyncio.Event()
        sent = [node.sent(7), node.sent(8), node.sent(8), node.sent(9)]
        await asyncio.sleep(0.05)
        assert node.decided == [], "8 and 9 wait for their turn"
        node.told[7].set()
        assert [type(await one) for one in sent] == [
            ScopeCommitted,
            ScopeCommitted,
            AlreadyCommitted,
            ScopeCommitted,
        ]
        assert node.decided == [7, 8, 8, 9]
        assert await node.sent(6) == AlreadyCommitted(own=False, given_up=True), "7 was decided"
        # What is decided waits for no turn, and is told whoever waits for an owner.
        node.told[10] = asyncio.Event()
        later = node.sent(10)
        await asyncio.sleep(0)
        assert await asyncio.wait_for(node.sent(8), 5) == AlreadyCommitted(own=True)
        other = replace(node.request(8), tokens=[b"o" * 16])
        assert await asyncio.wait_for(node.requests.commit(other), 5) == AlreadyCommitted(own=False)
        node.told[10].set()
        await later
        assert len(node.requests._commit_queue) == 0

    run_in_virtual_time(run())


def test_what_came_behind_a_commit_that_failed_is_refused_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_row_counts, "CHECK_S", 0.0)

    async def run() -> None:
        node = Node()
        node.told[7] = asyncio.Event()
        node.answers = ["nobody answers"]
        sent = [node.sent(epoch) for epoch in (7, 8, 7, 9)]
        await asyncio.sleep(0)
        node.told[7].set()
        first, second, again, third = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(first, RequestRefused)
        assert "nobody answers" in first.message
        assert isinstance(again, ScopeCommitted), "a repeat of the one that failed"
        for refusal in (second, third):
            assert isinstance(refusal, RequestRefused)
            assert refusal.code == Code.DEADLINE
            assert (
                "nothing was committed: the commit of epoch 7, which came before, failed" in refusal.message
            )
            assert refusal.retry_after_ms > first.retry_after_ms, "the first one first"
        assert node.decided == [7]
        assert isinstance(await node.sent(8), ScopeCommitted)
        assert len(node.requests._commit_queue) == 0

    run_in_virtual_time(run())


def test_a_line_is_bounded_and_another_drivers_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "WAITING_MAX", 3)

    async def run() -> None:
        order, go, command = CommitQueue(), asyncio.Event(), CommittingNode().commit()

        async def one(epoch: int, driver: int) -> None:
            async with order.turn(replace(command, epoch=epoch, driver=Index(driver))):
                await go.wait()

        waiting = [asyncio.create_task(one(epoch, 5)) for epoch in (1, 2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(RequestRefused, match="are queued") as caught:
            await one(4, 5)
        assert caught.value.code == Code.OVERLOADED
        other = asyncio.create_task(one(1, 6))
        await asyncio.sleep(0)
        assert len(order) == 2
        waiting[1].cancel()  # one that is given up while it waits: later ones may not jump over it
        go.set()
        ended = await asyncio.gather(*waiting, other, return_exceptions=True)
        assert [type(one) for one in ended] == [
            type(None),
            asyncio.CancelledError,
            RequestRefused,
            type(None),
        ]
        assert len(order) == 0

    run_in_virtual_time(run())


class Answers:
    """What a client hears."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    def answer(self, connection: int, header: bytes, body: bytes) -> None:
        assert (connection, len(header)) == (3, wire.HEADER_BYTES)
        self.heard.put_nowait(body)


def test_repeats_of_a_commit_that_cannot_be_published_share_one_watcher_and_leave_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish_watch, "CHECK_S", 0.02)

    async def run() -> None:
        node, client = Node(is_stuck=True), Answers()
        native: Any = client
        routes: dict[int, Route] = {wire.Opcode.COMMIT: Route(ScopeCommit, node.requests.commit)}
        requests = RequestDispatch(native, routes, generation=lambda: 1, request_ms=200)
        body = encode(node.request(1))
        header = wire.REQUEST_STRUCT.pack(
            *wire.RequestHeader(opcode=wire.Opcode.COMMIT, body_bytes=len(body))
        )
        for _ in range(20):
            requests.serve(3, header, body)
        await asyncio.sleep(0.1)
        assert len(node.requests._watches) == 1
        for _ in range(20):
            refused = decode(Refused, await asyncio.wait_for(client.heard.get(), 5))
            assert "is decided, and not published in all of its partitions yet" in refused.message
        assert len(node.requests._watches) == 0
        asked = node.questions
        assert asked <= 1 + 5, "one count of it, and the looks of one watcher: after 20, 40, 80, 160 ms"
        await asyncio.sleep(0.4)
        assert node.questions == asked, "nobody waits, nobody asks"
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(run())

"""BEGINs of one scope at one node: which waits for which, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from ringfence.control.model.ids import Index
from ringfence.control.model.scopes import BeginScope
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S
from ringfence.control.runtime.transactions.begin_queue import BeginQueue
from ringfence.native.wire import Code
from tests.fakes.virtual_time import run_in_virtual_time


def command(name: str = "s", instance: bytes = b"", after: int | None = 0) -> BeginScope:
    return BeginScope(name=name, instance=instance, after=None if after is None else Index(after))


class Crowd:
    """`turns`: whose turn came; each holds it until `decide` names the scope's driver."""

    def __init__(self) -> None:
        self.driver = 0
        self.order = BeginQueue(lambda one: one.after != self.driver)
        self.turns: list[BeginScope] = []
        self.decided = asyncio.Event()

    async def begin(self, one: BeginScope) -> None:
        async with self.order.turn(one):
            self.turns.append(one)
            if one.after == self.driver:
                await self.decided.wait()

    def decide(self, driver: int) -> None:
        self.driver = driver
        self.decided.set()


def test_rivals_wait_for_the_first_and_are_let_through_when_they_are_outdated() -> None:
    async def run() -> None:
        crowd = Crowd()
        rivals = [asyncio.create_task(crowd.begin(command())) for _ in range(20)]
        others = [asyncio.create_task(crowd.begin(one)) for one in (command("other"), command(after=None))]
        await asyncio.sleep(0.02)
        assert crowd.turns == [command(), command("other"), command(after=None)]
        crowd.decide(5)
        await asyncio.gather(*rivals, *others)
        assert len(crowd.turns) == 22
        assert len(crowd.order) == 0

    run_in_virtual_time(run())


def test_processes_of_one_job_begin_side_by_side_and_a_rival_waits_for_them() -> None:
    async def run() -> None:
        crowd = Crowd()
        job = [asyncio.create_task(crowd.begin(command(instance=b"job"))) for _ in range(3)]
        rival = asyncio.create_task(crowd.begin(command(instance=b"rival")))
        await asyncio.sleep(0.02)
        assert [one.instance for one in crowd.turns] == [b"job"] * 3
        crowd.decide(5)
        await asyncio.gather(*job, rival)
        assert len(crowd.order) == 0

    run_in_virtual_time(run())


def test_who_waits_longer_than_its_client_hears_that_nothing_was_begun() -> None:
    async def run() -> None:
        crowd = Crowd()
        first = asyncio.create_task(crowd.begin(command()))
        await asyncio.sleep(0)
        ANSWER_DUE_S.set(asyncio.get_running_loop().time() + 0.05)
        with pytest.raises(RequestRefused, match="nothing was begun") as caught:
            await crowd.begin(command())
        assert caught.value.code == Code.DEADLINE
        assert len(crowd.turns) == 1
        first.cancel()
        await asyncio.wait({first})
        assert len(crowd.order) == 0, "who is cancelled lets the next one come"

    run_in_virtual_time(run())

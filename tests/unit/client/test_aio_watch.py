"""Watches for asyncio: the same events, and no thread that waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import ringfence
import ringfence.aio
from ringfence import EventKind
from tests.fakes.client_topic import SCHEMA, until
from tests.fakes.push_node import PushNode


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[PushNode, ringfence.aio.Client]]:
    with PushNode() as node:
        async with ringfence.aio.connect(node.address, timeout_s=10) as client:
            await client.create_topic("t", schema=SCHEMA, key=("id",), partitions=1)
            node.topic_of("t").version = 1
            yield node, client


def run(test: Callable[[PushNode, ringfence.aio.Client], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with cluster() as (node, client):
            await asyncio.wait_for(test(node, client), 60)

    asyncio.run(whole())


def test_layouts_come_as_an_asynchronous_iterator_until_the_topic_is_deleted() -> None:
    async def test(node: PushNode, client: ringfence.aio.Client) -> None:
        found = []
        async with client.watch("t") as watch:
            async for event in watch:
                found.append((event.kind, None if event.layout is None else event.layout.version))
                if len(found) == 1:
                    node.split("t")
                elif len(found) == 2:
                    assert watch.layout is not None
                    assert watch.layout.version == 2
                    node.delete("t")
        assert found == [(EventKind.LAYOUT, 1), (EventKind.LAYOUT, 2), (EventKind.DELETED, None)]

    run(test)


def test_a_catalogue_is_told_and_a_pause_ends_the_loop() -> None:
    async def test(node: PushNode, client: ringfence.aio.Client) -> None:
        node.make("u", "t")
        watch = client.watch(prefix="public/", timeout_s=0.3)
        assert [event.topic async for event in watch] == ["public/default/t", "public/default/u"]
        assert set(watch.topics) == {"public/default/t", "public/default/u"}
        await watch.close()
        assert await watch.next() is None

    run(test)


def test_waiting_tasks_need_no_threads_and_a_cancelled_step_loses_no_event() -> None:
    async def test(node: PushNode, client: ringfence.aio.Client) -> None:
        watches = [client.watch(prefix=f"public/default/n{number}") for number in range(20)]
        for watch in watches:
            assert await watch.next(0.01) is None
        threads = threading.active_count()
        steps = [asyncio.create_task(watch.next(30)) for watch in watches]
        await asyncio.sleep(0.1)
        assert threading.active_count() == threads
        steps[0].cancel()
        await asyncio.gather(steps[0], return_exceptions=True)
        for number in range(20):
            node.make(f"n{number}x", "t")
        events = await asyncio.gather(*steps[1:])
        assert {event.topic for event in events if event is not None} >= {"public/default/n5x"}
        event = await watches[0].next(10)
        assert event is not None
        assert event.topic == "public/default/n0x"

    run(test)


def test_a_watch_of_nothing_is_refused_and_a_closed_client_ends_it() -> None:
    async def test(node: PushNode, client: ringfence.aio.Client) -> None:
        del node
        with pytest.raises(ringfence.NotFoundError):
            await client.watch("nothing").next()
        watch = client.watch(prefix="")
        assert (await watch.next()) is not None
        step = asyncio.create_task(watch.next())
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(ringfence.ClosedError):
            await step

    run(test)


def test_a_watch_without_references_ends() -> None:
    async def test(node: PushNode, client: ringfence.aio.Client) -> None:
        watch = client.watch("t")
        await watch.next()
        await asyncio.to_thread(until, lambda: len(node.sessions) == 1)
        del watch
        import gc

        gc.collect()
        await asyncio.to_thread(until, lambda: not node.sessions)

    run(test)

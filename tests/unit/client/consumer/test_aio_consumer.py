"""The consumer for asyncio: the same member, awaited."""

from __future__ import annotations

import asyncio
import time

import pytest

import ringfence
from ringfence.consumer.aio_consumer import Consumer
from tests.fakes.client_topic import until
from tests.fakes.cohort_topic import MANY, all_settled, cohort_topic


async def ids(consumer: Consumer, count: int = MANY) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            batch = await consumer.next(1.0)
            found += [] if batch is None else batch.column("id").to_pylist()
    return found


def test_rows_are_given_and_acknowledged() -> None:
    with cohort_topic(2) as (node, _):

        async def run() -> None:
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c", member="m") as consumer,
            ):
                assert sorted(await ids(consumer)) == list(range(MANY))
                assert await consumer.next(0.3) is None
                assert (consumer.member, len(consumer.assignment())) == ("m", 2)
                await asyncio.to_thread(until, lambda: all_settled(node))

        asyncio.run(run())
        assert node.members == {}


def test_an_acknowledgement_can_be_awaited() -> None:
    with cohort_topic() as (node, _):

        async def run() -> None:
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c", ack="manual") as consumer,
            ):
                await ids(consumer, 20)
                place = consumer.place
                assert place is not None
                await consumer.ack_through(place, 5, wait=True)
                assert node.settled() == {place.partition: 15}
                node.evict(consumer.member)
                with pytest.raises(ringfence.FencedError, match="session of this member is over"):
                    await consumer.ack(place, wait=True)

        asyncio.run(run())


def test_a_cancelled_step_loses_no_batch() -> None:
    with cohort_topic() as (node, _):

        async def run() -> list[int]:
            found: list[int] = []
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c") as consumer,
            ):
                for attempt in range(2000):
                    step = asyncio.ensure_future(consumer.next(1.0))
                    await asyncio.sleep(0.0005 * (attempt % 4))
                    step.cancel()
                    try:
                        batch = await step
                    except asyncio.CancelledError:
                        continue
                    found += [] if batch is None else batch.column("id").to_pylist()
                    if len(found) == MANY:
                        break
                settled = sum(node.settled().values())
                assert settled < MANY
            return found

        assert asyncio.run(run()) == list(range(MANY))


def test_rows_of_a_cancelled_step_are_not_acknowledged_before_they_are_returned() -> None:
    with cohort_topic() as (node, _):

        async def run() -> None:
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c", ack="manual") as consumer,
            ):
                found = await ids(consumer, 10)
                await consumer.ack(wait=True)
                core = consumer.sync.core
                await asyncio.to_thread(
                    until, lambda: bool(core.member.state.arrived or core.member.state.bytes)
                )
                left = core.step(is_seen=False)
                assert left is not None
                consumer._ready.append(left)  # as a step leaves it that is cancelled behind its last await
                await consumer.ack(wait=True)
                assert sum(node.settled().values()) == len(found)
                found += await ids(consumer, 10)
                await consumer.ack(wait=True)
                assert sum(node.settled().values()) == len(found)
                assert len(set(found)) == len(found)

        asyncio.run(run())


def test_callbacks_may_be_coroutines() -> None:
    told: list[list[int]] = []

    async def on_assigned(partitions: list[int]) -> None:
        await asyncio.sleep(0)
        told.append(partitions)

    with cohort_topic(2) as (node, _):

        async def run() -> None:
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c", on_assigned=on_assigned) as consumer,
            ):
                await ids(consumer)

        asyncio.run(run())
        assert told == [sorted(node.topic_of("t").logs)]


def test_a_callback_may_take_longer_than_idle_s_and_is_called_again_after_a_cancel() -> None:
    begun: list[list[int]] = []
    ended: list[list[int]] = []

    async def on_assigned(partitions: list[int]) -> None:
        begun.append(partitions)
        await asyncio.sleep(0.5)
        ended.append(partitions)

    with cohort_topic() as (node, _):

        async def run() -> None:
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c", on_assigned=on_assigned) as consumer,
            ):
                step = asyncio.ensure_future(consumer.next())
                await asyncio.to_thread(until, lambda: bool(begun))
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                assert ended == []
                found: list[int] = []
                async with asyncio.timeout(10):
                    while len(found) < MANY:
                        batch = await consumer.next(0.2)
                        found += [] if batch is None else batch.column("id").to_pylist()

        asyncio.run(run())
        partitions = list(node.topic_of("t").logs)
        assert (begun, ended) == ([partitions] * 2, [partitions])


def test_a_store_whose_answer_is_cancelled_is_asked_again() -> None:
    asked: list[int] = []

    def positions(partition: int) -> None:
        asked.append(partition)
        time.sleep(0.3 if len(asked) == 1 else 0.0)

    with cohort_topic() as (node, _):

        async def run() -> None:
            async with (
                ringfence.aio.connect(node.address) as client,
                client.consumer("t", cohort="c", mode="checkpoint", positions=positions) as consumer,
            ):
                step = asyncio.ensure_future(consumer.next())
                await asyncio.to_thread(until, lambda: bool(asked))
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                async with asyncio.timeout(10):
                    await ids(consumer)

        asyncio.run(run())
        assert len(asked) == 2


def test_the_loop_ends_when_the_consumer_is_closed() -> None:
    with cohort_topic() as (node, _):

        async def run() -> int:
            client = ringfence.aio.connect(node.address)
            consumer = await client.consumer("t", cohort="c", idle_s=0.2)
            count = 0
            async for batch in consumer:
                count += 0 if batch is None else batch.num_rows
                if batch is None and count == MANY:
                    await consumer.close()
            await client.close()
            return count

        assert asyncio.run(run()) == MANY

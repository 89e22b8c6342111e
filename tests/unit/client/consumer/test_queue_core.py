"""The steps of an application of a QUEUE, over sockets: cut batches, outcomes, the end of a loop."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import ringfence
from ringfence import aio
from ringfence.arrow.decode import Place
from ringfence.consumer.queue_calls import What
from ringfence.consumer.queue_core import parts_of
from tests.fakes.client_topic import until
from tests.fakes.queue_node import member, queue_topic


def test_batches_are_cut_into_the_ranges_on_lease() -> None:
    batch = pa.record_batch({"n": list(range(10))})
    batches = [(Place(1, 0, 10, 3, 0), batch), (Place(1, 10, 10, 4, 0), batch)]
    parts = parts_of(iter(batches), [(2, 4), (7, 12), (15, 16), (19, 20)])
    assert [(first, rows, epoch, part["n"].to_pylist()) for first, rows, epoch, part in parts] == [
        (2, 2, 3, [2, 3]),
        (7, 3, 3, [7, 8, 9]),
        (10, 2, 4, [0, 1]),
        (15, 1, 4, [5]),
        (19, 1, 4, [9]),
    ]


def test_rows_that_become_done_after_the_cut_are_left_out_and_the_others_come() -> None:
    with queue_topic(count=40) as (node, client), member(client, ack="manual") as consumer:
        got = [next(consumer.deliveries())]
        place = got[0].place
        for done in ((12, 15), (18, 23), (27, 28), (29, 30)):  # in the middle, and the beginning of a batch
            with consumer.core.lock:
                consumer.core.member.fetching.done(place.partition, place.fencing_token, done)  # type: ignore[attr-defined]
        deliveries = consumer.deliveries()
        while got[-1].place.end_offset < 40:
            got.append(next(deliveries))
        assert [(one.place.first_offset, one.place.end_offset) for one in got] == [
            (0, 10),
            (10, 12),
            (15, 18),
            (23, 27),
            (28, 29),
            (30, 40),
        ]
        ids = [one.batch.column("id").to_pylist() for one in got]
        assert ids == [[*range(one.place.first_offset, one.place.end_offset)] for one in got]
        consumer.ack(wait=True)
        assert node.queues[place.partition].done == {row for one in ids for row in one}


def test_asking_for_the_next_batch_acknowledges_and_leaving_the_loop_does_not() -> None:
    with queue_topic() as (node, client):
        with member(client) as consumer:
            got = [consumer.next(5.0) for _ in range(4)]
            assert [batch.column("id")[0].as_py() for batch in got if batch is not None] == [0, 10, 20, 30]
        queue = next(iter(node.queues.values()))
        assert queue.done == set(range(30))
        assert queue.leases == {}, "what it had is released"
        assert queue.failures == {}
        with member(client) as consumer:
            assert consumer.next(5.0).column("id")[0].as_py() == 30  # type: ignore[union-attr]


def test_rows_that_are_left_of_a_record_come_as_they_are() -> None:
    with queue_topic(count=10) as (node, client), member(client, ack="manual") as consumer:
        delivery = next(consumer.deliveries())
        delivery.ack([0, 1, 5])
        delivery.fail([7], reason="seven")
        delivery.release()
        ids = []
        for delivery in consumer.deliveries():
            ids.append((delivery.batch.column("id").to_pylist(), delivery.count))
            delivery.ack()
            if sum(len(one) for one, _ in ids) == 7:
                break
        assert sorted(ids) == [([2, 3, 4], 0), ([6], 0), ([7], 1), ([8, 9], 0)]
        consumer.ack(wait=True)
        assert next(iter(node.queues.values())).done == set(range(10))


def test_an_exception_fails_the_batch_in_hand() -> None:
    def work(client: ringfence.Client) -> None:
        with member(client, ack="manual") as consumer:
            for delivery in consumer.deliveries():
                if delivery.place.first_offset == 10:
                    raise ValueError("no")

    with queue_topic() as (node, client):
        with pytest.raises(ValueError, match="no"):
            work(client)
        queue = next(iter(node.queues.values()))
        assert set(queue.failures) == set(range(10, 20))
        assert (queue.leases, queue.done) == ({}, set())


def test_of_a_list_that_an_application_fails_with_nothing_is_done() -> None:
    def work(client: ringfence.Client) -> None:
        with member(client) as consumer:
            assert len(next(consumer.chunks(rows=50, wait_s=10.0))) > 1
            raise ZeroDivisionError

    with queue_topic(count=100) as (node, client):
        with pytest.raises(ZeroDivisionError):
            work(client)
        assert node.ranges(What.DONE) == []


def test_an_interrupt_fails_nothing() -> None:
    def work(client: ringfence.Client) -> None:
        with member(client) as consumer:
            consumer.next(5.0)
            raise KeyboardInterrupt

    with queue_topic() as (node, client):
        with pytest.raises(KeyboardInterrupt):
            work(client)
        assert next(iter(node.queues.values())).failures == {}


def test_rows_that_another_member_has_done_are_an_error_for_who_waits() -> None:
    with queue_topic(count=10) as (node, client), member(client, ack="manual") as consumer:
        place = next(consumer.deliveries()).place
        until(lambda: node.ranges(What.BEGUN) == [(0, 10)], 10)
        with node._turn:
            queue = node.queues[place.partition]
            queue.end_session(next(iter(queue.leases.values())).session)
            queue.lease(77, 0.0, 10)
            for lease in queue.leases.values():
                lease.until = float("inf")
        with pytest.raises(ringfence.FencedError, match=r"rows 0 to 9 of partition .* their lease was over"):
            consumer.ack(place, wait=True)
        with pytest.raises(ringfence.FencedError):
            consumer.ack(place, wait=True)


def test_asyncio() -> None:
    async def work(address: str) -> list[int]:
        ids: list[int] = []
        async with (
            aio.connect(address, timeout_s=10) as client,
            await client.consumer("t", cohort="c", mode="queue") as consumer,
        ):
            async for delivery in consumer.deliveries():
                assert delivery is consumer.delivery
                ids += delivery.batch.column("id").to_pylist()
                if len(ids) == 100:
                    break
            await consumer.ack(wait=True)
        return ids

    with queue_topic() as (node, _):
        assert asyncio.run(work(node.address)) == list(range(100))
        assert next(iter(node.queues.values())).done == set(range(100))


def test_an_exception_fails_the_batch_in_hand_with_asyncio() -> None:
    async def work(address: str) -> None:
        async with (
            aio.connect(address, timeout_s=10) as client,
            await client.consumer("t", cohort="c", mode="queue") as consumer,
        ):
            await consumer.next(5.0)
            raise ValueError("no")

    with queue_topic() as (node, _):
        with pytest.raises(ValueError, match="no"):
            asyncio.run(work(node.address))
        assert set(next(iter(node.queues.values())).failures) == set(range(10))


def test_what_is_of_partitions_is_refused() -> None:
    with queue_topic() as (_, client), member(client) as consumer:
        for call in (consumer.lag, lambda: consumer.pause([1]), lambda: consumer.fencing_token(1)):
            with pytest.raises(ringfence.InvalidArgumentError, match="no partitions of their own"):
                call()
        assert consumer.assignment() == []
        assert consumer.next(5.0) is not None
        assert consumer.assignment() != []
        assert consumer.core.is_member

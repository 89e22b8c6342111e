"""Named producers: the predecessor is fenced, its place comes back, what is stored is skipped."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import ringfence
import ringfence.aio
from ringfence.native.wire import Code, ExtensionKind, Opcode
from tests.fakes.client_topic import ids_of, node_with_topic, rows
from tests.fakes.socket_node import Refuse


def test_the_successor_fences_the_predecessor_and_resumes_where_it_was() -> None:
    with node_with_topic() as (node, client):
        first = client.producer("t", name="loader")
        for number in range(5):
            first.send(rows(number * 10, 10), note=b"file %d" % number)
        first.flush(10)
        second = client.producer("t", name="loader")
        assert set(second.resume) == set(node.topic_of("t").logs)
        assert {point.send for point in second.resume.values()} == {5}
        with pytest.raises(ringfence.FencedError, match='producer name "loader"') as caught:
            first.send(rows(100, 10)).result(10)
        assert caught.value.producer == "loader"
        assert caught.value.code == Code.FENCED_PRODUCER
        with pytest.raises(ringfence.FencedError):
            first.close()
        second.send(rows(50, 10)).result(10)
        assert {header.send for header in node.stored("t")} == {1, 2, 3, 4, 5, 6}
        second.close()
        assert sorted(ids_of(client)) == list(range(60))


def test_a_send_that_is_repeated_under_its_number_is_stored_once() -> None:
    with node_with_topic() as (_, client):
        with client.producer("t", name="loader") as first:
            first.send(rows(0, 20), number=1).result(10)
        with client.producer("t", name="loader") as second:
            assert second.send(rows(0, 20), number=1).result(10) == ()
            assert sum(part.rows for part in second.send(rows(20, 20), number=2).result(10)) == 20
            with pytest.raises(ringfence.InvalidArgumentError, match="must be above the last one"):
                second.send(rows(40, 20), number=2)
        assert sorted(ids_of(client)) == list(range(40))


def test_a_forgotten_name_is_told_and_opened_only_by_a_caller_that_accepts_a_fresh_start() -> None:
    with node_with_topic() as (node, client):
        client.producer("t", name="loader").close()
        node.forgotten_names = {"loader"}
        with pytest.raises(ringfence.ResumeUnknownError) as caught:
            client.producer("t", name="loader")
        assert (caught.value.topic, caught.value.producer) == ("t", "loader")
        assert caught.value.partitions == sorted(node.topic_of("t").logs)
        assert not caught.value.retriable
        with client.producer("t", name="loader", accept_fresh_start=True) as loader:
            assert loader.send(rows(0, 5), number=1).result(10)
        with pytest.raises(ringfence.InvalidArgumentError, match="name"):
            client.producer("t", accept_fresh_start=True)


def test_asyncio_tells_of_a_forgotten_name_and_takes_the_argument_too() -> None:
    async def work(address: str) -> None:
        async with ringfence.aio.connect(address) as client:
            with pytest.raises(ringfence.ResumeUnknownError):
                await client.producer("t", name="loader")
            async with client.producer("t", name="loader", accept_fresh_start=True) as loader:
                await loader.send(rows(0, 5), number=1)

    with node_with_topic() as (node, client):
        node.forgotten_names = {"loader"}
        asyncio.run(work(node.address))
        assert sorted(ids_of(client)) == list(range(5))


def test_a_partly_stored_send_is_completed() -> None:
    with node_with_topic(partitions=2) as (node, client):
        with client.producer("t", name="loader") as first:
            first.send(rows(0, 20), number=1).result(10)
        lost = node.topic_of("t").logs[
            max(node.topic_of("t").logs)
        ]  # as if the process had died before this one's body
        lost.records.clear()
        lost.stored.clear()
        lost.producers.clear()
        lost.end = 0
        with client.producer("t", name="loader") as second:
            (part,) = second.send(rows(0, 20), number=1).result(10)
            assert part.partition == lost.partition
        assert sorted(ids_of(client)) == list(range(20))


def test_a_note_travels_in_front_of_the_rows() -> None:
    with node_with_topic(partitions=1) as (node, client), client.producer("t", name="loader") as producer:
        producer.send(rows(0, 3), note=b"file 7, row 9").result(10)
        (header,) = node.sent(Opcode.PUBLISH)
        assert header.extension_bytes == 64
        (record,) = node.topic_of("t").logs[header.partition].records
        assert record[192:213] == bytes([ExtensionKind.NOTE, 0, 0, 0, 13, 0, 0, 0]) + b"file 7, row 9"
        assert ids_of(client) == [0, 1, 2]
        with pytest.raises(ringfence.InvalidArgumentError, match="note"):
            producer.send(rows(3), note=bytes(4097))


def test_after_a_send_that_was_not_stored_nothing_later_is_so_that_the_resume_point_stays_true() -> None:
    """Else the successor would skip the hole as stored: its number is below the greatest one."""
    with node_with_topic(partitions=1) as (node, client):
        closed = threading.Event()
        node.hook = lambda header: (
            Refuse(Code.DISK_FULL) if header.opcode == Opcode.PUBLISH and closed.is_set() else None
        )
        first = client.producer("t", name="loader", timeout_s=2.0)
        first.send(rows(0, 10), number=1).result(10)
        closed.set()
        lost = first.send(rows(10, 10), number=2)
        time.sleep(0.6)
        behind = first.send(rows(20, 10), number=3)
        assert isinstance(lost.exception(10), ringfence.DeadlineError)
        closed.clear()
        with pytest.raises(ringfence.ClosedError, match="resume point"):
            behind.result(10)
        with pytest.raises(ringfence.ClosedError, match="resume point"):
            first.send(rows(30, 10), number=4).result(10)
        with pytest.raises(ringfence.RingfenceError):
            first.close()
        with client.producer("t", name="loader") as second:
            assert [point.send for point in second.resume.values()] == [1]
            for number, start in ((1, 0), (2, 10), (3, 20), (4, 30)):
                second.send(rows(start, 10), number=number)
        assert ids_of(client) == list(range(40))

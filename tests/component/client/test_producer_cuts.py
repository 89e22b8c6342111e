"""A producer over splits and merges, against a node that answers as sealed partitions do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import ringfence
import ringfence.aio
from ringfence.arrow.decode import read_body
from ringfence.native import wire
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import SCHEMA, impatient, rows
from tests.fakes.cut_node import CutNode
from tests.fakes.socket_node import Drop, Hook

KEYS = 16


@contextmanager
def topic(
    *, partitions: int = 1, key: tuple[str, ...] = ("text",), hook: Hook | None = None
) -> Iterator[tuple[CutNode, ringfence.Client]]:
    with CutNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=key, partitions=partitions)
        node.topic_of("t").version = 1
        node.hook = hook
        yield node, client
        node.hook = None


def keyed(start: int, count: int) -> pa.RecordBatch:
    """Ids that ascend, each with one of KEYS keys."""
    ids = list(range(start, start + count))
    texts = [f"key {one % KEYS}" for one in ids]
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts)], schema=SCHEMA)


def stored_rows(node: CutNode) -> list[tuple[int, str]]:
    """(id, key) of every row, ancestors first."""
    found: list[tuple[int, str]] = []
    for partition in node.lineage_ids("t"):
        for record in node.topic_of("t").logs[partition].records:
            header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(record))
            start = wire.RECORD_HEADER_BYTES + header.extension_bytes
            message = record[start : wire.RECORD_HEADER_BYTES + header.body_bytes]
            batch = read_body(pa.py_buffer(SCHEMA.serialize()), SCHEMA, message, is_stream=False)
            found += zip(batch.column("id").to_pylist(), batch.column("text").to_pylist(), strict=True)
    return found


def check_rows(node: CutNode, count: int) -> None:
    """Every row once, and those of a key in the order of the sends."""
    stored = stored_rows(node)
    assert sorted(one for one, _ in stored) == list(range(count))
    for key in range(KEYS):
        ids = [one for one, text in stored if text == f"key {key}"]
        assert ids == sorted(ids), f"key {key}: {ids}"


def test_a_split_under_load_loses_and_doubles_nothing_and_keeps_the_order_of_keys() -> None:
    with topic() as (node, client), client.producer("t") as producer:
        futures = []
        for number in range(300):
            futures.append(producer.send(keyed(number * 8, 8)))
            if number in {50, 120, 200}:
                node.split("t", first=number % 2 if number > 50 else 0)
        producer.flush(20)
        assert all(future.exception(5) is None for future in futures)
        check_rows(node, 2400)
        assert len(node.active("t")) == 4


def test_a_merge_of_busy_partitions_keeps_the_order_of_keys() -> None:
    with topic(partitions=4) as (node, client), client.producer("t") as producer:
        for number in range(300):
            producer.send(keyed(number * 8, 8))
            if number in {40, 90, 150}:
                node.merge("t")
            if number == 200:
                node.split("t", parts=3)
        producer.flush(20)
        check_rows(node, 2400)


@pytest.mark.parametrize("name", [None, "n"])
def test_a_second_seal_during_the_resend_of_a_merge_keeps_the_order_of_keys(name: str | None) -> None:
    """The merged partition is sealed before it has taken a batch, and so are those that are made of it."""
    sealed: list[int] = []

    def hook(header: wire.RequestHeader) -> None:
        active = {log.partition for log in node.active("t") if node.cut(log.partition).created > 1}
        if header.opcode == Opcode.PUBLISH and header.partition in active and len(sealed) < 6:
            sealed.append(header.partition)
            node.merge("t") if len(active) > 1 else node.split("t")

    with topic(partitions=2) as (node, client), client.producer("t", name=name) as producer:
        for number in range(25):
            producer.send(keyed(number * 8, 8))
        sources = node.hold("t", 2)
        for number in range(25, 50):
            producer.send(keyed(number * 8, 8))
        node.hook = hook
        node.commit("t", sources)
        for number in range(50, 75):
            producer.send(keyed(number * 8, 8))
        producer.flush(20)
        assert len(sealed) == 6
        check_rows(node, 600)


def test_a_split_at_once_after_a_merge_keeps_the_order_of_keys() -> None:
    with topic(partitions=2) as (node, client), client.producer("t") as producer:
        for number in range(120):
            producer.send(keyed(number * 8, 8))
            if number % 6 == 5:
                node.merge("t")
                node.split("t")
        producer.flush(20)
        assert node.topic_of("t").version == 41
        check_rows(node, 960)


def test_batches_that_are_held_wait_for_the_commit_and_go_to_the_children() -> None:
    with topic() as (node, client), client.producer("t") as producer:
        producer.send(keyed(0, 8)).result(5)
        sources = node.hold("t")
        futures = [producer.send(keyed(8 + number * 8, 8)) for number in range(5)]
        time.sleep(0.05)
        assert not any(future.done() for future in futures)
        node.commit("t", sources, 30_000)
        producer.flush(10)
        check_rows(node, 48)
        assert node.topic_of("t").logs[sources[0].partition].end == 8


@pytest.mark.parametrize("lose", ["answers", "requests"])
def test_lost_tries_at_the_cut_are_asked_for_at_the_sealed_partition(lose: str) -> None:
    lost: list[int] = []

    def hook(header: wire.RequestHeader) -> Drop | None:
        if header.opcode == Opcode.PUBLISH and len(lost) < 7 and header.sequence % 3 == 1:
            lost.append(header.sequence)
            return Drop(served=lose == "answers")
        return None

    with topic(hook=hook) as (node, client), client.producer("t") as producer:
        impatient(producer)
        for number in range(40):
            producer.send(keyed(number * 8, 8))
        while len(lost) < 3:
            time.sleep(0.001)
        node.split("t")
        producer.flush(20)
        check_rows(node, 320)


def test_one_fetch_serves_all_partitions_and_names_the_version_that_is_needed() -> None:
    """10,000 sends in flight, one split: no storm of requests."""
    with topic(partitions=16) as (node, client), client.producer("t") as producer:
        for number in range(500):
            producer.send(keyed(number * 8, 8))
        before = len(node.sent(Opcode.TABLE))
        node.commit("t", node.hold("t", 16), *range(2048, 65536, 2048))
        producer.flush(20)
        check_rows(node, 4000)
        assert len(node.sent(Opcode.TABLE)) - before <= 2
        assert max(node.needed) == 2
        assert len(node.sent(Opcode.PRODUCER_OPEN)) == 1


def test_lingering_sends_find_their_own_rows_in_the_children() -> None:
    with topic() as (node, client), client.producer("t", linger_ms=20) as producer:
        sources = node.hold("t")
        futures = [producer.send(keyed(number * 4, 4)) for number in range(50)]
        time.sleep(0.1)
        node.commit("t", sources, 20_000, 40_000)
        producer.flush(10)
        check_rows(node, 200)
        for future in futures:
            assert sum(part.rows for part in future.result(5)) == 4
        offsets = {
            log.partition: sorted(
                (part.first_offset, part.rows)
                for future in futures
                for part in future.result(0)
                if part.partition == log.partition
            )
            for log in node.active("t")
        }
        for log in node.active("t"):
            at = 0
            for first, count in offsets[log.partition]:
                assert first == at
                at += count
            assert at == log.end


def test_a_send_of_a_named_producer_is_one_batch_of_the_merged_partition() -> None:
    with topic(partitions=2) as (node, client), client.producer("t", name="n") as producer:
        producer.send(keyed(0, 16), note=b"first").result(5)
        sources = node.hold("t", 2)
        producer.send(keyed(16, 16), note=b"second")
        producer.send(keyed(32, 16), note=b"third")
        time.sleep(0.05)
        (child,) = node.commit("t", sources)
        producer.flush(10)
        assert [(header.send, header.rows) for header in child.stored] == [(2, 16), (3, 16)]
        assert all(header.extension_bytes for header in child.stored)
        check_rows(node, 48)


def test_a_topic_without_a_key_sends_what_a_sealed_partition_did_not_take_to_one_child() -> None:
    with topic(key=()) as (node, client), client.producer("t") as producer:
        producer.send(rows(0, 4)).result(5)
        sources = node.hold("t")
        futures = [producer.send(rows(4 + number * 4, 4)) for number in range(6)]
        time.sleep(0.05)
        children = node.commit("t", sources, 30_000)
        producer.flush(10)
        taken = [child for child in children if child.stored]
        assert len(taken) == 1
        assert [header.rows for header in taken[0].stored] == [4] * 6
        assert all(future.result(0)[0].partition == taken[0].partition for future in futures)


def test_a_partition_that_was_pruned_while_the_client_slept_gives_no_error() -> None:
    with topic() as (node, client), client.producer("t") as producer:
        producer.send(keyed(0, 8)).result(5)
        (source,) = node.hold("t")
        node.commit("t", [source], 30_000)
        del node.topic_of("t").logs[source.partition]
        future = producer.send(keyed(8, 8))
        assert sum(part.rows for part in future.result(10)) == 8


def test_what_nobody_can_tell_any_more_is_unknown_and_the_rest_is_sent() -> None:
    dropped = threading.Event()

    def hook(header: wire.RequestHeader) -> Drop | None:
        if header.opcode == Opcode.PUBLISH and header.sequence == 1 and not dropped.is_set():
            dropped.set()
            return Drop(served=False)
        return None

    with topic(hook=hook) as (node, client), client.producer("t") as producer:
        impatient(producer)
        producer.send(keyed(0, 8)).result(5)
        (source,) = node.hold("t")
        lost = producer.send(keyed(8, 8))
        dropped.wait(5)
        later = producer.send(keyed(16, 8))
        node.commit("t", [source], 30_000)
        node.cut(source.partition).is_given_back = True
        with pytest.raises(ringfence.UnknownOutcomeError, match="no node knows"):
            lost.result(10)
        assert sum(part.rows for part in later.result(10)) == 8
        assert producer.failures[0].error is lost.exception(0)
        producer._outcomes._shown = 1


def test_the_budget_is_empty_again_after_a_layout_change() -> None:
    with topic(partitions=2) as (node, client), client.producer("t") as producer:
        for number in range(30):
            producer.send(keyed(number * 8, 8))
        node.merge("t")
        node.split("t", parts=3)
        producer.flush(10)
        assert producer.bytes_in_flight == 0
        check_rows(node, 240)


def test_a_deadline_goes_on_over_the_cut() -> None:
    with topic() as (node, client), client.producer("t", timeout_s=0.4) as producer:
        node.hold("t")
        began = time.monotonic()
        with pytest.raises(ringfence.DeadlineError):
            producer.send(keyed(0, 8)).result(5)
        assert time.monotonic() - began < 2
        producer._outcomes._shown = 1


def test_ten_thousand_sends_in_flight_close_soon_and_say_little(caplog: pytest.LogCaptureFixture) -> None:
    """A storm of opens, tables and log lines would begin here."""
    with topic(partitions=2) as (node, client):
        producer = client.producer("t")
        sources = node.hold("t", 2)
        for number in range(10_000):
            producer.send(rows(number))
        node.commit("t", sources, *range(4096, 65536, 4096))
        time.sleep(0.05)
        began = time.monotonic()
        with pytest.raises(ringfence.RingfenceError):
            producer.close(timeout_s=0.1)
        assert time.monotonic() - began < 3
        assert len(node.sent(Opcode.PRODUCER_OPEN)) == 1
        assert len(node.sent(Opcode.TABLE)) <= 4
        assert len(caplog.records) <= 2
        told = {future.send: future.error for future in producer.failures}
        stored = {one for one, _ in stored_rows(node)}
        refused = {
            send - 1 for send, error in told.items() if not isinstance(error, ringfence.UnknownOutcomeError)
        }
        assert not refused & stored, "L5: refused and stored"


def test_combined_sends_of_a_name_find_their_rows_after_a_merge() -> None:
    """Two parts of one body become one batch again, with the rows of each send together."""
    with topic(partitions=2) as (node, client), client.producer("t", name="n", linger_ms=20) as producer:
        sources = node.hold("t", 2)
        futures = [producer.send(keyed(number * 4, 4), note=b"%d" % number) for number in range(40)]
        time.sleep(0.1)
        (child,) = node.commit("t", sources)
        producer.flush(10)
        check_rows(node, 160)
        places = [future.result(5) for future in futures]
        assert all(len(one) == 1 for one in places), "one batch of each send"
        assert [one[0].first_offset for one in places] == list(range(0, 160, 4))
        assert {one[0].partition for one in places} == {child.partition}


def test_the_rows_of_two_parents_that_are_too_large_together_are_told() -> None:
    with CutNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        node.message_bytes_max = 20_000
        client.create_topic("t", schema=SCHEMA, key=["text"], partitions=2)
        node.topic_of("t").version = 1
        producer = client.producer("t", name="n")
        producer.send(keyed(0, 16)).result(5)
        sources = node.hold("t", 2)
        large = producer.send(keyed(16, 1_200))
        later = producer.send(keyed(1_216, 16))
        time.sleep(0.05)
        node.commit("t", sources)
        with pytest.raises(ringfence.BatchError, match="together they are above the limit"):
            large.result(10)
        with pytest.raises(ringfence.ClosedError, match="earlier send"):
            later.result(10)
        assert {one for one, _ in stored_rows(node)} == set(range(16)), "nothing is stored after the hole"
        with pytest.raises(ringfence.RingfenceError):
            producer.close()


def test_tasks_of_asyncio_see_a_split_as_latency() -> None:
    async def work(address: str, node: CutNode) -> None:
        async with ringfence.aio.connect(address) as client, client.producer("t") as producer:
            sends = [await producer.submit(keyed(number * 8, 8)) for number in range(20)]
            node.split("t")
            sends += [await producer.submit(keyed(number * 8, 8)) for number in range(20, 40)]
            places = await asyncio.gather(*sends)
            assert sum(part.rows for one in places for part in one) == 320

    with topic() as (node, _):
        asyncio.run(work(node.address, node))
        check_rows(node, 320)

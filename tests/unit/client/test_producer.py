"""The producer over a real socket, against a node that fails on demand."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ringfence
from ringfence.native import wire
from ringfence.native.wire import Code, Opcode, RedirectReason
from tests.fakes.client_topic import SCHEMA, ids_of, impatient, node_with_topic, rows, send_all, until
from tests.fakes.socket_node import Drop, FakeNode, Fault, Redirect, Refuse


def test_a_send_tells_where_each_partition_has_its_rows() -> None:
    with node_with_topic() as (node, client), client.producer("t") as producer:
        appended = producer.send(rows(0, 100)).result(10)
        assert [part.partition for part in appended] == sorted(node.topic_of("t").logs)
        assert sum(part.rows for part in appended) == 100
        again = producer.send(rows(100, 100)).result(10)
        assert {part.partition: part.first_offset for part in again} == {
            part.partition: part.rows for part in appended
        }
        assert sorted(ids_of(client)) == list(range(200))


def test_rows_go_to_the_partition_of_their_slot_in_their_order() -> None:
    with node_with_topic() as (node, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 500))
        for log in node.topic_of("t").logs.values():
            ids = [
                one
                for batch in client.read("t", partition=log.partition)
                for one in batch.column("id").to_pylist()
            ]
            slots = ringfence.slots(pa.record_batch({"id": pa.array(ids, pa.int64())}), key=["id"])
            assert ids == sorted(ids)
            assert all(log.lo <= slot <= log.hi for slot in slots)


def test_sequences_count_per_partition_and_sends_ascend() -> None:
    with node_with_topic() as (node, client):
        with client.producer("t") as producer:
            for start in range(0, 2000, 100):
                producer.send(rows(start, 100))
        for log in node.topic_of("t").logs.values():
            assert [header.sequence for header in log.stored] == list(range(len(log.stored)))
            sends = [header.send for header in log.stored]
            assert sends == sorted(set(sends))


@pytest.mark.parametrize(
    "make",
    [
        lambda batch: batch,
        lambda batch: pa.Table.from_batches([batch.slice(0, 10), batch.slice(10)]),
        pl.from_arrow,
        lambda batch: pa.Table.from_batches([batch]).to_pandas(),
        lambda batch: duckdb.from_arrow(pa.Table.from_batches([batch])),
        lambda batch: pa.RecordBatchReader.from_batches(SCHEMA, [batch]),
    ],
    ids=["batch", "table", "polars", "pandas", "duckdb", "reader"],
)
def test_whatever_speaks_arrow_can_be_sent(make) -> None:  # type: ignore[no-untyped-def]
    with node_with_topic() as (_, client), client.producer("t") as producer:
        assert sum(part.rows for part in producer.send(make(rows(0, 50))).result(10)) == 50
        assert sorted(ids_of(client)) == list(range(50))


def test_what_does_not_speak_arrow_is_refused_with_its_type() -> None:
    with node_with_topic() as (_, client), client.producer("t") as producer:
        with pytest.raises(ringfence.InvalidArgumentError, match="a list has neither"):
            producer.send([1, 2, 3])
        with pytest.raises(ringfence.BatchError):
            producer.send(pd.DataFrame({"other": [1]}))
        with pytest.raises(ringfence.BatchError):
            producer.send(pa.record_batch({"id": pa.array(["a"]), "text": ["b"]}))


def test_no_rows_end_at_once_with_nothing() -> None:
    with node_with_topic() as (node, client), client.producer("t") as producer:
        assert producer.send(rows(0, 0)).result(1) == ()
        assert node.stored("t") == []


def test_a_topic_without_key_takes_whole_batches_in_turn() -> None:
    with node_with_topic(key=()) as (node, client):
        with client.producer("t") as producer:
            sent = [producer.send(rows(start * 10, 10)).result(10) for start in range(8)]
        assert all(len(parts) == 1 for parts in sent)
        assert Counter(parts[0].partition for parts in sent) == dict.fromkeys(node.topic_of("t").logs, 2)


def test_without_key_a_loaded_partition_gets_fewer_batches_once_the_load_is_known() -> None:
    """F34."""
    with node_with_topic(key=(), partitions=2) as (node, client), client.producer("t") as producer:
        busy, idle = node.topic_of("t").logs
        node.loads = {busy: 900, idle: 100}  # the generation stays: loads are told under the same one
        client._io_thread.call(client._tables._refresh_all)
        until(lambda: producer._encoder.layout.loads == node.loads)
        sent = Counter(producer.send(rows(number)).result(10)[0].partition for number in range(60))
        assert sent[idle] > 3 * sent[busy] > 0


# ---- exactly once
# -----------------------------------------------------------------------------------------------


def chaos(seed: int):  # type: ignore[no-untyped-def]
    dice = random.Random(seed)
    faults: list[Fault] = [
        Drop(served=False),
        Drop(served=True),
        Refuse(Code.OVERLOADED),
        Refuse(Code.HELD, 1),
        Redirect(RedirectReason.STALE_EPOCH),
        Redirect(RedirectReason.CLOSED),
        Refuse(Code.UNKNOWN_OUTCOME),
    ]

    def hook(header: wire.RequestHeader) -> Fault:
        return dice.choice(faults) if header.opcode == Opcode.PUBLISH and dice.random() < 0.08 else None

    return hook


@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_stored_once_whatever_is_lost_refused_or_redirected(seed: int) -> None:
    with node_with_topic(hook=chaos(seed)) as (node, client):
        producer = client.producer("t")
        impatient(producer)
        futures = [producer.send(rows(start, 10)) for start in range(0, 600, 10)]
        producer.flush(60)
        assert all(sum(part.rows for part in future.result(0)) == 10 for future in futures)
        producer.close()
        node.hook = None
        assert sorted(ids_of(client)) == list(range(600))
        for log in node.topic_of("t").logs.values():
            assert [header.sequence for header in log.stored] == list(range(len(log.stored)))


def test_a_retry_keeps_identity_epoch_and_sequence() -> None:
    dropped: list[wire.RequestHeader] = []

    def hook(header: wire.RequestHeader) -> Fault:
        if header.opcode == Opcode.PUBLISH and not dropped:
            dropped.append(header)
            return Drop(served=True)
        return None

    with node_with_topic(partitions=1, hook=hook) as (node, client):
        producer = client.producer("t")
        impatient(producer)
        (appended,) = producer.send(rows(0, 5)).result(10)
        first, *again = node.sent(Opcode.PUBLISH)  # more than once again where this machine takes its time
        same = ("producer_id", "producer_epoch", "sequence", "send", "body_crc", "partition", "rows")
        assert again
        for one in again:
            assert [getattr(first, name) for name in same] == [getattr(one, name) for name in same]
        assert (appended.first_offset, appended.rows, len(node.stored("t"))) == (0, 5, 1)
        producer.close()


def test_a_changed_epoch_is_learnt_from_the_table_and_the_sequence_kept() -> None:
    with node_with_topic(partitions=1) as (node, client), client.producer("t") as producer:
        producer.send(rows(0)).result(10)
        (log,) = node.topic_of("t").logs.values()
        log.epoch, node.topic_of("t").version, node.generation = 7, 3, 20
        producer.send(rows(1)).result(10)
        assert [(header.sequence, header.owner_epoch, header.layout_version) for header in log.stored] == [
            (0, 1, 0),
            (1, 7, 3),
        ]
        until(lambda: any(header.sequence == 20 for header in node.sent(Opcode.TABLE_ACK)))


def test_a_table_that_is_held_already_is_acknowledged_again() -> None:
    """A node counts only what it has sent itself, so that it must hear of its own copy, too."""
    with node_with_topic(partitions=1) as (node, client):
        layout = client._tables.get("t", time.monotonic() + 10)
        until(lambda: len(node.sent(Opcode.TABLE_ACK)) == 1)
        client._tables.get_by_id(layout.topic, time.monotonic() + 10)
        until(lambda: len(node.sent(Opcode.TABLE_ACK)) == 2)
        assert {header.sequence for header in node.sent(Opcode.TABLE_ACK)} == {layout.generation}


def test_two_owners_that_redirect_to_each_other_end_in_a_typed_error() -> None:
    """F3."""
    with FakeNode(node=1) as one, FakeNode(node=2) as two:
        one.addresses, two.addresses = {2: [two.address]}, {1: [one.address]}
        with ringfence.connect(one.address, timeout_s=10) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
            two.topics = one.topics
            (partition,) = one.topic_of("t").logs

            def point_away(node: FakeNode, other: int):  # type: ignore[no-untyped-def]
                def hook(header: wire.RequestHeader) -> Fault:
                    if header.opcode == Opcode.PUBLISH:  # the tables of both then name the other one
                        one.generation += 1
                        two.generation = one.generation
                        one.owners[partition] = other
                        return Redirect(RedirectReason.NOT_OWNER)
                    return None

                return hook

            producer = client.producer("t", timeout_s=60)
            one.hook, two.hook = point_away(one, 2), point_away(two, 1)
            with pytest.raises(ringfence.RerouteError) as caught:
                producer.send(rows(0)).result(50)
            assert caught.value.reason is RedirectReason.NOT_OWNER
            tries = len(one.sent(Opcode.PUBLISH)) + len(two.sent(Opcode.PUBLISH))
            # Seventeen count; one that a table overtook on its way is sent anew at once and counts for none.
            assert 17 <= tries <= 34, tries
            assert two.sent(Opcode.PUBLISH), "the redirects were followed"
            with pytest.raises(ringfence.RerouteError):
                producer.close()


# ---- outcomes are never hidden
# ------------------------------------------------------------------------------------


def refuse_third(header: wire.RequestHeader) -> Fault:
    return Refuse(Code.BAD_BODY) if header.opcode == Opcode.PUBLISH and header.send == 3 else None


def test_a_send_above_the_nodes_own_limit_is_refused_whole_or_cut_to_it() -> None:
    small = pa.record_batch({"id": list(range(64)), "text": ["x" * 1_000] * 64}, schema=SCHEMA)
    giant = pa.record_batch({"id": [99], "text": ["y" * 40_000]}, schema=SCHEMA)
    with FakeNode(message_bytes_max=30_000) as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        with client.producer("t") as producer:
            with pytest.raises(ringfence.BatchError, match=r"row 64 .* is above the limit"):
                producer.send(pa.Table.from_batches([small, giant])).result()
            assert node.stored("t") == []
            assert sum(part.rows for part in producer.send(small).result()) == 64
        assert all(header.body_bytes <= 30_000 for header in node.stored("t"))
        assert len(node.stored("t")) > 2, "cut to what the node takes"


def test_a_refused_batch_fails_its_future_and_the_others_are_stored() -> None:
    with node_with_topic(partitions=1, hook=refuse_third) as (_, client):
        producer = client.producer("t")
        futures = [producer.send(rows(number)) for number in range(6)]
        with pytest.raises(ringfence.BatchError, match="planted") as caught:
            producer.flush(20)
        assert caught.value.topic == "public/default/t"
        assert [future.exception(0) is None for future in futures] == [True, True, False, True, True, True]
        assert [failure.send for failure in producer.failures] == [3]
        producer.flush(1)  # shown once
        producer.close()
        assert ids_of(client) == [0, 1, 3, 4, 5]


def test_the_context_manager_raises_what_flush_would() -> None:
    def work() -> None:
        with client.producer("t") as producer:
            send_all(producer, 6)

    with node_with_topic(partitions=1, hook=refuse_third) as (_, client), pytest.raises(ringfence.BatchError):
        work()


def test_an_error_of_the_body_goes_on_and_names_the_lost_sends() -> None:
    def work() -> None:
        with client.producer("t") as producer:
            send_all(producer, 6)
            raise KeyError("mine")

    with node_with_topic(partitions=1, hook=refuse_third) as (_, client):
        with pytest.raises(KeyError) as caught:
            work()
        assert "BatchError" in caught.value.__notes__[0]


def test_closing_the_client_closes_its_producers_and_shows_their_failures() -> None:
    with FakeNode() as node:
        client = ringfence.connect(node.address, timeout_s=10)
        client.create_topic("t", schema=SCHEMA, partitions=1)
        node.hook = refuse_third
        producer = client.producer("t")
        futures = [producer.send(rows(number)) for number in range(6)]
        with pytest.raises(ringfence.BatchError):
            client.close()
        assert all(future.done() for future in futures)
        with pytest.raises(ringfence.ClosedError):
            producer.send(rows(9))


def test_a_deadline_ends_a_send_as_unknown_when_a_try_may_be_stored() -> None:
    with node_with_topic(
        partitions=1, hook=lambda header: Drop(served=True) if header.opcode == Opcode.PUBLISH else None
    ) as (_, client):
        producer = client.producer("t", timeout_s=0.3)
        with pytest.raises(ringfence.UnknownOutcomeError):
            producer.send(rows(0)).result(20)
        with pytest.raises(ringfence.UnknownOutcomeError):
            producer.close()


def test_a_deadline_without_any_connection_says_that_nothing_was_stored() -> None:
    with FakeNode() as node:
        client = ringfence.connect(node.address, timeout_s=5)
        client.create_topic("t", schema=SCHEMA, partitions=1)
        producer = client.producer("t", timeout_s=0.5)
    future = producer.send(rows(0))  # the node is gone
    with pytest.raises(ringfence.DeadlineError):
        future.result(20)
    with pytest.raises(ringfence.DeadlineError):
        client.close()


def test_close_with_a_timeout_gives_every_send_an_outcome() -> None:
    arrived: list[int] = []

    def hook(header: wire.RequestHeader) -> Fault | None:
        if header.opcode != Opcode.PUBLISH:
            return None
        arrived.append(header.request_id)
        return Drop(served=False)

    with node_with_topic(partitions=1, hook=hook) as (_, client):
        producer = client.producer("t")
        futures = [producer.send(rows(number)) for number in range(100)]
        until(lambda: len(arrived) >= 64)
        with pytest.raises((ringfence.ClosedError, ringfence.UnknownOutcomeError)):
            producer.close(timeout_s=0.2)
        kinds = Counter(type(future.exception(1)) for future in futures)
        assert kinds == {ringfence.UnknownOutcomeError: 64, ringfence.ClosedError: 36}, (
            "the window may be stored, the rest is not"
        )


def test_a_wait_that_ends_is_no_outcome() -> None:
    with node_with_topic(
        partitions=1, hook=lambda header: Refuse(Code.HELD, 300) if header.opcode == Opcode.PUBLISH else None
    ) as (node, client):
        producer = client.producer("t")
        future = producer.send(rows(0))
        with pytest.raises(ringfence.WaitTimeoutError):
            future.result(0.05)
        with pytest.raises(ringfence.WaitTimeoutError):
            producer.flush(0.05)
        node.hook = None
        assert future.result(10)[0].rows == 1
        producer.close()


# ---- memory and credit
# ----------------------------------------------------------------------------------------------


def hold(header: wire.RequestHeader) -> Fault:
    return Refuse(Code.OVERLOADED, 200) if header.opcode == Opcode.PUBLISH else None


def test_a_full_producer_raises_or_waits_as_told() -> None:
    with node_with_topic(partitions=1, hook=hold) as (node, client):
        raising = client.producer("t", on_full="raise", bytes_in_flight_max=50_000)
        with pytest.raises(ringfence.OverloadedError) as caught:
            send_all(raising, 1000, 100)
        assert raising.bytes_in_flight <= 50_000
        assert caught.value.retriable
        waiting = client.producer("t", bytes_in_flight_max=20_000, timeout_s=30)
        held = waiting.send(rows(0, 5000))  # above the limit: it may be alone, and nothing fits beside it
        waiting._options = waiting._options._replace(timeout_s=0.1)
        with pytest.raises(ringfence.OverloadedError):
            waiting.send(rows(5000, 1))
        node.hook = None
        raising.flush(20)
        assert raising.bytes_in_flight == 0
        waiting.close(20)
        assert sum(part.rows for part in held.result()) == 5000


def test_sends_wait_for_room_and_go_on() -> None:
    with (
        node_with_topic(credit_bytes=20_000) as (node, client),
        client.producer("t", bytes_in_flight_max=30_000) as producer,
    ):
        most = 0
        for start in range(0, 20_000, 100):
            producer.send(rows(start, 100))
            most = max(most, producer.bytes_in_flight)
        producer.flush(30)
        assert most <= 30_000
        assert sum(header.rows for header in node.stored("t")) == 20_000


def test_many_threads_may_send_and_every_row_is_there_once() -> None:
    with node_with_topic() as (_, client):
        with client.producer("t") as producer:

            def work(base: int) -> None:
                for start in range(0, 500, 10):
                    producer.send(rows(base + start, 10))

            threads = [threading.Thread(target=work, args=(base * 1000,)) for base in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(ids_of(client)) == sorted(base * 1000 + one for base in range(4) for one in range(500))


def test_a_batch_above_the_limit_of_a_message_becomes_several() -> None:
    with node_with_topic(partitions=1) as (node, client), client.producer("t") as producer:
        text = "y" * 100_000
        batch = pa.record_batch([pa.array(range(800), pa.int64()), pa.array([text] * 800)], schema=SCHEMA)
        parts = producer.send(batch).result(60)
        assert len(parts) > 1
        assert sum(part.rows for part in parts) == 800
        assert max(header.body_bytes for header in node.stored("t")) <= wire.MESSAGE_BYTES_MAX
        sends = [header.send for header in node.stored("t")]
        assert sends == sorted(sends)


# ---- coalescing
# -------------------------------------------------------------------------------------------------------


def test_small_sends_share_bodies_and_each_gets_its_own_offsets() -> None:
    with node_with_topic() as (node, client):
        with client.producer("t", linger_ms=30) as producer:
            futures = [producer.send(rows(number * 3, 3)) for number in range(200)]
            placed = {}
            for number, future in enumerate(futures):
                parts = future.result(10)
                assert sum(part.rows for part in parts) == 3
                placed[number] = parts
        assert len(node.stored("t")) < 100, "600 rows in 4 partitions, some flushes"
        stored = {
            partition: [
                one
                for batch in client.read("t", partition=partition)
                for one in batch.column("id").to_pylist()
            ]
            for partition in node.topic_of("t").logs
        }
        for number, parts in placed.items():
            ids = [
                one
                for part in parts
                for one in stored[part.partition][part.first_offset : part.first_offset + part.rows]
            ]
            assert sorted(ids) == [number * 3, number * 3 + 1, number * 3 + 2]


def test_enough_bytes_do_not_wait_for_the_linger() -> None:
    with (
        node_with_topic() as (_, client),
        client.producer("t", linger_ms=60_000, batch_bytes=2000) as producer,
    ):
        futures = [producer.send(rows(number)) for number in range(500)]
        assert futures[0].result(10)
        assert not futures[-1].done()
        producer.flush(10)
        assert all(future.done() for future in futures)


def test_one_bad_send_does_not_spoil_its_company() -> None:
    with node_with_topic() as (_, client):
        producer = client.producer("t", linger_ms=50)
        good = [producer.send(rows(number)) for number in range(10)]
        with pytest.raises(ringfence.BatchError):
            producer.send(pa.record_batch({"id": pa.array(["no"]), "text": ["b"]}))
        more = [producer.send(rows(number)) for number in range(10, 20)]
        producer.close()
        assert all(future.exception(0) is None for future in good + more)
        assert sorted(ids_of(client)) == list(range(20))

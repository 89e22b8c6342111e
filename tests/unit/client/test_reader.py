"""Reading: what comes, from where to where, in which shape, and what is said when it is gone."""

from __future__ import annotations

import datetime as dt
import struct
import threading

import pyarrow as pa
import pytest

import ringfence
from ringfence.arrow.decode import Decoder
from ringfence.cluster.offsets import Position
from ringfence.native import wire
from ringfence.native._node import crc32c, schema_message
from ringfence.native.wire import Code, Opcode, RedirectReason, RequestHeader
from tests.fakes.client_topic import SCHEMA, node_with_topic, rows, until
from tests.fakes.socket_node import Fault, Redirect, Refuse


def fill(client: ringfence.Client, batches: int = 20, each: int = 10) -> None:
    with client.producer("t") as producer:
        for number in range(batches):
            producer.send(rows(number * each, each)).result(10)


def test_a_read_ends_at_the_mark_of_its_call() -> None:
    with node_with_topic() as (_, client):
        fill(client)
        reader = client.read("t")
        first = next(reader)
        fill(client, 5)
        assert first.num_rows + sum(batch.num_rows for batch in reader) == 200
        assert client.count("t") == 250
        assert sum(end.rows for end in client.end_offsets("t").values()) == 250


def test_positions_go_on_where_a_reader_stopped() -> None:
    with node_with_topic() as (_, client):
        fill(client)
        reader = client.read("t", batch_rows=3)
        seen = [batch.column("id").to_pylist() for _, batch in zip(range(7), reader, strict=False)]
        place = reader.place
        assert place is not None
        rest = client.read("t", start=reader.positions())
        seen += [batch.column("id").to_pylist() for batch in rest]
        assert sorted(one for part in seen for one in part) == list(range(200))
        assert place.rows <= 3


def test_offsets_of_one_partition_latest_and_times() -> None:
    with node_with_topic(partitions=1) as (node, client):
        fill(client)
        (partition,) = node.topic_of("t").logs
        assert [
            one for batch in client.read("t", start=195) for one in batch.column("id").to_pylist()
        ] == list(range(195, 200))
        assert sum(batch.num_rows for batch in client.read("t", start={partition: 100})) == 100
        assert sum(batch.num_rows for batch in client.read("t", start=[Position(partition, 42, 1)])) == 158
        assert list(client.read("t", start="latest")) == []
        with pytest.raises(ringfence.InvalidArgumentError, match="time zone"):
            client.read("t", start=dt.datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
        with pytest.raises(ringfence.InvalidArgumentError, match="start must be None"):
            client.read("t", start="soon")  # type: ignore[arg-type]


def test_an_offset_alone_needs_one_partition() -> None:
    with node_with_topic() as (_, client):
        with pytest.raises(ringfence.InvalidArgumentError, match="one partition"):
            client.read("t", start=5)
        with pytest.raises(ringfence.NotFoundError, match="no such partition"):
            client.read("t", partition=1)
        with pytest.raises(ringfence.NotFoundError):
            client.read("nothing")


def test_following_gives_rows_that_come_later() -> None:
    with node_with_topic() as (_, client):
        fill(client, 2)
        reader = client.read("t", follow=True)
        reader._poll_s = 0.1
        got: list[int] = []

        def take() -> None:
            for batch in reader:
                got.extend(batch.column("id").to_pylist())
                if len(got) >= 40:
                    return

        thread = threading.Thread(target=take)
        thread.start()
        until(lambda: len(got) >= 20)
        with client.producer("t") as producer:
            producer.send(rows(20, 20))
        thread.join(20)
        assert sorted(got) == list(range(40))


def test_columns_come_in_the_order_asked_for() -> None:
    with node_with_topic(partitions=1) as (_, client):
        fill(client, 1)
        (batch,) = client.read("t", columns=["text"])
        assert batch.schema.names == ["text"]
        assert batch.column("text").to_pylist()[3] == "x3"
        with pytest.raises(ringfence.InvalidArgumentError, match="no such column"):
            client.read("t", columns=["nope"])


def test_a_small_prefetch_reads_the_same_rows() -> None:
    with node_with_topic() as (node, client):
        fill(client, 50)
        before = len(node.sent(Opcode.FETCH))
        reader = client.read("t", prefetch_bytes=1)
        assert sum(batch.num_rows for batch in reader) == 500
        assert len(node.sent(Opcode.FETCH)) > before


def test_columns_are_views_into_what_was_received() -> None:
    with node_with_topic(partitions=1) as (_, client):
        fill(client, 1, each=1000)
        before = pa.total_allocated_bytes()
        (batch,) = client.read("t")
        assert pa.total_allocated_bytes() - before < 1000, "the decoder copied"
        assert batch.column("id").to_pylist() == list(range(1000))


def test_rows_given_up_before_they_were_read_are_named() -> None:
    with node_with_topic(partitions=1) as (node, client):
        fill(client, 10)
        (log,) = node.topic_of("t").logs.values()
        log.start = 60
        with pytest.raises(ringfence.TruncatedError) as caught:
            list(client.read("t", start=20))
        assert (
            caught.value.details["offset"],
            caught.value.details["start_offset"],
            caught.value.details["rows_lost"],
        ) == (20, 60, 40)
        assert "rows 20 to 59" in str(caught.value)
        assert sum(batch.num_rows for batch in client.read("t")) == 40


def test_a_log_start_that_moves_before_the_first_row_is_followed() -> None:
    with node_with_topic(partitions=1) as (node, client):
        fill(client, 10)
        reader = client.read("t", start="earliest")
        (log,) = node.topic_of("t").logs.values()
        log.start = 30
        assert sum(batch.num_rows for batch in reader) == 70


def test_reads_go_on_through_refusals_and_redirects() -> None:
    planted: list[Fault] = [
        Refuse(Code.OVERLOADED),
        Redirect(RedirectReason.STALE_EPOCH),
        Refuse(Code.HELD, 20),
        Redirect(RedirectReason.CLOSED),
    ]
    with node_with_topic() as (node, client):
        fill(client)
        node.hook = lambda header: planted.pop() if header.opcode == Opcode.FETCH and planted else None
        assert sum(batch.num_rows for batch in client.read("t")) == 200
        assert planted == []


def test_places_are_asked_for_again_where_the_owner_is() -> None:
    planted: list[Fault] = [Redirect(RedirectReason.NOT_OWNER), Redirect(RedirectReason.CLOSED)] * 2
    with node_with_topic() as (node, client):
        fill(client)
        node.hook = lambda header: planted.pop() if header.opcode == Opcode.END_OFFSETS and planted else None
        assert client.count("t") == 200
        assert planted == []


def test_places_whose_redirects_never_end_say_so() -> None:
    with node_with_topic() as (node, _), ringfence.connect(node.address, timeout_s=0.5) as hasty:
        closed = Redirect(RedirectReason.CLOSED)
        node.hook = lambda header: closed if header.opcode == Opcode.END_OFFSETS else None
        with pytest.raises(ringfence.RerouteError):
            hasty.count("t")


def test_a_partition_without_an_owner_does_not_hold_up_the_others() -> None:
    with node_with_topic() as (node, client):
        fill(client)
        lost = min(node.topic_of("t").logs)
        others, unavailable = 200 - client.count("t", partition=lost), True

        def hook(header: RequestHeader) -> Fault | None:
            is_lost = header.opcode == Opcode.FETCH and header.partition == lost
            return Redirect(RedirectReason.CLOSED) if is_lost and unavailable else None

        node.hook = hook
        reader = client.read("t")
        rows = 0
        for batch in reader:
            assert reader.place is not None
            assert (reader.place.partition == lost) == (rows >= others)
            rows += batch.num_rows
            unavailable = rows < others
        assert rows == 200


def test_a_reader_whose_redirects_never_end_says_so() -> None:
    with node_with_topic(partitions=1) as (node, client):
        fill(client, 1)
        node.hook = lambda header: (
            Redirect(RedirectReason.NOT_OWNER) if header.opcode == Opcode.FETCH else None
        )
        with pytest.raises(ringfence.RerouteError):
            list(client.read("t"))


def test_older_batches_get_null_columns_and_newer_ones_lose_theirs() -> None:
    wide = SCHEMA.append(pa.field("more", pa.float64()))
    decoder = Decoder("t", [schema_message(SCHEMA), schema_message(wide)], None)
    with node_with_topic(partitions=1) as (node, client):
        fill(client, 1)
        (log,) = node.topic_of("t").logs.values()
        (record, message), *_ = list(decoder.records(memoryview(log.records[0])))
        batch = decoder.batch(record, message, 0)
        assert batch.schema == wide
        assert batch.column("more").null_count == 10
        narrow = Decoder("t", [schema_message(SCHEMA)], ["id"])
        narrow.learn([schema_message(SCHEMA), schema_message(wide)])
        wider = pa.record_batch([pa.array([1], pa.int64()), pa.array(["a"]), pa.array([1.5])], schema=wide)
        found = narrow.batch(record._replace(schema_id=1, rows=1), memoryview(wider.serialize()), 0)
        assert found.to_pydict() == {"id": [1]}


def test_dictionaries_are_read() -> None:
    schema = pa.schema([pa.field("word", pa.dictionary(pa.int32(), pa.string()))])
    batch = pa.record_batch([pa.array(["a", "b", "a"]).dictionary_encode()], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch)
    whole = sink.getvalue().to_pybytes()
    run = whole[len(schema_message(schema)) : -8]  # without the schema and the end of the stream
    decoder = Decoder("t", [schema_message(schema)], None)
    with node_with_topic(partitions=1) as (node, client):
        fill(client, 1)
        (log,) = node.topic_of("t").logs.values()
        record = next(decoder.records(memoryview(log.records[0])))[0]
    assert decoder.batch(record._replace(rows=3), memoryview(run), 0).to_pydict() == {"word": ["a", "b", "a"]}


def test_a_reader_that_another_thread_closes_ends_at_once() -> None:
    with node_with_topic() as (_, client):
        reader = client.read("t", follow=True)
        ended = threading.Event()

        def follows() -> None:
            for _ in reader:
                pass
            ended.set()

        threading.Thread(target=follows, daemon=True).start()
        until(lambda: reader._fetches > 0)
        reader.close()
        assert ended.wait(2), "it waits for its long poll"


def test_a_reader_that_is_closed_gives_nothing_without_a_word_to_nobody() -> None:
    with node_with_topic() as (_, client):
        reader = client.read("t")
        assert (list(reader), list(reader)) == ([], [])  # at its end it is not closed
        with reader:
            pass
        with pytest.raises(ringfence.ClosedError, match="closed"):
            list(reader)


def test_a_record_that_cannot_be_decoded_is_named_and_the_way_around_it() -> None:
    with node_with_topic(partitions=1) as (node, client):
        fill(client, 4)
        (log,) = node.topic_of("t").logs.values()
        log.records[2] = undecodable(log.records[2])
        reader = client.read("t")
        assert [next(reader).num_rows, next(reader).num_rows] == [10, 10]
        with pytest.raises(ringfence.ProtocolError):
            next(reader)
        # Again and again, and never past it.
        with pytest.raises(ringfence.ProtocolError, match=r"rows 20 to 29 .*, start=30;") as told:
            next(reader)
        error = told.value
        assert (error.partition, error.offset, error.rows) == (log.partition, 20, 10)
        behind = {place.partition: place.offset for place in reader.positions()}
        behind[log.partition] = error.next_offset
        rest = [batch.column("id").to_pylist() for batch in client.read("t", start=behind)]
        assert rest == [list(range(30, 40))]


def undecodable(record: bytes) -> bytes:
    """The record with an offset of zero in its Arrow metadata, which older nodes stored, all CRCs right."""
    header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(record))
    begin, end = wire.RECORD_HEADER_BYTES, wire.RECORD_HEADER_BYTES + header.body_bytes
    body = record[begin : begin + 8] + bytes(4) + record[begin + 12 : end]
    head = wire.RECORD_STRUCT.pack(*header._replace(body_crc=crc32c(body)))
    return head[:4] + struct.pack("<I", crc32c(head[8:])) + head[8:] + body + record[end:]


def test_a_second_query_of_a_reader_at_its_end_is_refused() -> None:
    with node_with_topic(partitions=1) as (_, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 3))
        reader = client.read("t")
        assert pa.table(reader).num_rows == 3
        with pytest.raises(ringfence.ClosedError, match="returns each row once"):
            pa.table(reader)
        assert list(reader) == []


def test_a_position_that_is_kept_has_the_epoch_of_the_row_before_it() -> None:
    with node_with_topic(partitions=1) as (node, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 3))
        (log,) = node.topic_of("t").logs.values()
        log.epoch = 7
        (place,) = client.read("t", start="latest").positions()
        assert (place.offset, place.epoch) == (3, 7)
        (end,) = client.end_offsets("t").values()
        assert (end.end, end.epoch) == (3, 7)
        assert list(client.read("t", start=[place], follow=False)) == []
        with client.read("t", start=[place], follow=True) as reader:
            assert reader.try_next() is None
            until(lambda: bool(node.sent(Opcode.FETCH)))
        assert {header.owner_epoch for header in node.sent(Opcode.FETCH)} == {7}


def test_a_log_that_ends_before_the_read_does_is_an_error_and_no_endless_loop() -> None:
    """An owner that was chosen by force has fewer rows than there were when the read began."""
    with node_with_topic(partitions=1) as (node, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 3)).result()
            producer.send(rows(3, 3)).result()
        (log,) = node.topic_of("t").logs.values()
        reader = client.read("t", timeout_s=0.5)
        del log.records[1:]
        log.end = 3
        assert next(reader).num_rows == 3
        with pytest.raises(
            ringfence.TruncatedError, match="ends at 3, and ended at 6 when the read began"
        ) as told:
            next(reader)
        assert told.value.details["rows_lost"] == 3
        assert len(node.sent(Opcode.FETCH)) < 50, "it asks with pauses"
        with client.producer("t") as producer:
            producer.send(rows(3, 3)).result()
        assert sum(batch.num_rows for batch in reader) == 3, "a former owner may have said so"


def test_a_position_whose_row_the_log_has_lost_is_refused_at_and_beyond_its_end() -> None:
    with node_with_topic(partitions=1) as (node, client):
        with client.producer("t") as producer:
            producer.send(rows(0, 3))
        (log,) = node.topic_of("t").logs.values()
        log.epoch = 7
        at = log.partition
        assert list(client.read("t", start=[Position(at, 3, 7)])) == []
        for lost, said in (
            (Position(at, 3, 5), "which was of epoch 5, is of epoch 7"),
            (Position(at, 4, 7), "ends at 3"),
        ):
            with pytest.raises(ringfence.TruncatedError, match=f"another history now.*{said}"):
                client.read("t", start=[lost])

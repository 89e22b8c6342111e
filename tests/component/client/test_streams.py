"""Tables and streams of many parts: stored whatever their parts are, in bounded memory, never half read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import ringfence
from tests.fakes.client_topic import SCHEMA, ids_of, node_with_topic, rows, within
from tests.fakes.socket_node import Fault

SMALL = pa.dictionary(pa.int8(), pa.string())


def encoded(values: list[object], indices: list[int]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))


def words(part: str) -> pa.Array:
    return pa.array([f"{part}{number}" for number in range(100)]).cast(SMALL)


CHUNKS = {
    "more values than indices": ([words("a"), words("b")], None),
    "into a column of strings": ([words("a"), words("b")], pa.string()),
    "a null among the values": ([encoded(["a", None], [0, 1]), encoded(["b"], [0])], None),
    "values of structs": ([encoded([{"x": 1}], [0]), encoded([{"x": 2}], [0])], None),
}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("case", CHUNKS)
def test_chunks_whose_dictionaries_cannot_be_one_are_stored(case: str, is_stream: bool) -> None:
    arrays, kind = CHUNKS[case]
    table = pa.table({"v": pa.chunked_array(arrays)})
    with node_with_topic() as (_, client):
        client.create_topic("d", schema=pa.schema([("v", kind or arrays[0].type)]))
        with client.producer("d") as producer:
            producer.send(table.to_reader() if is_stream else table).result(10)
        assert pa.table(client.read("d"))["v"].to_pylist() == table["v"].to_pylist()


@pytest.mark.parametrize("case", ["into a column of strings", "a null among the values"])
def test_a_named_producer_joins_the_plain_values_of_such_chunks(case: str) -> None:
    arrays, kind = CHUNKS[case]
    table = pa.table({"v": pa.chunked_array(arrays)})
    with node_with_topic() as (node, client):
        client.create_topic("d", schema=pa.schema([("v", kind or arrays[0].type)]))
        with client.producer("d", name="named") as producer:
            producer.send(table).result(10)
        assert pa.table(client.read("d"))["v"].to_pylist() == table["v"].to_pylist()
        assert len(node.stored("d")) == 1


@pytest.mark.parametrize("case", ["more values than indices", "values of structs"])
def test_a_named_producer_refuses_parts_that_cannot_be_one_message(case: str) -> None:
    arrays, _ = CHUNKS[case]
    with node_with_topic() as (node, client):
        client.create_topic("d", schema=pa.schema([("v", arrays[0].type)]))
        with (
            client.producer("d", name="named") as producer,
            pytest.raises(ringfence.BatchError, match="send each part separately"),
        ):
            producer.send(pa.table({"v": pa.chunked_array(arrays)}))
        assert node.stored("d") == []


@pytest.mark.parametrize("key", [(), ("id",)])
def test_rows_above_the_limit_of_a_message_are_sent_in_several(
    key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("batches", "encode"):
        monkeypatch.setattr(f"ringfence.arrow.{module}.ROWS_MAX", 100)
    with node_with_topic(key=key, partitions=1) as (node, client):
        for linger_ms in (0, 1_000):
            with client.producer("t", linger_ms=linger_ms) as producer:
                for half in (rows(0, 550), rows(550, 451)):
                    assert sum(part.rows for part in producer.send(half).result(10)) == half.num_rows
            assert max(header.rows for header in node.stored("t")) <= 100
        with (
            client.producer("t", name="named") as producer,
            pytest.raises(ringfence.BatchError, match="rows=101, rows_max=100"),
        ):
            producer.send(rows(0, 101))


def parts(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield rows(100 * number, 100)


class Slow:
    """A stream that says how far it was read."""

    def __init__(self, count: int) -> None:
        self.read, self._count = 0, count

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        def each() -> Iterator[pa.RecordBatch]:
            for batch in parts(self._count):
                self.read += 1
                yield batch

        reader = pa.RecordBatchReader.from_batches(SCHEMA, each())
        return reader.__arrow_c_stream__(requested_schema)


def test_a_stream_is_read_as_its_rows_get_room() -> None:
    taking = threading.Event()

    def hook(_: object) -> Fault:
        assert taking.wait(10)
        return None

    stream = Slow(200)
    with node_with_topic(partitions=1) as (node, client):
        producer = client.producer("t", bytes_in_flight_max=50_000, batch_bytes=5_000)
        node.hook = hook
        sent: list[ringfence.SendFuture] = []
        sender = threading.Thread(target=lambda: sent.append(producer.send(stream)), daemon=True)
        sender.start()
        sender.join(0.5)
        assert sender.is_alive()
        assert 0 < stream.read < 100
        taking.set()
        sender.join(20)
        assert sum(part.rows for part in sent[0].result(20)) == 20_000
        producer.close()
        assert ids_of(client) == list(range(20_000))


def test_a_stream_that_breaks_off_tells_how_far_it_was_handed_over() -> None:
    def each() -> Iterator[pa.RecordBatch]:
        yield from parts(100)
        raise OSError("the disk is gone")

    with node_with_topic(partitions=1) as (_, client):
        producer = client.producer("t", bytes_in_flight_max=50_000, batch_bytes=5_000)
        future = producer.send(pa.RecordBatchReader.from_batches(SCHEMA, each()))
        with pytest.raises(ringfence.BatchError, match="the disk is gone") as caught:
            future.result(10)
        assert sum(part.rows for part in future.appended) == caught.value.rows_handed_over > 0
        with pytest.raises(ringfence.BatchError):
            within(10, producer.close)


def test_a_small_stream_that_breaks_off_is_refused_whole() -> None:
    def each() -> Iterator[pa.RecordBatch]:
        yield from parts(3)
        raise OSError("the disk is gone")

    with node_with_topic(partitions=1) as (node, client), client.producer("t") as producer:
        with pytest.raises(ringfence.BatchError, match="the disk is gone"):
            producer.send(pa.RecordBatchReader.from_batches(SCHEMA, each()))
        assert node.stored("t") == []


def test_what_ends_a_send_in_its_midst_leaves_a_producer_that_can_be_closed() -> None:
    class Interrupted(BaseException):
        pass

    def each() -> Iterator[pa.RecordBatch]:
        yield from parts(100)
        raise Interrupted

    with node_with_topic(partitions=1) as (_, client):
        producer = client.producer("t", bytes_in_flight_max=50_000, batch_bytes=5_000)
        chunks = ((batch, batch.nbytes) for batch in each())
        with pytest.raises(Interrupted):
            producer._send_each(chunks, None, None, 10.0)
        with pytest.raises(ringfence.ClosedError, match="the send was interrupted"):
            within(10, producer.close)


def test_an_asyncio_send_of_a_stream_that_finds_no_room_loses_none_of_its_rows() -> None:
    """What was read to see that there is no room was gone for the send that waited."""

    async def run(address: str) -> list[int]:
        async with (
            ringfence.aio.connect(address) as client,
            client.producer("t", bytes_in_flight_max=60_000) as producer,
        ):
            first = await producer.submit(rows(0, 1000))
            second = await producer.submit(pa.RecordBatchReader.from_batches(SCHEMA, parts(10)))
            return [sum(part.rows for part in await one) for one in (first, second)]

    taking = threading.Event()

    def hook(_: object) -> Fault:
        taking.wait(0.3)
        return None

    with node_with_topic(partitions=1) as (node, _):
        node.hook = hook
        assert asyncio.run(run(node.address)) == [1000, 1000]

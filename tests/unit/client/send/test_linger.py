"""Sends that wait for others: rows are the producer's own, and numbers are drawn for sound ones only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ringfence
from ringfence.arrow.encode import Body, TopicEncoder
from tests.fakes.client_topic import SCHEMA, ids_of, node_with_topic, rows


@pytest.mark.parametrize("linger_ms", [0.0, 1_000.0])
@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_buffer_may_be_filled_again_once_send_has_returned(linger_ms: float, key: tuple[str, ...]) -> None:
    buffer = np.zeros(8, np.int64)
    batch = pa.record_batch({"id": pa.array(buffer)})
    with node_with_topic(key=key) as (_, client):
        with client.producer("t", linger_ms=linger_ms) as producer:
            for number in range(5):
                buffer[:] = number
                producer.send(batch)
            buffer[:] = -1
        assert sorted(ids_of(client)) == sorted(list(range(5)) * 8)


def test_offsets_that_change_after_send_are_not_followed() -> None:
    offsets = np.array([0, 1, 2], np.int32)
    texts = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")])
    with node_with_topic(key=()) as (_, client):
        with client.producer("t", linger_ms=1_000) as producer:
            producer.send(pa.record_batch([pa.array([1, 2]), texts], schema=SCHEMA))
            offsets[1:] = 1_000_000
        assert pa.table(client.read("t"))["text"].to_pylist() == ["a", "b"]


NO_FIT: list[Callable[[], pa.RecordBatch]] = [
    lambda: pa.record_batch({"id": ["no number"], "text": ["b"]}),
    lambda: pa.record_batch({"id": [1], "other": ["b"]}),
    lambda: pa.record_batch({"id": pa.array([None], pa.int64()), "text": ["b"]}),
    lambda: pa.record_batch({"id": [1], "text": ["y" * 70_000_000]}),
]


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("make", NO_FIT)
def test_rows_that_cannot_be_stored_are_refused_in_send_and_draw_no_number(
    make: Callable[[], pa.RecordBatch], name: str | None
) -> None:
    with node_with_topic() as (node, client):
        with client.producer("t", name=name, linger_ms=1_000) as producer:
            assert producer.send(rows(0)).number == 1
            with pytest.raises(ringfence.BatchError):
                producer.send(make())
            assert producer.send(rows(1)).number == 2
        assert sorted(ids_of(client)) == [0, 1]
        assert max(header.send for header in node.stored("t")) == 2


def test_nothing_of_a_named_producer_is_stored_behind_a_lingering_send_that_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could be encoded when it was made, and cannot be now: its successor must not pass it."""
    real = TopicEncoder.bodies

    def bodies(self: TopicEncoder, batch: pa.RecordBatch, *rest: Any, **more: Any) -> list[Body]:
        if 13 in batch.column("id").to_pylist():
            raise MemoryError("planted")
        return real(self, batch, *rest, **more)

    with node_with_topic(partitions=3) as (node, client):
        producer = client.producer("t", name="named", linger_ms=60_000)
        futures = [producer.send(rows(number)) for number in range(20)]
        with monkeypatch.context() as planted:
            planted.setattr(TopicEncoder, "bodies", bodies)
            with pytest.raises(ringfence.BatchError, match="planted"):
                producer.flush(10)
        for number, future in enumerate(futures):
            error = future.exception(5)
            if number < 13:
                assert error is None
            else:
                assert isinstance(error, ringfence.BatchError if number == 13 else ringfence.ClosedError)
        late = producer.send(rows(20))
        with pytest.raises(ringfence.ClosedError, match="send 14 of this named producer"):
            producer.close()
        assert isinstance(late.exception(0), ringfence.ClosedError)
        assert sorted(ids_of(client)) == list(range(13))
        assert max(header.send for header in node.stored("t")) == 13


def test_sends_that_cannot_be_one_body_are_stored_apart() -> None:
    """Dictionaries of 100 values each: 127 fit their index type."""
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("word", kind)])
    with node_with_topic() as (_, client):
        client.create_topic("words", schema=schema)
        with client.producer("words", linger_ms=1_000) as producer:
            for part in "abc":
                words = pa.array([f"{part}{number}" for number in range(100)]).cast(kind)
                producer.send(pa.record_batch([words], schema=schema))
        assert sorted(pa.table(client.read("words"))["word"].to_pylist()) == sorted(
            f"{part}{number}" for part in "abc" for number in range(100)
        )

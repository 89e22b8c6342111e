"""Answers to FETCH as batches: only rows between the position and the end, in pieces of `batch_rows`."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.answer_batches import AnswerBatches
from ringfence.arrow.decode import Decoder
from ringfence.cluster.cursor import Cursor
from ringfence.cluster.read_plan import Span
from ringfence.common.codec import Answer
from ringfence.native import wire
from ringfence.native._node import schema_message
from tests.fakes.client_topic import SCHEMA, node_with_topic, rows


@pytest.mark.parametrize(
    ("start", "end", "batch_rows", "sizes"),
    [
        (0, None, None, [10, 10, 10]),
        (4, None, None, [6, 10, 10]),
        (4, 12, None, [6, 2]),
        (10, 10, None, []),
        (0, None, 4, [4, 4, 2, 4, 4, 2, 4, 4, 2]),
        (9, 21, 4, [1, 4, 4, 2, 1]),
    ],
)
def test_an_answer_gives_the_rows_from_the_position_to_the_end(
    start: int, end: int | None, batch_rows: int | None, sizes: list[int]
) -> None:
    with node_with_topic(partitions=1) as (node, client):
        with client.producer("t") as producer:
            for first in (0, 10, 20):
                producer.send(rows(first, 10)).result()
        (log,) = node.topic_of("t").logs.values()
        body = memoryview(b"".join(log.records))
    header = wire.AnswerHeader(*[0] * len(wire.AnswerHeader._fields))
    unused: Any = None  # nothing is staged, so nothing is requested
    batches = AnswerBatches(
        unused,
        unused,
        unused,
        Decoder("t", [schema_message(SCHEMA)], None),
        batch_rows=batch_rows,
        fetch_bytes=1,
        timeout_s=1.0,
    )
    found = list(batches.of(Cursor(Span(log.partition, start, 0, end, False)), Answer(header, body)))
    assert [batch.num_rows for _, batch in found] == sizes
    assert [place.rows for place, _ in found] == sizes
    ids = [one for _, batch in found for one in batch.column("id").to_pylist()]
    assert ids == list(range(start, 30 if end is None else end))

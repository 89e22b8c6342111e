"""Questions of the source about offsets after a split: failures, and a checkpoint at a sealed end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ringfence.native.errors import RingfenceError
from ringfence.native.wire import Code, Opcode, RequestHeader
from ringfence.spark.stream_read import StreamReader
from tests.fakes.lineage_client import ROWS, Writer, topic
from tests.fakes.socket_node import Fault, Refuse
from tests.fakes.stream_query import Query

LOOKUPS = (Opcode.END_OFFSETS, Opcode.OFFSET_FOR_TIME)


@pytest.mark.parametrize("code", [Code.QUARANTINED, Code.UNKNOWN_PARTITION, Code.UNAUTHORIZED])
@pytest.mark.parametrize("failing", ["parent", "children"])
def test_a_question_that_fails_ends_the_batch_and_is_no_offset(code: Code, failing: str) -> None:
    """Neither `latest` nor the beginning takes the place of an answer."""
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        query = Query(node)
        (parent,) = node.topic_of("t").logs
        children = {log.partition for log in node.split("t")}
        writer.put()
        planned = query.plan()
        refused = {parent} if failing == "parent" else children

        def hook(header: RequestHeader) -> Fault:
            is_asked = header.opcode in LOOKUPS and header.partition in refused
            return Refuse(code) if is_asked else None

        start = json.loads(query.log[-1])
        asked: list[Callable[[StreamReader], Any]] = [
            lambda reader: reader.initialOffset(),
            lambda reader: reader.latestOffset(start, ReadAllAvailable()),
            lambda reader: reader.reportLatestOffset(),
            lambda reader: reader.prepareForTriggerAvailableNow(),
            lambda reader: reader.partitions(start, json.loads(planned)),
        ]
        node.hook = hook
        for ask in asked:
            with pytest.raises(RingfenceError):
                ask(query.make())
        node.hook = None
        query.restart()
        query.drain()
        assert sorted(query.ids) == writer.ids


@pytest.mark.parametrize("taken", [0, 1, ROWS - 1, ROWS])
@pytest.mark.parametrize("parts", [2, 3])
def test_a_checkpoint_in_a_sealed_parent_with_empty_children_goes_on_at_the_next_row(
    taken: int, parts: int
) -> None:
    """At the start of the parent, after its first row, before its last, and at its end."""
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        query = Query(node)
        if taken:
            query.batch(ReadMaxRows(taken))
        assert query.ids == writer.ids[:taken]
        node.split("t", parts=parts)
        for _ in range(2):  # with empty children, and again
            query.restart()
            query.drain()
            assert query.ids == writer.ids[:ROWS], "the parent's rows, once"
        for first in range(parts):
            writer.put(3, first)
            query.restart()
            query.drain()
            assert sorted(query.ids) == writer.ids

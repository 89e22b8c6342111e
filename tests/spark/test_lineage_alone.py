"""The data source over a topic that is split and merged, without a Spark session: a node in Python, as real
processes cannot split yet. What Spark would call is called here.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import ringfence
from ringfence.native.errors import InvalidArgumentError, TruncatedError
from ringfence.spark.batch_read import BatchReader, RangePartition
from ringfence.spark.source import RingfenceSource
from tests.fakes.lineage_client import ROWS, Writer, topic
from tests.fakes.lineage_node import LineageNode
from tests.fakes.stream_query import Query


def batch_reader(node: LineageNode, **options: str) -> BatchReader:
    source = RingfenceSource({"address": node.address, "topic": "t", **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, BatchReader)
    return reader


def read(reader: BatchReader) -> list[int]:
    return ids_in(reader, reader.partitions())


def ids_in(reader: BatchReader, parts: list[RangePartition]) -> list[int]:
    return [one for part in parts for batch in reader.read(part) for one in batch.column("id").to_pylist()]


# ---- streams -----------------------------------------------------------------------------------------------


def test_a_stream_reads_the_parent_and_then_its_children() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        query = Query(node)
        writer.put()
        query.drain()
        assert json.loads(query.log[-1])["format"] == 2, "no partition was split yet"
        writer.put()
        node.split("t")
        writer.put(first=0)
        writer.put(first=1)
        query.drain()
        assert [len(batch) for batch in query.batches if batch] == [ROWS, ROWS, 2 * ROWS]
        assert sorted(query.ids) == writer.ids
        last = json.loads(query.log[-1])
        assert last["format"] == 3
        assert {int(one) for one in last["partitions"]} == {log.partition for log in node.active("t")}


def test_partitions_that_ended_in_a_checkpoint_may_be_pruned_with_their_children() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        query = Query(node)
        (parent,) = node.topic_of("t").logs
        children = [log.partition for log in node.split("t")]
        query.batch()
        assert json.loads(query.log[-1])["partitions"][str(parent)]["ended"] is True
        node.merge("t")
        query.restart()
        for one in (parent, *children):
            node.prune("t", one)
        writer.put()
        query.drain()
        assert query.ids == writer.ids


def test_a_checkpoint_of_every_step_is_carried_on_at_every_later_step() -> None:
    """Lesson of others: a checkpoint that coincides with a split loses rows, or reads all again."""
    with topic() as (node, _):
        writer = Writer(node)
        steps: list[Callable[[], Any]] = [
            writer.put,
            lambda: node.split("t"),
            lambda: writer.put(first=0),
            lambda: node.merge("t"),
            writer.put,
            lambda: node.split("t", 0, 3),
            lambda: writer.put(first=2),
        ]
        kept: list[Query] = [Query(node)]
        for step in steps:
            step()
            for query in kept:
                query.batch(ReadMaxRows(7))
            kept.append(Query(node, start="earliest"))
        for query in kept:
            query.restart()
            query.drain(ReadMaxRows(7))
            assert sorted(query.ids) == writer.ids


def test_a_planned_batch_that_is_run_again_after_a_repartition_has_the_same_rows() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        query = Query(node)
        planned = query.plan()
        node.split("t")
        writer.put()
        node.merge("t")
        query.restart()
        assert [one for _, one in query.run(planned)] == list(range(ROWS))
        query.log.append(planned)
        query.drain()
        assert sorted(query.ids) == writer.ids[ROWS:]


def test_the_smallest_limit_does_not_stop_a_stream_at_a_split() -> None:
    with topic(2) as (node, _):
        writer = Writer(node)
        for first in (0, 1):
            writer.put(4, first)
        node.merge("t")
        writer.put(3)
        query = Query(node)
        query.drain(ReadMaxRows(1))
        assert sorted(query.ids) == writer.ids
        assert all(len(batch) <= 1 for batch in query.batches)
        assert sorted(query.ids[:8]) == list(range(8)), "parents first"


def test_available_now_ends_with_the_rows_that_were_there_when_it_began() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        node.split("t")
        writer.put()
        query = Query(node)
        query.reader.prepareForTriggerAvailableNow()
        count = writer.next
        node.split("t", 1)
        writer.put(first=0)
        writer.put(first=2)
        query.drain()
        assert sorted(query.ids) == list(range(count))
        query.restart()
        query.drain()
        assert sorted(query.ids) == writer.ids


def test_a_stream_without_new_rows_runs_no_batch_after_a_split_was_passed() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        query = Query(node)
        node.split("t")
        query.drain()
        assert [len(batch) for batch in query.batches] == [ROWS], "no batch for what has ended alone"
        for _ in range(3):
            assert not query.batch()
            query.restart()


def test_latest_and_times_begin_after_what_is_finished() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        writer.put()
        query = Query(node, start="latest")
        assert str(parent) not in json.loads(query.log[0])["partitions"]
        writer.put()
        query.drain()
        assert query.ids == writer.ids[2 * ROWS :]


def test_what_spark_shows_as_newest_counts_unread_rows_only() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        node.split("t")
        writer.put()
        query = Query(node)
        query.drain()
        newest = {"latestOffset": json.dumps(query.reader.reportLatestOffset()), "endOffset": query.log[-1]}
        assert sum(ringfence.spark.waiting({"sources": [newest]}).values()) == 0
        writer.put(3, first=1)
        newest["latestOffset"] = json.dumps(query.reader.reportLatestOffset())
        assert sum(ringfence.spark.waiting({"sources": [newest]}).values()) == 3


def test_a_partition_that_was_pruned_before_its_rows_were_read_ends_a_stream_unless_loss_is_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with topic() as (node, _):
        writer = Writer(node)
        query, careless = Query(node), Query(node, failOnDataLoss="false")
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        writer.put()
        planned = careless.plan()
        node.prune("t", parent)
        with pytest.raises(TruncatedError, match="rows 0 to 9 were removed before they were read"):
            query.plan()
        query.log.append(planned)
        with pytest.raises(InvalidArgumentError, match=r"is missing|begins at"):
            query.run(json.dumps({**json.loads(query.log[0]), "partitions": {}}))
        with caplog.at_level(logging.WARNING, "ringfence.spark"):
            careless.drain()
        assert careless.ids == writer.ids[ROWS:]
        assert "were removed" in caplog.text


def test_a_planned_batch_whose_partition_was_pruned_is_an_error_and_an_empty_range_is_none() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        query = Query(node)
        planned = query.plan()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        node.prune("t", parent)
        with pytest.raises(TruncatedError, match="rows 0 to 9"):
            query.run(planned)
        query.log.append(planned)
        writer.put()
        query.drain()
        assert query.ids == writer.ids[ROWS:]


def test_a_child_whose_first_rows_retention_took_is_an_error() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        query = Query(node)
        left, _ = node.split("t")
        writer.put()
        writer.put()
        left.start = ROWS
        with pytest.raises(TruncatedError, match="rows 0 to 9 were removed"):
            query.plan()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topic": 9_999}, "another topic"),
        ({"format": 4}, "newer ringfence"),
        ({"partitions": {"7": {"offset": 0, "epoch": 0}}}, "no partition 7"),
        ({"partitions": {str(2**60): {"offset": 0, "epoch": 0}}}, "no partition"),
    ],
)
def test_offsets_of_another_topic_or_of_no_partition_are_refused(change: dict[str, Any], said: str) -> None:
    with topic() as (node, _):
        (parent,) = node.topic_of("t").logs
        node.split("t")
        node.prune("t", parent)
        query = Query(node)
        with pytest.raises(InvalidArgumentError, match=said):
            query.reader.latestOffset({**json.loads(query.log[0]), **change}, ReadAllAvailable())


def test_an_offset_of_a_newer_layout_waits_for_a_node_that_lags() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        query = Query(node)
        node.remember_table("t", answers=0)
        node.split("t")
        writer.put()
        query.drain()
        query.restart()
        node.stale = 3
        writer.put()
        query.drain()
        assert sorted(query.ids) == writer.ids


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_beside_random_changes_with_restarts_reads_each_row_once(seed: int) -> None:
    draw = random.Random(seed)
    with topic(2) as (node, _):
        writer = Writer(node)
        query = Query(node)
        for _ in range(60):
            active, kind = node.active("t"), draw.random()
            if kind < 0.45:
                writer.put(draw.randint(1, 4), draw.randrange(len(active)))
            elif kind < 0.55 and len(active) < 6:
                node.split("t", draw.randrange(len(active)), draw.randint(2, 3))
            elif kind < 0.65 and len(active) > 1:
                node.merge("t", 2, draw.randrange(len(active) - 1))
            elif kind < 0.75:
                query.restart()
            elif kind < 0.85:  # a batch that is run twice, by two processes
                end = query.plan(ReadMaxRows(draw.randint(1, 9)))
                first = query.run(end)
                query.restart()
                assert query.run(end) == first
            else:
                query.batch(ReadMaxRows(draw.randint(1, 9)))
        query.drain()
        assert sorted(query.ids) == writer.ids
        finished: set[int] = set()
        for batch in query.batches:
            partitions = {partition for partition, _ in batch}
            assert not partitions & finished
            parents = {one for partition in partitions for one in node.cut(partition).parents}
            assert not parents & partitions, "a batch has rows of a parent and of its child"
            finished |= parents


# ---- batches -----------------------------------------------------------------------------------------------


def test_a_batch_read_has_the_rows_of_sealed_partitions() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        node.split("t")
        writer.put()
        assert sorted(read(batch_reader(node))) == writer.ids


def test_a_batch_that_was_planned_before_a_repartition_has_the_rows_of_its_plan() -> None:
    with topic(2) as (node, _):
        writer = Writer(node)
        writer.put(first=0)
        writer.put(first=1)
        reader = batch_reader(node, rowsPerTask="3")
        parts = reader.partitions()
        count = writer.next
        node.commit("t", node.hold("t", 2), 10_000, 40_000)
        writer.put()
        node.merge("t", 3)
        writer.put()
        found = [
            one for part in parts for batch in reader.read(part) for one in batch.column("id").to_pylist()
        ]
        assert sorted(found) == list(range(count))
        assert sorted(ids_in(reader, reader.partitions())) == list(range(count)), "the ends are those of load"


def test_positions_of_a_reader_begin_and_end_a_batch_read_over_a_split() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        reader = client.read("t", start="latest")
        before = json.dumps(reader.positions())
        writer.put()
        node.split("t")
        writer.put(first=0)
        middle = json.dumps(client.read("t", start="latest").positions())
        writer.put(first=1)
        node.merge("t")
        writer.put()
        assert sorted(read(batch_reader(node, start=before))) == writer.ids[ROWS:]
        assert sorted(read(batch_reader(node, start=middle))) == writer.ids[3 * ROWS :]
        assert sorted(read(batch_reader(node, end=middle))) == writer.ids[: 3 * ROWS]
        assert sorted(read(batch_reader(node, start=before, end=middle))) == writer.ids[ROWS : 3 * ROWS]


def test_a_batch_from_a_pruned_position_is_the_rest_or_an_error() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        writer.put()
        node.prune("t", parent)
        assert read(batch_reader(node, start=json.dumps({str(parent): ROWS}))) == writer.ids[ROWS:]
        with pytest.raises(TruncatedError, match="rows 3 to 9"):
            batch_reader(node, start=json.dumps({str(parent): 3})).partitions()
        with pytest.raises(InvalidArgumentError, match="no such partition"):
            batch_reader(node, start='{"7": 3}').partitions()

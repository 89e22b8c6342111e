"""Spark over a topic that is split and merged, by a node in Python that stops where a test says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import ringfence.spark
from tests.fakes.lineage_client import ROWS, Writer, topic
from tests.fakes.lineage_node import LineageNode

# A task that fails once, in whichever worker: the mark is a file.
FAILS_ONCE = "fails_once"


class Stream:
    """A query with foreachBatch; `seen` has (batch, partition, id) of each row."""

    def __init__(self, spark: SparkSession, node: LineageNode, checkpoint: Path) -> None:
        self.spark, self.node, self.checkpoint = spark, node, checkpoint
        self.seen: list[tuple[int, int, int]] = []

    def run(self, **options: str) -> None:
        """All rows that are there now, in micro-batches."""

        def sink(rows: DataFrame, batch: int) -> None:
            found = rows.select("_partition", "id").collect()
            self.seen = [one for one in self.seen if one[0] != batch]  # a batch that is run again
            self.seen += [(batch, row["_partition"], row["id"]) for row in found]

        stream = self.spark.readStream.format("ringfence").option("address", self.node.address)
        rows = stream.option("metadata", "true").options(**options).load("t")
        made = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.checkpoint))
        made.trigger(availableNow=True).start().awaitTermination()

    @property
    def ids(self) -> list[int]:
        return sorted(one for _, _, one in self.seen)

    def last_offset(self) -> dict[str, object]:
        newest = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return dict(json.loads(newest.read_text().splitlines()[-1]))


def test_a_query_goes_on_from_its_checkpoint_over_splits_merges_and_prunes(
    spark: SparkSession, tmp_path: Path
) -> None:
    with topic(2) as (node, _):
        writer = Writer(node)
        stream = Stream(spark, node, tmp_path / "checkpoint")
        writer.put(first=0)
        writer.put(first=1)
        stream.run()
        assert stream.last_offset()["format"] == 2
        parents = sorted(node.topic_of("t").logs)
        writer.put(3, first=0)
        node.merge("t")
        writer.put()
        node.split("t", 0, 3)
        writer.put(first=0)
        writer.put(first=2)
        stream.run(maxRowsPerTrigger="8")
        assert stream.last_offset()["format"] == 3
        assert stream.ids == writer.ids
        by_batch: dict[int, set[int]] = {}
        for batch, partition, _ in stream.seen:
            by_batch.setdefault(batch, set()).add(partition)
        for partitions in by_batch.values():
            older = {one for partition in partitions for one in node.cut(partition).parents}
            assert not older & partitions, "a batch has rows of a parent and of its child"
        for one in parents:
            node.prune("t", one)
        writer.put(first=1)
        stream.run()
        assert stream.ids == writer.ids


def test_a_query_that_is_behind_a_pruned_partition_ends_with_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    with topic() as (node, _):
        writer = Writer(node)
        stream = Stream(spark, node, tmp_path / "checkpoint")
        writer.put()
        stream.run()
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        node.prune("t", parent)
        writer.put()
        with pytest.raises(StreamingQueryException, match="rows 10 to 19 were removed before they were read"):
            stream.run()
        stream.run(failOnDataLoss="false")
        assert stream.ids == [*range(ROWS), *range(2 * ROWS, 3 * ROWS)]


def test_a_job_planned_before_a_repartition_and_run_after_it_has_the_same_rows_though_a_task_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    with topic(2) as (node, _):
        writer = Writer(node)
        for _ in range(4):
            writer.put(first=0)
            writer.put(first=1)
        mark = tmp_path / FAILS_ONCE

        def failing(row: object) -> object:
            if not mark.exists():
                mark.touch()
                raise RuntimeError("a task fails once")
            return row

        planned = (
            spark.read.format("ringfence")
            .option("address", node.address)
            .option("rowsPerTask", "15")
            .load("t")
        )
        other = ringfence.spark.read(spark, address=node.address, topic="t", rows_per_task=15)
        count = writer.next
        node.commit("t", node.hold("t", 2), 20_000, 40_000)
        for first in range(3):
            writer.put(first=first)
        for table in (planned, other):
            mark.unlink(missing_ok=True)
            found = [row["id"] for row in table.rdd.map(failing).collect()]  # type: ignore[index]
            assert sorted(found) == list(range(count))
            assert mark.exists()
        newer = spark.read.format("ringfence").option("address", node.address).load("t")
        assert sorted(row["id"] for row in newer.collect()) == writer.ids

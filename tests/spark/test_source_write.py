"""`.format("ringfence")` writes exactly once: tasks die, jobs fail, batches are run again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import ringfence
import ringfence.spark
from tests.fakes.client_topic import ids_of
from tests.harness.processes import NodeProcess
from tests.spark.test_spark import ROWS, content_of, content_of_batches

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other


Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def dying_once(mark: Path, after: int = 3) -> Rows:
    """A `mapInArrow` function whose first task to get so far dies."""
    path = str(mark)

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == after:
                try:
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    raise RuntimeError("the task dies halfway")
            yield batch

    return die_once


def test_a_batch_write_is_exactly_once_whatever_its_tasks_do(
    spark: SparkSession, node: NodeProcess, lineitem: DataFrame, tmp_path: Path
) -> None:
    options = {"address": node.address, "topic": "sink", "createTopic": "true", "key": "l_orderkey"}
    dying = lineitem.mapInArrow(dying_once(tmp_path / "died"), lineitem.schema)
    dying.write.format("ringfence").options(**options, partitions="4").mode("append").save()
    assert (tmp_path / "died").exists(), "no task died"
    with ringfence.connect(node.address) as client:
        assert content_of_batches(client.read("sink")) == content_of(lineitem)

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        raise RuntimeError("always")

    failing = lineitem.mapInArrow(die, lineitem.schema)
    with pytest.raises(PySparkException):
        failing.write.format("ringfence").options(**options).mode("append").save()
    for _ in range(2):  # a job of a scheduler that runs it again
        daily = lineitem.limit(100).write.format("ringfence").options(**options)
        daily.option("scope", "daily").option("epoch", 7).mode("append").save()
    back = spark.read.format("ringfence").option("address", node.address).load("sink")
    assert content_of(back)[0] == ROWS + 100, "the failed job left nothing, the repeated one came once"


def test_each_commit_leaves_a_line_with_its_scope_and_epoch(
    spark: SparkSession, node: NodeProcess, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The function's in the driver's own log; the data source's where Spark keeps its workers' lines."""
    options = {"address": node.address, "topic": "logged", "scope": "told", "epoch": "3"}
    with caplog.at_level("INFO", "ringfence.spark"):
        ringfence.spark.write(
            spark.range(5), address=node.address, topic="logged", create=True, scope="told", epoch=2
        )
    said = r"public/default/logged: scope \d+, driver \d+, epoch {} committed: 5 rows by \d+ tasks"
    assert re.search(said.format(2), caplog.text), caplog.text
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        spark.range(5).write.format("ringfence").options(**options).mode("append").save()
        lines = [row.msg for row in spark.tvf.python_worker_logs().collect()]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert any(re.search(said.format(3), line) for line in lines), lines


def test_columns_that_do_not_fit_are_named_before_the_first_task(
    node: NodeProcess, lineitem: DataFrame
) -> None:
    with ringfence.connect(node.address) as client:
        client.create_topic("fits", schema=pa.schema([pa.field("l_orderkey", pa.int32(), nullable=False)]))
    writer = lineitem.select("l_comment").write.format("ringfence").option("address", node.address)
    with pytest.raises(PySparkException, match='column "l_comment" of the batch is not in the topic'):
        writer.mode("append").save("fits")
    text = lineitem.select(f.col("l_orderkey").cast("string")).write.format("ringfence")
    with pytest.raises(PySparkException, match=r"l_orderkey.*Utf8 does not become the topic's Int32"):
        text.option("address", node.address).mode("append").save("fits")
    with pytest.raises(PySparkException, match="not-there"):
        writer.mode("append").save("not-there")
    with pytest.raises(PySparkException, match="rows can only be appended to a topic"):
        writer.mode("overwrite").save("fits")


def test_a_stream_that_is_stopped_and_run_again_writes_each_micro_batch_once(
    spark: SparkSession, node: NodeProcess, lineitem: DataFrame, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    parts = lineitem.select("l_orderkey", "l_linenumber", "l_comment").limit(6000).repartition(3)
    parts.write.parquet(str(source))
    died = tmp_path / "died"

    def run(address: str = node.address) -> None:
        rows = spark.readStream.schema(parts.schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        rows = rows.mapInArrow(dying_once(died, after=0), parts.schema)
        sink = rows.writeStream.format("ringfence").option("address", address).option("topic", "stopped")
        sink = sink.option("createTopic", "true").option("key", "l_orderkey").option("partitions", 2)
        query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert not query.isActive

    run()
    assert died.exists()
    back = spark.read.format("ringfence").option("address", node.address)
    assert content_of(back.load("stopped")) == content_of(spark.read.parquet(str(source)))
    # The driver died between the commit of its last batch and its checkpoint: Spark runs that batch again.
    (last,) = sorted((checkpoint / "commits").glob("2"))
    last.unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    run()
    assert last.exists(), "the batch was run again"
    assert content_of(back.load("stopped")) == content_of(spark.read.parquet(str(source)))
    ordered = back.option("metadata", "true").load("stopped").groupBy("_partition")
    rows = ordered.agg(f.count("_offset"), f.max("_offset")).collect()
    assert all(row[1] == row[2] + 1 for row in rows), "offsets have no gap"


def test_a_write_that_finds_a_partition_full_of_stages_says_so_and_comes_whole_later(
    spark: SparkSession, node: NodeProcess
) -> None:
    with ringfence.connect(node.address, timeout_s=60) as client:
        client.create_topic("full", schema=pa.schema([("id", pa.int64())]))
        hog = client.transaction("full", scope="hog")
        one = pa.record_batch({"id": pa.array([0], pa.int64())})
        for _ in range(65_536):  # as many as a partition takes (core/node/src/transactions/staged_batches.rs)
            hog.send(one)
        hog.flush()
        frame = spark.range(1, 101, numPartitions=2)
        sink = frame.write.format("ringfence").option("address", node.address).mode("append")
        with pytest.raises(
            PySparkException, match=r"65536 batches.*staged here and not committed; commit or expire"
        ):
            sink.option("timeoutSeconds", 2).save("full")
        assert client.count("full") == 0
        hog.abort()
        sink.option("timeoutSeconds", 60).save("full")
        assert sorted(ids_of(client, "full")) == list(range(1, 101))

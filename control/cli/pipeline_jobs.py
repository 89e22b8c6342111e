"""Spark applications of the pipeline demo: `python -m ...pipeline_jobs JOB ADDRESS FOLDER`.

    ingest    stream the files into topics with two executors, exactly once, until all files are stored; print
              the number of running tasks whenever it changes; tasks wait while FOLDER/hold exists
    answers   join and aggregate the topics with two other streams, compact the topics to Parquet, and query
              the files for the same result; print a JSON line per answer

FOLDER has source/TABLE/*.parquet; the jobs write checkpoints/ and the compacted parquet/TABLE.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

import ringfence.spark
from ringfence.control.cli.demo_spark import QUICK, application
from ringfence.control.cli.output import emit
from ringfence.control.cli.pipeline_answers import (
    COLUMNS,
    DATE,
    HOLD,
    KEYS,
    SEGMENT,
    QueryAnswer,
    digest,
    query3,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Topic between the join and the aggregation, because Spark joins streams in append mode only.
JOINED: Final = "shipping"
# One file per executor, so that a killed executor has a task.
FILES_A_BATCH: Final = 2
# Spark's message if a Python process takes more than its fixed 10 s to start.
SLOW: Final = "Python worker failed to connect back"
TRIES_MAX: Final = 5
# Maximum number of lines, which fit into a pipe without a reader.
LINES_MAX: Final = 2000
POLL_S: Final = 0.02
# Maximum seconds that a task waits; the demo removes the file within seconds.
HOLD_S_MAX: Final = 300.0
EXECUTORS: Final = "local-cluster[2,1,1024]"
OPTIONS: Final = {
    **QUICK,
    "spark.sql.shuffle.partitions": "2",
    # Executors detect a killed driver by its connection, and a driver that hangs by this timeout.
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
}


def ingest(spark: SparkSession, address: str, folder: Path) -> None:
    """Stream the files of each table into the topic of its name, a few files per micro-batch."""
    sinks = []
    for table in KEYS:
        files = folder / "source" / table
        schema = spark.read.parquet(str(files)).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(files))
        rows = rows.mapInArrow(_hold_rows(str(folder / HOLD)), schema)
        sinks.append(_into(rows, address, table, folder))
    queries = [sink.start() for sink in sinks]
    _watch(spark, queries)
    for sink, query in zip(sinks, queries, strict=True):
        _await_end(sink, query)


def _hold_rows(path: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that holds batches while the file exists, so that kills interrupt running tasks."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            end = time.monotonic() + HOLD_S_MAX
            while Path(path).exists() and time.monotonic() < end:
                time.sleep(POLL_S)
            yield batch

    return hold


def _await_end(sink: DataStreamWriter, query: StreamingQuery) -> None:
    """Wait for the end of a query. Raises its error, but restarts it if Python started too slowly."""
    for left in reversed(range(TRIES_MAX)):
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not left or SLOW not in str(error):
                raise
            query = sink.start()  # from its checkpoint
        else:
            return


def _watch(spark: SparkSession, queries: list[StreamingQuery]) -> None:
    """Print the number of running tasks until the queries end. The demo kills executors with tasks."""
    tracker, lines, printed = spark.sparkContext.statusTracker(), 0, 0
    while any(query.isActive for query in queries):
        stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
        tasks = sum(stage.numActiveTasks for stage in stages)
        if tasks != printed and lines < LINES_MAX:
            emit({"tasks": tasks})
            printed, lines = tasks, lines + 1
        time.sleep(POLL_S)


def answers(spark: SparkSession, address: str, folder: Path) -> None:
    """Print a QueryAnswer per line; the first is the answer of the original files."""
    _views(spark, {table: [str(folder / "source" / table)] for table in ("customer", *KEYS)})
    _print_answer("Spark, original files", lambda: spark.sql(query3("customer", *KEYS)))
    _print_answer("Spark, streams over the topics", lambda: _streamed(spark, address, folder))
    began = time.perf_counter()
    added = []
    for table, key in KEYS.items():
        done = ringfence.spark.compact(
            spark, address=address, topic=table, directory=folder / "parquet" / table, sort=[key]
        )
        done.table.createOrReplaceTempView(table)
        added.append(done.added)
    emit(
        {
            "compacted": sum(each.rows for each in added),
            "files": sum(each.files for each in added),
            "bytes": sum(each.bytes for each in added),
            "seconds": time.perf_counter() - began,
        }
    )
    _print_answer("Spark, compacted Parquet", lambda: spark.sql(query3("customer", *KEYS)))


def _views(spark: SparkSession, paths: dict[str, list[str]]) -> None:
    for name, files in paths.items():
        spark.read.parquet(*files).createOrReplaceTempView(name)


def _into(rows: DataFrame, address: str, topic: str, folder: Path) -> DataStreamWriter:
    sink = rows.writeStream.format("ringfence").option("address", address).option("topic", topic)
    sink = sink.option("checkpointLocation", str(folder / "checkpoints" / topic)).queryName(topic)
    return sink.trigger(availableNow=True)


def _streamed(spark: SparkSession, address: str, folder: Path) -> DataFrame:
    """Run query 3 with streams: join lines and orders into a topic, and sum up the topic."""

    def topic(name: str, columns: str) -> DataFrame:
        source = spark.readStream.format("ringfence").option("address", address).option("columns", columns)
        return source.load(name)

    lines = topic("lineitem", "l_orderkey,l_extendedprice,l_discount,l_shipdate")
    lines = lines.where(sf.col("l_shipdate") > DATE)
    orders = topic("orders", "o_orderkey,o_custkey,o_orderdate,o_shippriority")
    buyers = spark.table("customer").where(sf.col("c_mktsegment") == SEGMENT).select("c_custkey")
    orders = orders.where(sf.col("o_orderdate") < DATE).join(buyers, sf.expr("o_custkey = c_custkey"))
    joined = lines.join(orders, sf.expr("l_orderkey = o_orderkey")).select(
        "l_orderkey",
        "o_orderdate",
        "o_shippriority",
        sf.expr("l_extendedprice * (1 - l_discount)").alias("revenue"),
    )
    with ringfence.connect(address) as client:
        client.create_topic(
            JOINED,
            schema=ringfence.spark.arrow_schema(joined.schema),
            key=["l_orderkey"],
            partitions=2,
            replication=3,
        )
    sink = _into(joined, address, JOINED, folder)
    _await_end(sink, sink.start())
    parts = spark.readStream.format("ringfence").option("address", address).load(JOINED)
    sums = parts.groupBy("l_orderkey", "o_orderdate", "o_shippriority")
    sink = sums.agg(sf.sum("revenue").alias("revenue")).writeStream.format("memory").outputMode("complete")
    sink = sink.option("checkpointLocation", str(folder / "checkpoints" / "sums")).queryName("sums")
    sink = sink.trigger(availableNow=True)
    _await_end(sink, sink.start())
    return spark.table("sums")


def _print_answer(name: str, query: Callable[[], DataFrame]) -> None:
    began = time.perf_counter()
    rows, hashed = digest(tuple(row) for row in query().select(*COLUMNS).collect())
    emit(QueryAnswer(name, rows, hashed, time.perf_counter() - began).values())


if __name__ == "__main__":
    job, address_of_nodes, where = sys.argv[1:]
    if job == "ingest":
        with application(EXECUTORS, OPTIONS) as session:
            ingest(session, address_of_nodes, Path(where))
    else:
        with application("local[2]", OPTIONS) as session:
            answers(session, address_of_nodes, Path(where))

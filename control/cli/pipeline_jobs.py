"""The Spark applications of the pipeline's demo: `python -m ...pipeline_jobs JOB ADDRESS FOLDER`.

    ingest    two executors; streams of files into topics, exactly once, until every file is in; prints how
              many tasks run whenever that changes; tasks wait while FOLDER/hold is there
    answers   a second pair of streams joins and aggregates the topics, a job compacts them to Parquet, batch
              queries over the files are asked for the same; a line of JSON for each answer

FOLDER has source/TABLE/*.parquet and gets checkpoints/, and parquet/TABLE of the compaction.
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
from ringfence.control.cli.pipeline_answers import COLUMNS, DATE, HOLD, KEYS, SEGMENT, Answer, digest, query3

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# The topic between the join and the aggregation: Spark joins streams in append mode only.
JOINED: Final = "shipping"
# One for each executor, so that a killed one has a task.
FILES_A_BATCH: Final = 2
# What Spark says of a Python process that took more than its fixed 10 s to start.
SLOW: Final = "Python worker failed to connect back"
TRIES_MAX: Final = 5
# So many short lines fit into a pipe that nobody reads.
LINES_MAX: Final = 2000
LOOK_S: Final = 0.02
# So long a task waits at most; the story takes the file away within seconds.
HOLD_S_MAX: Final = 300.0
EXECUTORS: Final = "local-cluster[2,1,1024]"
OPTIONS: Final = {
    **QUICK,
    "spark.sql.shuffle.partitions": "2",
    # Executors of a local cluster miss a killed driver by its connection; one that only hangs, by this.
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
}


def ingest(spark: SparkSession, address: str, folder: Path) -> None:
    """Each table's files into the topic of its name, a few files a micro-batch."""
    sinks = []
    for table in KEYS:
        files = folder / "source" / table
        schema = spark.read.parquet(str(files)).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(files))
        rows = rows.mapInArrow(_held(str(folder / HOLD)), schema)
        sinks.append(_into(rows, address, table, folder))
    queries = [sink.start() for sink in sinks]
    _watch(spark, queries)
    for sink, query in zip(sinks, queries, strict=True):
        _ended(sink, query)


def _held(path: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Tasks wait, rows in hand, while the file is there: what is killed then is killed in the middle."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            end = time.monotonic() + HOLD_S_MAX
            while Path(path).exists() and time.monotonic() < end:
                time.sleep(LOOK_S)
            yield batch

    return passed


def _ended(sink: DataStreamWriter, query: StreamingQuery) -> None:
    """Wait for the end of a query. Raises what it failed with, unless a slow machine explains it."""
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
    """Tell of running tasks until the queries have ended: who kills an executor wants it to have one."""
    tracker, told, seen = spark.sparkContext.statusTracker(), 0, 0
    while any(query.isActive for query in queries):
        stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
        tasks = sum(stage.numActiveTasks for stage in stages)
        if tasks != seen and told < LINES_MAX:
            emit({"tasks": tasks})
            seen, told = tasks, told + 1
        time.sleep(LOOK_S)


def answers(spark: SparkSession, address: str, folder: Path) -> None:
    """Prints an Answer a line; the first is that of the original files."""
    _views(spark, {table: [str(folder / "source" / table)] for table in ("customer", *KEYS)})
    _tell("Spark, original files", lambda: spark.sql(query3("customer", *KEYS)))
    _tell("Spark, streams over the topics", lambda: _streamed(spark, address, folder))
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
            "compacted": sum(one.rows for one in added),
            "files": sum(one.files for one in added),
            "bytes": sum(one.bytes for one in added),
            "seconds": time.perf_counter() - began,
        }
    )
    _tell("Spark, compacted Parquet", lambda: spark.sql(query3("customer", *KEYS)))


def _views(spark: SparkSession, paths: dict[str, list[str]]) -> None:
    for name, files in paths.items():
        spark.read.parquet(*files).createOrReplaceTempView(name)


def _into(rows: DataFrame, address: str, topic: str, folder: Path) -> DataStreamWriter:
    sink = rows.writeStream.format("ringfence").option("address", address).option("topic", topic)
    sink = sink.option("checkpointLocation", str(folder / "checkpoints" / topic)).queryName(topic)
    return sink.trigger(availableNow=True)


def _streamed(spark: SparkSession, address: str, folder: Path) -> DataFrame:
    """Query 3 by streams: lines and orders are joined into a topic, which another stream sums up."""

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
    _ended(sink, sink.start())
    parts = spark.readStream.format("ringfence").option("address", address).load(JOINED)
    sums = parts.groupBy("l_orderkey", "o_orderdate", "o_shippriority")
    sink = sums.agg(sf.sum("revenue").alias("revenue")).writeStream.format("memory").outputMode("complete")
    sink = sink.option("checkpointLocation", str(folder / "checkpoints" / "sums")).queryName("sums")
    sink = sink.trigger(availableNow=True)
    _ended(sink, sink.start())
    return spark.table("sums")


def _tell(name: str, made: Callable[[], DataFrame]) -> None:
    began = time.perf_counter()
    rows, hashed = digest(tuple(row) for row in made().select(*COLUMNS).collect())
    emit(Answer(name, rows, hashed, time.perf_counter() - began).values())


if __name__ == "__main__":
    job, address_of_nodes, where = sys.argv[1:]
    if job == "ingest":
        with application(EXECUTORS, OPTIONS) as made_session:
            ingest(made_session, address_of_nodes, Path(where))
    else:
        with application("local[2]", OPTIONS) as made_session:
            answers(made_session, address_of_nodes, Path(where))

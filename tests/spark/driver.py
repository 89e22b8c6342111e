"""A Spark driver in a process of its own, to be killed: python -m tests.spark.driver KIND ADDRESS FOLDER DIE.

batch: ids 0 to 19,999 into topic `nightly`, scope and epoch given. DIE=commit kills the driver between its
stages and its commit, and one Python worker on the way; with "" nobody dies. DIE=wait: into
`interrupted-driver`, and each task leaves the mark `waits` in FOLDER and stands still in its middle;
DIE=again: there, to the end. stream: the Parquet files of FOLDER/source into `streamed`, one a micro-batch.
compact: topic `compacted` into FOLDER/out, and the driver is killed before the DIE-th file gets its name.
cohort: topic `followed` into FOLDER/out without end, as the member of the cohort `loads`.
held: as stream, into `rivals`; the id of its run is told, and from id HELD on it waits for FOLDER/go.
What comes behind a driver's death a test does with these functions, in a session of its own.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ringfence.spark
from ringfence.control.cli.demo_spark import QUICK
from ringfence.control.cli.output import emit
from ringfence.spark import sink_commit
from ringfence.spark.schema import use_this_python

ROWS = 20_000
ROWS_A_FILE = 1_000
HELD = 5_500
"""In the middle of a micro-batch of 4,000 rows, the second."""
PATIENCE_S = 600.0
"""Longer than a test waits for a driver: a task that stands still ends with its driver."""

Batches = Iterator[pa.RecordBatch]
Step = Callable[[Batches], Batches]


def session() -> SparkSession:
    use_this_python()
    builder = SparkSession.builder.master("local[2,4]").appName("ringfence-driver")
    for name, value in {
        **QUICK,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "600m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def die(*_: Any, **__: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


def batch(spark: SparkSession, address: str, folder: str, how: str) -> tuple[int, bool]:
    """Rows, and whether an earlier run had committed them."""
    mark, topic = str(Path(folder) / "worker-died"), "nightly"

    def killed_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(batches):
            if number == 2 and how == "commit":
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            yield rows

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(batches):
            if number == 2:
                (Path(folder) / "waits").touch()
                time.sleep(PATIENCE_S)
            yield rows

    df = spark.range(0, ROWS, numPartitions=4)
    df = df.mapInArrow(waiting if how == "wait" else killed_once, df.schema)
    if how == "commit":
        sink_commit.commit = die
    if how in ("wait", "again"):
        topic = "interrupted-driver"
    result = ringfence.spark.write(
        df, address=address, topic=topic, create=True, key=["id"], partitions=3, scope=topic, epoch=7
    )
    return result.rows, result.already


def compact(spark: SparkSession, address: str, folder: str) -> ringfence.spark.CompactedTable:
    return ringfence.spark.compact(
        spark, address=address, topic="compacted", directory=Path(folder) / "out", rows_per_file=ROWS_A_FILE
    )


def die_at_name(number: int) -> None:
    """Kill this process before the file of this number gets its name; the manifest is not counted."""
    real, names = os.rename, itertools.count(1)

    def rename(source: Any, target: Any) -> None:
        name = Path(target).name
        if name.endswith(".parquet") and not name.startswith("_") and next(names) == number:
            die()
        real(source, target)

    os.rename = rename  # type: ignore[assignment]


def stream(spark: SparkSession, address: str, folder: str) -> None:
    started(spark, address, folder, "streamed").awaitTermination()


def held(spark: SparkSession, address: str, folder: str) -> StreamingQuery:
    """A query that leaves the mark `waits` in its second micro-batch, and goes on with `go`."""

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            if rows.column("id")[0].as_py() >= HELD:
                (Path(folder) / "waits").touch()
                end = time.monotonic() + PATIENCE_S
                while not (Path(folder) / "go").exists():
                    assert time.monotonic() < end, "nobody let it go"
                    time.sleep(0.05)
            yield rows

    return started(spark, address, folder, "rivals", waiting)


def followed(spark: SparkSession, address: str, folder: str, cohort: str = "loads") -> StreamingQuery:
    """A query that is the member of a cohort."""
    source = spark.readStream.format("ringfence").option("address", address).option("cohort", cohort)
    sink = source.load("followed").writeStream.format("parquet").option("path", str(Path(folder) / "out"))
    return sink.option("checkpointLocation", str(Path(folder) / "checkpoint")).start()


def started(
    spark: SparkSession, address: str, folder: str, topic: str, step: Step = lambda batches: batches
) -> StreamingQuery:
    root = Path(folder)
    files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    rows = files.parquet(str((root / "source").resolve()))  # a checkpoint knows files by their whole names
    rows = rows.mapInArrow(step, rows.schema)
    sink = rows.writeStream.format("ringfence").option("address", address).option("topic", topic)
    sink = sink.option("createTopic", "true").option("key", "id").option("partitions", 2)
    return sink.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True).start()


if __name__ == "__main__":
    kind, at, where = sys.argv[1:4]
    if kind == "batch":
        batch(session(), at, where, sys.argv[4])
    elif kind == "compact":
        die_at_name(int(sys.argv[4]))
        compact(session(), at, where)
    elif kind == "cohort":
        followed(session(), at, where).awaitTermination()
    elif kind == "held":
        query = held(session(), at, where)
        emit({"run": str(query.runId)})
        query.awaitTermination()
    else:
        stream(session(), at, where)

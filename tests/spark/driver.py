"""A Spark driver in a process of its own, to be killed: python -m tests.spark.driver KIND ADDRESS FOLDER DIE.

batch: ids 0 to 19,999 into topic `nightly`, scope and epoch given. DIE=commit kills the driver between its
stages and its commit, and one Python worker on the way; with "" nobody dies. DIE=wait: into
`interrupted-driver`, and each task leaves the mark `waits` in FOLDER and stands still in its middle;
DIE=again: there, to the end. stream: the Parquet files of FOLDER/source into `streamed`, one a micro-batch.
What comes behind a driver's death a test does with these functions, in a session of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession

import ringfence.spark
from ringfence.control.cli.demo_spark import QUICK
from ringfence.spark.schema import use_this_python
from ringfence.spark.staging import Target

ROWS = 20_000
PATIENCE_S = 600.0
"""Longer than a test waits for a driver: a task that stands still ends with its driver."""


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
        Target.commit = die  # type: ignore[method-assign]
    if how in ("wait", "again"):
        topic = "interrupted-driver"
    result = ringfence.spark.write(
        df, address=address, topic=topic, create=True, key=["id"], partitions=3, scope=topic, epoch=7
    )
    return result.rows, result.already


def stream(spark: SparkSession, address: str, folder: str) -> None:
    root = Path(folder)
    files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    rows = files.parquet(str(root / "source"))
    sink = rows.writeStream.format("ringfence").option("address", address).option("topic", "streamed")
    sink = sink.option("createTopic", "true").option("key", "id").option("partitions", 2)
    query = sink.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    kind, at, where = sys.argv[1:4]
    if kind == "batch":
        batch(session(), at, where, sys.argv[4])
    else:
        stream(session(), at, where)

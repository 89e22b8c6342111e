"""The steps of the demo that Spark does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ringfence.spark
from ringfence.control.cli.demo_steps import Step


@contextmanager
def session() -> Iterator[SparkSession]:
    """A local Spark with two cores; its workers use this interpreter."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("ringfence demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def write(spark: SparkSession, address: str, topic: str, source: Path) -> Step:
    """Send the file through `mapInArrow`, one producer a task."""
    frame = spark.read.parquet(os.fspath(source))
    began = time.perf_counter()
    result = ringfence.spark.write(frame, address=address, topic=topic)
    return Step("Spark wrote, on disk", result.rows, 0, None, time.perf_counter() - began)


def read(spark: SparkSession, address: str, topic: str) -> Step:
    """Read the topic as a DataFrame and hash it inside Spark."""
    began = time.perf_counter()
    rows, digest = content(ringfence.spark.read(spark, address=address, topic=topic))
    return Step("Spark read", rows, 0, digest, time.perf_counter() - began)


def content(frame: DataFrame) -> tuple[int, int]:
    """Rows and content hash, as `demo_steps.Content` has them."""
    hashed = sf.xxhash64(*[sf.col(name) for name in frame.columns]).cast("decimal(38,0)")
    found = frame.agg(sf.count(sf.lit(1)), sf.sum(hashed)).head()
    assert found is not None, "an aggregate has one row"
    return int(found[0]), int(found[1] or 0) % (1 << 64)

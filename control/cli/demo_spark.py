"""Steps of the demo that use Spark."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ringfence.spark
from ringfence.control.cli.demo_steps import DemoStep

# Lines of Java's output in an error: a Java error with its causes fits.
LINES_MAX = 40
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Options for short applications, which spend most of their time in the start of Java and its compiler.
QUICK = {"spark.driver.extraJavaOptions": JAVA, "spark.executor.extraJavaOptions": JAVA}


@contextmanager
def session() -> Iterator[SparkSession]:
    """Start a local Spark with two cores; its workers use this interpreter.

    Java's output on stderr (module, host name and log4j notices) is shown only after an error.
    """
    with tempfile.TemporaryFile() as written, ExitStack() as stack:
        try:
            with _stderr_to(written.fileno()):
                spark = stack.enter_context(application("local[2]"))
            spark.sparkContext.setLogLevel("ERROR")
            yield spark
        except Exception:
            written.seek(0)
            lines = written.read().decode(errors="replace").splitlines()
            click.echo("\n".join(lines[-LINES_MAX:]), err=True)
            raise


@contextmanager
def application(master: str, options: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start a Spark without a user interface and stop it at the end; its workers use this interpreter."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .appName("ringfence demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(map=dict(options or {}))
    )
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Let processes that start in the block inherit `descriptor` as stderr."""
    sys.stderr.flush()
    original = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)


def write(spark: SparkSession, address: str, topic: str, source: Path) -> DemoStep:
    """Send the file through `mapInArrow`, with one producer per task."""
    frame = spark.read.parquet(os.fspath(source))
    began = time.perf_counter()
    result = ringfence.spark.write(frame, address=address, topic=topic)
    return DemoStep("Spark wrote, on disk", result.rows, 0, None, time.perf_counter() - began)


def read(spark: SparkSession, address: str, topic: str) -> DemoStep:
    """Read the topic as a DataFrame and hash it inside Spark."""
    began = time.perf_counter()
    rows, digest = content(ringfence.spark.read(spark, address=address, topic=topic))
    return DemoStep("Spark read", rows, 0, digest, time.perf_counter() - began)


def content(frame: DataFrame) -> tuple[int, int]:
    """Return the number of rows and the content hash, equal to those of `demo_steps.Content`."""
    hashed = sf.xxhash64(*[sf.col(name) for name in frame.columns]).cast("decimal(38,0)")
    result = frame.agg(sf.count(sf.lit(1)), sf.sum(hashed)).head()
    assert result is not None, "an aggregate has one row"
    return int(result[0]), int(result[1] or 0) % (1 << 64)

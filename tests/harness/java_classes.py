"""The classes of Spark in one file, which each Java process of the tests maps instead of reading all jars.

Class data sharing of an application's classes (JEP 350, https://openjdk.org/jeps/350). A local Spark that
starts and counts some rows costs half of the processor time with it: `python -m tests.harness.java_classes`
prints both. Java itself looks whether the file fits its version and its jars, and goes on without it if not.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from ringfence.control.cli.demo_spark import QUICK, application

VARIABLE = "JDK_JAVA_OPTIONS"
"""Read by each `java`: by the driver, by executors and by the launcher in front of them."""
WRITE_TIMEOUT_S = 600.0
"""About 40 s of a core; a loaded machine takes some minutes."""


def share_classes() -> None:
    """Let each Java process that starts from here on use the file, which is written by the first who asks."""
    file = _file()
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _write(file)
    os.environ[VARIABLE] = _options(file)


def _options(file: Path) -> str:
    # Without a log: where the file does not fit, Java would say so on stdout, which a program may parse.
    return f"-XX:SharedArchiveFile={file} -Xlog:disable"


def _file() -> Path:
    """Of this environment, this Java and this Spark."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    version = re.search(r'version "([^"]+)"', said)
    assert version is not None, f"java -version says no version: {said!r}"
    return Path(sys.prefix) / f"java-{version[1]}-spark-{pyspark.__version__}.classes"


def _write(file: Path) -> None:
    """By a Java that ends in good order; a run that was killed leaves nothing under the name."""
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    _run(f"-XX:ArchiveClassesAtExit={part} -Xlog:disable")
    part.rename(file)


def _run(options: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.harness.java_classes", "run"],
        env=os.environ | {VARIABLE: options},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=WRITE_TIMEOUT_S,
    )


def _use_spark(folder: Path) -> None:
    """What the tests' jobs do most: a shuffle, files, Arrow to Python and back, a stream."""
    with application("local[2]", QUICK) as spark:
        rows = spark.range(0, 10_000, numPartitions=4)
        rows.selectExpr("id % 7 AS k", "CAST(id AS string) AS s").groupBy("k").count().collect()
        rows.write.parquet(str(folder / "rows"))
        same = spark.read.parquet(str(folder / "rows")).mapInArrow(lambda batches: batches, rows.schema)
        assert same.count() == 10_000
        stream = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
        sink = stream.writeStream.format("parquet").option("path", str(folder / "out"))
        sink.option("checkpointLocation", str(folder / "at")).trigger(
            availableNow=True
        ).start().awaitTermination()
        gateway = spark.sparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # Java writes the file when it ends


def _processor_s(options: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        with TemporaryDirectory() as name:
            _use_spark(Path(name))
    else:
        share_classes()
        without, with_file = _processor_s("-Xlog:disable"), _processor_s(os.environ[VARIABLE])
        print(
            f"processor seconds of a short Spark: {without:.1f} without, {with_file:.1f} with {_file().name}"
        )

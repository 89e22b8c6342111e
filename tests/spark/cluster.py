"""A Spark driver with two executors in processes of their own: python -m tests.spark.cluster ADDRESS.

It reads one JSON object a line, {"scenario": NAME, "topic": TOPIC, "folder": FOLDER, "rows": N}, writes rows
into the topic as the scenario says, and prints {"rows": N, "digest": HASH} of what it wanted to write, or
{"error": TEXT}. FOLDER is where tasks leave marks, and find those that let them go on. With {"source": TOPIC}
it is a stream that reads the rows from another topic.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession

from ringfence.control.cli.demo_spark import QUICK, application, content
from ringfence.control.cli.output import emit
from ringfence.control.cli.spark_process import EXECUTOR

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Of one executor each: Spark runs no second attempt beside a first on the same host."""
MEMORY_MB = 2048
OPTIONS = {
    **QUICK,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    # Of tasks that read no files Spark knows no rate; and on a slow machine any task may be doubled.
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.minTaskRuntime": "2s",
}
TASKS = 4
SHUFFLED = 6
"""Partitions of a shuffle: more than the cores, so that tasks begin after the death of an executor."""
READS = 3
"""Micro-batches of a stream that reads a topic."""
PATIENCE_S = 120.0
Batches = Iterator[pa.RecordBatch]


class Step:
    """What a scenario does to the rows of each task; it travels to the workers."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        yield from self.rows(batches, task, attempt)

    def rows(self, batches: Batches, task: int, attempt: int) -> Batches:
        """Every row once, in whatever order."""
        yield from batches

    def mark(self, name: str) -> bool:
        """True for the first who asks."""
        try:
            os.close(os.open(Path(self.folder, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def wait(self, name: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not Path(self.folder, name).exists():
            if time.monotonic() > end:
                self.mark(f"no-{name}")  # the attempt that is made for this one must not hide it
                raise AssertionError(f"nobody made {name}")
            time.sleep(0.02)


class Plain(Step):
    pass


class ExecutorDies(Step):
    """The executor of the first task that comes to its third batch is killed."""

    def rows(self, batches: Batches, task: int, attempt: int) -> Batches:
        for number, batch in enumerate(batches):
            if number == 2 and self.mark("killed"):
                os.kill(executor(), signal.SIGKILL)
            yield batch


class Waits(Step):
    """The first task stops in the middle until the test has done what it wants to."""

    def rows(self, batches: Batches, task: int, attempt: int) -> Batches:
        for number, batch in enumerate(batches):
            if number == 4 and task == 0:
                self.mark("waits")
                self.wait("go")
            yield batch


class Straggles(Step):
    """The first attempt of a task has given all its rows and does not end: Spark runs another beside it."""

    def rows(self, batches: Batches, task: int, attempt: int) -> Batches:
        yield from batches
        if task == 0 and attempt == 0:
            self.mark("straggles")
            self.wait("doubled")
            time.sleep(PATIENCE_S)  # Spark ends it when the other one is done
            self.mark("never-ended")
        if task == 0 and attempt > 0:
            self.mark("doubled")


class Reorders(Step):
    """Each task fails at its end, and gives its rows in another order when it is tried again."""

    def rows(self, batches: Batches, task: int, attempt: int) -> Batches:
        kept = list(batches)
        if attempt % 2 == 0:
            yield from kept
            if self.mark(f"failed-{task}"):
                raise RuntimeError("the task fails behind its last row")
        else:
            for batch in reversed(kept):
                yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))


class ShuffleLost(Step):
    """Behind a shuffle. An executor dies with its shuffle files when a task has given its third batch.

    Tasks that come later fetch from it in vain: Spark runs the stage before once more, and then this one.
    """

    def rows(self, batches: Batches, task: int, attempt: int) -> Batches:
        if attempt == 0 and not self.mark(f"task-{task}"):
            self.mark("stage-again")  # attempts are counted from 0 in each attempt of a stage
        for number, batch in enumerate(batches):
            if number == 2 and self.mark("killed"):
                os.kill(executor(), signal.SIGKILL)
            yield batch


STEPS: dict[str, type[Step]] = {
    "shuffle": ShuffleLost,
    "plain": Plain,
    "executor": ExecutorDies,
    "waits": Waits,
    "straggles": Straggles,
    "reorders": Reorders,
}


def executor() -> int:
    """Process id of the JVM that this Python worker works for."""
    pid = os.getpid()
    for _ in range(5):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if EXECUTOR.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("no executor above this worker")


def table(spark: SparkSession, rows: int) -> DataFrame:
    """Of about 200 bytes a row."""
    return spark.range(0, rows, numPartitions=TASKS).selectExpr("id", "repeat(md5(string(id)), 6) AS text")


def run(spark: SparkSession, address: str, asked: dict[str, Any]) -> tuple[int, int]:
    """Rows and content hash of what the topic must have."""
    step = STEPS[asked["scenario"]](asked["folder"])
    truth = table(spark, asked["rows"])
    if asked.get("source"):
        reader = spark.readStream.format("ringfence").option("address", address)
        rows = reader.option("maxRowsPerTrigger", asked["rows"] // READS).load(asked["source"])
        _into(address, asked, rows.select("id", "text").mapInArrow(step, truth.schema))
    elif asked.get("stream"):
        _stream(spark, address, asked, step)
    else:
        rows = truth.repartition(SHUFFLED, "id") if asked["scenario"] == "shuffle" else truth
        made = rows.mapInArrow(step, truth.schema)
        made.write.format("ringfence").option("address", address).mode("append").save(asked["topic"])
    return content(truth)


def _stream(
    spark: SparkSession, address: str, asked: dict[str, Any], step: Callable[[Batches], Batches]
) -> None:
    """The rows as files, two a micro-batch."""
    source = str(Path(asked["folder"]) / "source")
    truth = table(spark, asked["rows"])
    if not Path(source).exists():
        truth.repartition(6).write.parquet(source)
    files = spark.readStream.schema(truth.schema).option("maxFilesPerTrigger", 2).parquet(source)
    _into(address, asked, files.mapInArrow(step, truth.schema))


def _into(address: str, asked: dict[str, Any], rows: DataFrame) -> None:
    """What there is of a stream, into the topic."""
    checkpoint = str(Path(asked["folder"]) / "checkpoint")
    sink = rows.writeStream.format("ringfence").option("address", address).option("topic", asked["topic"])
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def started() -> str:
    """Address of a Spark master with a worker on each host, all in the driver's Java.

    `local-cluster` starts them the same way, but gives all workers one host.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(OPTIONS.items())))
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert gateway is not None and jvm is not None
    conf = jvm.org.apache.spark.SparkConf().set("spark.master.rest.enabled", "false")
    deploy, option = jvm.org.apache.spark.deploy, jvm.scala.Option
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = master._1().address().toSparkURL()
    for number, host in enumerate(HOSTS, 1):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, MEMORY_MB, masters, None, option.apply(number), conf, option.empty()
        )
    return str(masters[0])


def main(address: str) -> None:
    with application(started(), OPTIONS) as spark:
        for line in sys.stdin:
            try:
                rows, digest = run(spark, address, json.loads(line))
            except Exception as error:  # noqa: BLE001 - the test that asked is told
                emit({"error": f"{type(error).__name__}: {error}"})
            else:
                emit({"rows": rows, "digest": digest})


if __name__ == "__main__":
    main(sys.argv[1])

"""Spark jobs that are planned before a repartition of a real topic and run after it are exact."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import ringfence
import ringfence.spark
from tests.harness.layout_load import repartitioned
from tests.harness.processes import NodeProcess, batch, until

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other

PATIENCE_S = 120.0
Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def created(client: ringfence.Client, topic: str, rows: int = 0, partitions: int = 1) -> None:
    client.create_topic(topic, schema=batch(0, 1).schema, key=["id"], partitions=partitions)
    if rows:
        with client.producer(topic) as producer:
            for start in range(0, rows, 100):
                producer.send(batch(start, 100))


def ids_of(client: ringfence.Client, topic: str) -> list[int]:
    return sorted(one for part in client.read(topic) for one in part.column("id").to_pylist())


def claim(path: str) -> bool:
    """True for the first who asks."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def waits_and_dies(folder: Path, after: int) -> Rows:
    """Each task stops in its middle until the file `go` is there; then one of them dies, once."""
    there, go, died = (str(folder / name) for name in ("waits", "go", "died"))

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(batches):
            if number == after:
                Path(there).touch()
                end = time.monotonic() + PATIENCE_S
                while not Path(go).exists():
                    assert time.monotonic() < end, "nobody let the task go"
                    time.sleep(0.02)
                if claim(died):
                    raise RuntimeError("a task dies after the repartition")
            yield rows

    return step


def dies_once(mark: Path) -> Rows:
    path = str(mark)

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            if claim(path):
                raise RuntimeError("a task dies once")
            yield rows

    return step


def test_reads_that_were_planned_before_a_repartition_have_the_rows_of_their_plan(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    with ringfence.connect(node.address, timeout_s=60) as client:
        created(client, "read-early", 2_000, partitions=2)
        source = spark.read.format("ringfence").option("address", node.address).option("rowsPerTask", "300")
        planned = source.load("read-early")
        planned.rdd.getNumPartitions()  # Spark plans here
        other = ringfence.spark.read(spark, address=node.address, topic="read-early", rows_per_task=300)
        client.admin.repartition("read-early", 5)
        with client.producer("read-early") as producer:
            producer.send(batch(2_000, 500)).result(60)
        client.admin.repartition("read-early", 1)
        for number, table in enumerate((planned, other)):
            mark = tmp_path / f"died-{number}"
            found = table.select("id").mapInArrow(dies_once(mark), "id bigint").collect()
            assert sorted(row["id"] for row in found) == list(range(2_000))
            assert mark.exists(), "no task died"
        newer = spark.read.format("ringfence").option("address", node.address).load("read-early")
        assert sorted(row["id"] for row in newer.select("id").collect()) == list(range(2_500))


def test_a_write_whose_tasks_began_before_two_repartitions_is_exact_though_a_task_dies(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    """Some rows are staged in partitions that are sealed when the job commits."""
    rows = 12_000
    frame = spark.range(0, rows, numPartitions=2).selectExpr(
        "id", "id AS producer", "md5(string(id)) AS text"
    )
    with ringfence.connect(node.address, timeout_s=60) as client:
        created(client, "write-early", partitions=2)
        step = frame.mapInArrow(waits_and_dies(tmp_path, after=2), frame.schema)
        failed: list[BaseException] = []

        def change() -> None:
            try:
                until((tmp_path / "waits").exists, 120, "a task in its middle")
                repartitioned(client, "write-early", 5)
                repartitioned(client, "write-early", 3)
            except BaseException as error:  # noqa: BLE001 - the test shows it
                failed.append(error)
            finally:
                (tmp_path / "go").touch()

        # Spark finds data sources of Python only in threads that have an active session: this one.
        changing = threading.Thread(target=change)
        changing.start()
        step.write.format("ringfence").option("address", node.address).mode("append").save("write-early")
        changing.join()
        assert failed == []
        assert (tmp_path / "died").exists(), "no task died"
        assert ids_of(client, "write-early") == list(range(rows))


def test_streams_in_and_out_go_on_over_repartitions_between_and_during_their_runs(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    with ringfence.connect(node.address, timeout_s=60) as client:
        created(client, "stream-from", 1_000)
        created(client, "stream-into", partitions=2)
        counts = iter((3, 5, 2, 4, 1, 6, 2, 3, 1, 4))
        batches: list[tuple[int, list[int]]] = []

        def sink(rows: DataFrame, number: int) -> None:
            batches.append((number, sorted(row["id"] for row in rows.select("id").collect())))
            out = rows.write.format("ringfence").option("address", node.address)
            out.option("scope", "copy").option("epoch", number + 1).mode("append").save("stream-into")
            for topic in ("stream-from", "stream-into"):
                client.admin.repartition(topic, next(counts, 2))

        def run() -> None:
            source = spark.readStream.format("ringfence").option("address", node.address)
            rows = source.option("maxRowsPerTrigger", "400").load("stream-from")
            query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "point"))
            query.trigger(availableNow=True).start().awaitTermination()

        run()
        client.admin.repartition("stream-from", 7)
        with client.producer("stream-from") as producer:
            producer.send(batch(1_000, 700)).result(60)
        run()
        assert len(batches) > 3
        assert sorted(one for _, ids in batches for one in ids) == list(range(1_700))
        assert ids_of(client, "stream-into") == list(range(1_700))

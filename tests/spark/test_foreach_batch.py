"""A `save` inside `foreachBatch`: exactly once for each checkpoint, and its log lines can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import ringfence
import ringfence.spark
from tests.harness.processes import NodeProcess

SCHEMA = pa.schema([("id", pa.int64())])


def save(node: NodeProcess, topic: str) -> Callable[[DataFrame, int], None]:
    def sink(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("ringfence").option("address", node.address).option("topic", topic)
        writer.option("scope", "copy").option("epoch", batch + 1).mode("append").save()

    return sink


def function(node: NodeProcess, topic: str) -> Callable[[DataFrame, int], None]:
    def sink(rows: DataFrame, batch: int) -> None:
        ringfence.spark.write(rows, address=node.address, topic=topic, scope="copy", epoch=batch + 1)

    return sink


def run(
    spark: SparkSession,
    node: NodeProcess,
    source: str,
    checkpoint: Path,
    sink: Callable[[DataFrame, int], None],
) -> None:
    rows = spark.readStream.format("ringfence").option("address", node.address).load(source)
    made = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    made.trigger(availableNow=True).start().awaitTermination()


def ids(client: ringfence.Client, topic: str) -> list[int]:
    return sorted(pa.table(client.read(topic))["id"].to_pylist())


@pytest.mark.parametrize("how", [save, function], ids=["save", "ringfence.spark.write"])
def test_a_new_checkpoint_leaves_no_row_out_and_the_same_one_stores_none_twice(
    spark: SparkSession,
    node: NodeProcess,
    tmp_path: Path,
    how: Callable[[NodeProcess, str], Callable[[DataFrame, int], None]],
) -> None:
    source, topic = f"each-{how.__name__}", f"each-{how.__name__}-copy"
    with ringfence.connect(node.address, timeout_s=60) as client:
        for name in (source, topic):
            client.create_topic(name, schema=SCHEMA)
        sink = how(node, topic)
        runs = (("a", [0]), ("a", [0, 1]), ("b", [0, 0, 1, 1, 2]))
        for sent, (checkpoint, want) in enumerate(runs):
            with client.producer(source) as producer:
                producer.send(pa.record_batch([pa.array([sent])], schema=SCHEMA))
            run(spark, node, source, tmp_path / checkpoint, sink)
            assert ids(client, topic) == want
        # Spark runs the last batch again where the checkpoint does not say that it ended.
        for last in (tmp_path / "a" / "commits").glob("*1*"):
            last.unlink()
        run(spark, node, source, tmp_path / "a", sink)
        assert ids(client, topic) == [0, 0, 1, 1, 2, 2], "batch 1 once, and then row 2 as batch 2"
        for folder in ("commits", "offsets"):
            for later in (tmp_path / "a" / folder).glob("*[12]*"):
                later.unlink()
        with pytest.raises(StreamingQueryException, match="its checkpoint is older than the topic"):
            run(spark, node, source, tmp_path / "a", sink)


def test_lines_of_a_save_inside_a_batch_are_in_the_logs_of_its_session(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    with ringfence.connect(node.address, timeout_s=60) as client:
        for name in ("told-from", "told-to"):
            client.create_topic(name, schema=SCHEMA)
        with client.producer("told-from") as producer:
            producer.send(pa.record_batch([pa.array([1, 2])], schema=SCHEMA))
    sessions = []
    write = save(node, "told-to")

    def sink(rows: DataFrame, batch: int) -> None:
        sessions.append(rows.sparkSession)
        write(rows, batch)
        write(rows, batch)

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        run(spark, node, "told-from", tmp_path / "told", sink)
        lines = [row.msg for row in sessions[0].tvf.python_worker_logs().collect()]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert any("epoch 1 committed: 2 rows" in line for line in lines), lines
    assert any("epoch 1 was committed by an earlier run" in line for line in lines), lines


def test_a_table_of_the_catalog_names_the_view_that_works(spark: SparkSession, node: NodeProcess) -> None:
    with ringfence.connect(node.address, timeout_s=60) as client:
        client.create_topic("in-sql", schema=SCHEMA)
    options = f"options (address '{node.address}', topic 'in-sql')"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"create table no_table using ringfence {options}")
    spark.sql(f"create table columns_only (id bigint) using ringfence {options}")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.sql("select count(*) from columns_only").collect()
    finally:
        spark.sql("drop table columns_only")
    spark.sql(f"create temporary view in_sql using ringfence {options}")
    assert spark.sql("select count(*) from in_sql").collect()[0][0] == 0

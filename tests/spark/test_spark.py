"""The main job: lineitem from Spark into a node, read back by Python and by Spark, equal both ways."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import ringfence
from ringfence.native.slots import hash64
from ringfence.spark import arrow_schema, spark_schema
from tests.harness.processes import NodeProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
ROWS = 60_175
WORD = 1 << 64


def content_of(df: DataFrame) -> tuple[int, int]:
    """Rows, and the sum of all rows' hashes: equal whatever the order."""
    row = (
        df.select(f.xxhash64(*[f.col(name) for name in df.columns]).cast("decimal(38,0)").alias("h"))
        .agg(f.count("h"), f.sum("h"))
        .first()
    )
    assert row is not None
    return int(row[0]), int(row[1] or 0) % WORD


def content_of_batches(batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """The same in Python, by this package's own hash of the same bytes."""
    rows, total = 0, 0
    for batch in batches:
        hashes = hash64(batch, batch.schema.names)
        rows += batch.num_rows
        total += int(hashes.astype(object).sum())
    return rows, total % WORD


def test_lineitem_comes_back_equal_to_python_and_to_spark(
    spark: SparkSession, node: NodeProcess, lineitem: DataFrame
) -> None:
    expected = content_of(lineitem)
    assert expected[0] == ROWS
    result = ringfence.spark.write(
        lineitem, address=node.address, topic="lineitem", create=True, key=["l_orderkey"], partitions=8
    )
    assert result.rows == ROWS
    assert result.topic == "public/default/lineitem"
    assert "exactly once" in result.delivery
    assert len({part.partition for part in result.written}) == 8
    assert repr(result) == f"WriteResult(topic='public/default/lineitem', rows={ROWS}, already=False)"
    with ringfence.connect(node.address) as client:
        assert client.count("lineitem") == ROWS
        assert content_of_batches(client.read("lineitem")) == expected
    back = ringfence.spark.read(spark, address=node.address, topic="lineitem", rows_per_task=10_000)
    assert back.columns == lineitem.columns
    assert content_of(back) == expected


def test_what_python_sent_spark_reads(
    spark: SparkSession, node: NodeProcess, lineitem_file: Path, lineitem: DataFrame
) -> None:
    table = pq.read_table(lineitem_file)
    with ringfence.connect(node.address) as client:
        client.create_topic("from-python", schema=table.schema, key=["l_orderkey"], partitions=4)
        with client.producer("from-python") as producer:
            for batch in table.to_batches(max_chunksize=5000):
                producer.send(batch)
    back = ringfence.spark.read(spark, address=node.address, topic="from-python", rows_per_task=7_000)
    assert content_of(back) == content_of(lineitem)
    some = ringfence.spark.read(
        spark, address=node.address, topic="from-python", columns=["l_comment", "l_orderkey"]
    )
    assert some.columns == ["l_comment", "l_orderkey"]
    assert some.count() == ROWS


@pytest.mark.parametrize(
    "key", [["l_orderkey"], ["l_comment"], ["l_shipdate", "l_quantity", "l_returnflag"]], ids="+".join
)
def test_slots_are_those_of_spark(lineitem: DataFrame, key: list[str]) -> None:
    slot = f.shiftrightunsigned(f.xxhash64(*key), 48).cast("int").alias("slot")
    table = lineitem.limit(5000).select(*key, slot).toArrow()
    ours = np.concatenate([ringfence.slots(batch, key=key) for batch in table.select(key).to_batches()])
    assert ours.tolist() == table.column("slot").to_pylist()


def test_a_task_that_dies_halfway_and_runs_again_loses_and_doubles_nothing(
    node: NodeProcess, lineitem: DataFrame, tmp_path: Path
) -> None:
    total = content_of(lineitem)[0]
    mark = str(tmp_path / "died")

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 3:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    raise RuntimeError("the task dies halfway")
            yield batch

    dying = lineitem.mapInArrow(die_once, lineitem.schema)
    result = ringfence.spark.write(
        dying,
        address=node.address,
        topic="dying",
        create=True,
        key=["l_orderkey"],
        partitions=2,
        repartition=True,
    )
    assert {part.task: 1 for part in result.written} == {0: 1, 1: 1}, "a task writes one partition"
    assert len(result.written) == 2
    assert Path(mark).exists(), "no task died"
    assert result.rows == total
    with ringfence.connect(node.address) as client:
        assert content_of_batches(client.read("dying")) == content_of(lineitem)


def test_a_failed_write_says_why(node: NodeProcess, lineitem: DataFrame) -> None:
    with pytest.raises(ringfence.NotFoundError):
        ringfence.spark.write(lineitem, address=node.address, topic="not-there")
    with ringfence.connect(node.address) as client:
        client.create_topic("too_narrow", schema=pa.schema([pa.field("other", pa.int64(), nullable=False)]))
    with pytest.raises(ringfence.SchemaError, match="l_orderkey"):
        ringfence.spark.write(lineitem.limit(10), address=node.address, topic="too_narrow")


def test_types_go_both_ways(lineitem: DataFrame) -> None:
    assert spark_schema(arrow_schema(lineitem.schema)).simpleString() == lineitem.schema.simpleString()
    views = pa.schema(
        [
            pa.field("a", pa.string_view()),
            pa.field("b", pa.large_binary()),
            pa.field("c", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    assert spark_schema(views).simpleString() == "struct<a:string,b:binary,c:string>"
    wide = pa.decimal256(50, 0)
    for none in (pa.month_day_nano_interval(), wide, pa.list_(wide), pa.struct([("in", wide)])):
        with pytest.raises(ringfence.SchemaError, match='Spark has no type for column "b"'):
            spark_schema(pa.schema([pa.field("a", pa.decimal256(38, 0)), pa.field("b", none)]))


def test_nanoseconds_that_are_whole_microseconds_come_back_from_the_function_too(
    spark: SparkSession, node: NodeProcess
) -> None:
    """Spark cannot take nanoseconds out of `mapInArrow`; its message did not say which column."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns", "UTC"))])
    rows = [{"id": at, "at": at * 1000} for at in range(10)]
    with ringfence.connect(node.address) as client:
        client.create_topic("nanos-fn", schema=schema, key=["id"], partitions=1)
        with client.producer("nanos-fn") as producer:
            producer.send(pa.RecordBatch.from_pylist(rows, schema))
    back = ringfence.spark.read(spark, address=node.address, topic="nanos-fn", rows_per_task=4)
    found = back.toArrow().sort_by("id")
    assert found["at"].cast(pa.int64()).to_pylist() == list(range(10))
    with pytest.raises(ringfence.InvalidArgumentError, match="rows_per_task must be at least 1"):
        ringfence.spark.read(spark, address=node.address, topic="nanos-fn", rows_per_task=0)

"""`.format("ringfence")` reads: batch ranges, pushed filters, streams with a checkpoint."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import ringfence
import ringfence.spark
from tests.harness.processes import NodeProcess
from tests.spark.test_spark import ROWS, content_of

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other


@pytest.fixture(scope="module")
def topic(node: NodeProcess, lineitem_file: Path) -> str:
    """Lineitem in a topic of its own, sent by Python in batches of 5000 rows."""
    table = pq.read_table(lineitem_file)
    with ringfence.connect(node.address) as client:
        client.create_topic("source", schema=table.schema, key=["l_orderkey"], partitions=4)
        with client.producer("source") as producer:
            for batch in table.to_batches(max_chunksize=5000):
                producer.send(batch)
    return "source"


def test_a_batch_read_is_split_by_rows_and_equal_to_what_was_sent(
    spark: SparkSession, node: NodeProcess, topic: str, lineitem: DataFrame
) -> None:
    reader = spark.read.format("ringfence").option("address", node.address).option("rowsPerTask", 7000)
    back = reader.load(topic)
    assert back.columns == lineitem.columns
    assert content_of(back) == content_of(lineitem)
    assert back.rdd.getNumPartitions() >= 8, "more tasks than the four partitions"
    some = reader.option("columns", "l_comment,l_orderkey").option("metadata", "true").load(topic)
    assert some.columns == ["l_comment", "l_orderkey", "_partition", "_offset", "_time"]
    places = some.select("_partition", "_offset").distinct().count()
    assert places == ROWS, "each row has a place of its own"
    with ringfence.connect(node.address) as client:
        ends = client.end_offsets(topic)
    first, (partition, end) = min(ends), max(ends.items())
    part = reader.option("start", f'{{"{partition}": {end.end - 10}}}').load(topic)
    assert part.where(f.col("_partition") == partition).count() == 10
    assert part.where(f.col("_partition") == first).count() == ends[first].rows


def test_filters_narrow_what_is_read_and_change_no_answer(
    spark: SparkSession, node: NodeProcess, topic: str, lineitem: DataFrame
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        options = {"address": node.address, "topic": topic, "filters": "true", "metadata": "true"}
        back = spark.read.format("ringfence").options(**options).load()
        found = back.where("l_orderkey = 1 and l_linenumber < 4")
        assert found.count() == lineitem.where("l_orderkey = 1 and l_linenumber < 4").count() == 3
        assert found.rdd.getNumPartitions() == 1, "only the key's partition is read"
        assert back.where("_offset >= 100 and _offset < 150").count() == 4 * 50
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_goes_on_from_its_checkpoint_and_says_what_retention_took(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string_view())])

    def send(first: int, last: int) -> None:
        rows = {"id": list(range(first, last)), "word": [str(one) for one in range(first, last)]}
        with ringfence.connect(node.address) as client, client.producer("stream") as producer:
            producer.send(pa.RecordBatch.from_pydict(rows, schema))

    def run(checkpoint: str = "checkpoint", **options: str) -> None:
        source = spark.readStream.format("ringfence").option("address", node.address)
        source = source.option("maxRowsPerTrigger", 40).options(**options)
        sink = source.load("stream").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = (
            sink.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        )
        query.awaitTermination(60)
        assert not query.isActive
        batches.append([entry["numInputRows"] for entry in query.recentProgress if entry["numInputRows"]])

    batches: list[list[int]] = []
    with ringfence.connect(node.address) as client:
        client.create_topic("stream", schema=schema, key=["id"], partitions=2)
    send(0, 100)
    run()
    assert batches[0] == [40, 40, 20], "admission control"
    send(100, 130)
    run()
    assert batches[1] == [30]
    words = spark.read.parquet(str(tmp_path / "out"))
    found = words.agg(f.count("id"), f.sum("id"), f.countDistinct("word")).collect()
    assert tuple(found[0]) == (130, 8385, 130)
    send(130, 140)
    with ringfence.connect(node.address) as client:
        client.truncate("stream")
        client.delete_topic("other", missing_ok=True)
        client.create_topic("other", schema=schema)
    with pytest.raises(PySparkException, match=r"rows \d+ to \d+ were removed before the query read them"):
        run()
    run(failOnDataLoss="false")
    with pytest.raises(PySparkException, match="the checkpoint is of another topic"):
        spark.readStream.format("ringfence").option("address", node.address).load("other").writeStream.format(
            "noop"
        ).option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination(60)


def test_a_stream_takes_so_many_bytes_a_trigger_and_tells_what_waits(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    with ringfence.connect(node.address) as client:
        client.create_topic("weighed", schema=schema, key=["id"], partitions=2)
        with client.producer("weighed") as producer:
            for start in range(0, 1000, 100):
                rows = [{"id": one, "text": "x" * 100} for one in range(start, start + 100)]
                producer.send(pa.RecordBatch.from_pylist(rows, schema))
        size = sum(part.bytes for part in client.topic("weighed").partitions)
    source = spark.readStream.format("ringfence").option("address", node.address)
    source = source.option("maxBytesPerTrigger", size // 4)
    sink = source.load("weighed").writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination(60)
    told = [entry for entry in query.recentProgress if entry["numInputRows"]]
    taken = [entry["numInputRows"] for entry in told]
    assert sum(taken) == spark.read.parquet(str(tmp_path / "out")).distinct().count() == 1000
    assert (len(taken) in (4, 5), max(taken) <= 260) == (True, True), taken
    waits = [sum(ringfence.spark.waiting(entry).values()) for entry in told]
    assert waits == [1000 - sum(taken[: number + 1]) for number in range(len(taken))]


def test_a_batch_read_begins_and_ends_at_times(spark: SparkSession, node: NodeProcess) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    moments = []
    with ringfence.connect(node.address) as client:
        client.create_topic("timed", schema=schema, key=["id"], partitions=2)
        with client.producer("timed") as producer:
            for start in (0, 20, 40):
                producer.send(pa.table({"id": range(start, start + 20)}, schema)).result(30)
                time.sleep(0.05)
                moments.append(dt.datetime.now(dt.UTC).isoformat())
                time.sleep(0.05)
    reader = spark.read.format("ringfence").options(
        address=node.address, start=moments[0], end=moments[1], metadata="true"
    )
    rows = reader.load("timed").collect()
    assert sorted(row["id"] for row in rows) == list(range(20, 40))
    since, until = (dt.datetime.fromisoformat(moment).replace(tzinfo=None) for moment in moments[:2])
    assert all(since <= row["_time"].replace(tzinfo=None) <= until for row in rows)


def test_misspelt_options_and_missing_topics_are_said_by_name(spark: SparkSession, node: NodeProcess) -> None:
    reader = spark.read.format("ringfence").option("address", node.address)
    with pytest.raises(PySparkException, match="unknown options"):
        reader.option("rowPerTask", "5").load("source")
    with pytest.raises(PySparkException, match="no-such-topic"):
        spark.read.format("ringfence").option("address", node.address).load("no-such-topic")


def test_a_checkpoint_without_epochs_is_read_and_the_next_offset_has_them(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    """As the program before this one left it: its last micro-batch was planned, and not committed."""
    checkpoint = tmp_path / "checkpoint"

    def send(first: int) -> None:
        with client.producer("older") as producer:
            producer.send(pa.table({"id": range(first, first + 50)}))

    def run() -> list[int]:
        source = spark.readStream.format("ringfence").option("address", node.address).load("older")
        sink = source.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        sink.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination(60)
        return sorted(pq.read_table(tmp_path / "out")["id"].to_pylist())

    def offsets() -> list[dict[str, Any]]:
        paths = sorted(path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
        return [json.loads(path.read_text().splitlines()[-1]) for path in paths]

    def as_format_1() -> None:
        for path in (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()):
            *head, told = path.read_text().splitlines()
            former = {**json.loads(told), "format": 1}
            former["partitions"] = {one: {"offset": at["offset"]} for one, at in former["partitions"].items()}
            path.write_text("\n".join([*head, json.dumps(former)]))
            path.with_name(f".{path.name}.crc").unlink()

    with ringfence.connect(node.address) as client:
        client.create_topic("older", schema=pa.schema([("id", pa.int64())]), partitions=1)
        send(0)
        assert run() == list(range(50))
        send(50)
        assert run() == list(range(100))
        as_format_1()
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink()
        shutil.rmtree(tmp_path / "out" / "_spark_metadata")
        for path in (tmp_path / "out").glob("*.parquet"):
            if pq.read_table(path)["id"][0].as_py() >= 50:
                path.unlink()
        assert run() == list(range(100)), "the planned micro-batch is run again"
        send(100)
        assert run() == list(range(150))
        assert [one["format"] for one in offsets()][:2] == [1, 1]
        [end] = client.end_offsets("older").values()
        assert offsets()[-1]["format"] == 2
        assert offsets()[-1]["partitions"] == {str(end.partition): {"offset": 150, "epoch": end.epoch}}

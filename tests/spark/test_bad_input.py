"""What users get wrong: a Spark error that carries our reason, and nothing lost or stored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import ringfence
from tests.fakes.client_topic import ids_of
from tests.harness.processes import NodeProcess, free_port

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
ID = pa.field("id", pa.int64(), nullable=False)


# By the owner that a task stages at, or by the node that a task begins the scope at: whichever is first.
FENCED = (
    r"driver \d+ is fenced, \d+ began the scope again"
    r"|was begun again by another driver: this driver is fenced"
)


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def refused(df: DataFrame, node: NodeProcess, topic: str, match: str, **options: str) -> None:
    writer = df.write.format("ringfence").options(address=node.address, **options)
    with pytest.raises(PySparkException, match=match):
        writer.mode("append").save(topic)


def test_a_key_or_a_value_that_cannot_be_is_refused_with_its_column_and_nothing_is_stored(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client
) -> None:
    schema = pa.schema([ID, pa.field("word", pa.string())])
    client.create_topic("keyed", schema=schema, key=["id"], partitions=2)
    df = spark.createDataFrame([(1, "a")], "id bigint, word string")
    refused(df, node, "keyed", "exists with another key.*word", createTopic="true", key="word")
    refused(df, node, "fresh", "no such key column.*number", createTopic="true", key="number")
    nulls = spark.createDataFrame([(1, "a"), (None, "b")], "id bigint, word string")
    refused(nulls, node, "keyed", 'column "id".*null')
    refused(df.selectExpr("make_ym_interval(1, 2) AS id"), node, "keyed", 'cannot hand over column "id"')
    refused(df.selectExpr("id", "array(word) AS word"), node, "keyed", 'column "word"')
    refused(df.selectExpr("id * 1.5 AS id"), node, "keyed", 'column "id"')
    assert client.count("keyed") == 0
    assert [topic.name for topic in client.topics("public/default/fresh")] == []


def test_the_reason_comes_first_where_spark_hides_tracebacks(spark: SparkSession, node: NodeProcess) -> None:
    reader = spark.read.format("ringfence").options(address=node.address, maxRows="1")
    reason = r"ringfence\.native\.errors\.InvalidArgumentError: unknown options"
    with pytest.raises(PySparkException, match=r"Traceback[^$]*" + reason):
        reader.load("any")
    spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
    try:
        with pytest.raises(PySparkException, match=r"^\[PYTHON_DATA_SOURCE_ERROR\] [^:]*: " + reason):
            reader.load("any")
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.udf.hideTraceback.enabled")


def test_offsets_that_are_not_in_the_log_and_addresses_without_a_node_are_said(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("short", schema=pa.schema([ID]))
    with client.producer("short") as producer:
        producer.send(pa.table({"id": range(10)}, pa.schema([ID])))
    client.truncate("short", before_offset=5)
    [partition] = client.end_offsets("short")

    def read(name: str, offset: int) -> int:
        reader = spark.read.format("ringfence").option("address", node.address)
        return reader.option(name, f'{{"{partition}": {offset}}}').load("short").count()

    for name, offset in (("start", 4), ("end", 11)):
        with pytest.raises(PySparkException, match=rf"{name}: the offset is not in the log"):
            read(name, offset)
    assert read("start", 5) == 5
    nobody = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(PySparkException, match=nobody):
        spark.read.format("ringfence").option("address", nobody).load("short")


def begun_anew(node: NodeProcess, scope: str, at: int, df: DataFrame) -> DataFrame:
    """The rows of `df`; on the way a row of this id comes, another driver begins the scope.

    Not before this one has: the writer of a task begins it beside what makes the rows, and its BEGIN is the
    next entry of the metadata.
    """
    address = node.address
    with ringfence.connect(address) as client:
        before = client.status().index

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for batch in batches:
            if at in batch.column(0).to_pylist():
                context = TaskContext.get()
                assert context is not None
                query = context.getLocalProperty("sql.streaming.queryId")
                with ringfence.connect(address) as other:
                    if query is None:
                        while other.status().index == before:
                            time.sleep(0.02)
                        other.scopes.begin(scope, topic="anew")
                    else:
                        other.scopes.begin(f"spark-query-{query}")
            yield batch

    return df.mapInArrow(step, df.schema)


def test_a_driver_whose_scope_was_begun_anew_is_told_and_leaves_nothing(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("anew", schema=pa.schema([ID]), key=["id"], partitions=2)
    df = spark.range(0, 100, numPartitions=2)
    fenced = begun_anew(node, "twice", 50, df)
    refused(fenced, node, "anew", FENCED, scope="twice", epoch="1")
    assert client.count("anew") == 0
    again = df.write.format("ringfence").options(address=node.address, scope="twice", epoch="1")
    again.mode("append").save("anew")
    assert sorted(ids_of(client, "anew")) == list(range(100))


def test_two_runs_of_one_query_the_older_fails_and_the_next_run_has_each_row_once(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    client.create_topic("runs", schema=pa.schema([ID]), key=["id"], partitions=2)
    for number in range(3):
        rows = spark.range(number * 100, number * 100 + 100, numPartitions=1)
        rows.write.parquet(f"{tmp_path}/in/{number}")
    files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)

    def run(at: int) -> None:
        rows = begun_anew(node, "", at, files.parquet(f"{tmp_path}/in/*"))
        sink = rows.writeStream.format("ringfence").option("address", node.address).option("topic", "runs")
        sink = sink.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
        sink.start().awaitTermination(120)

    with pytest.raises(PySparkException, match=r"fenced|anew"):
        run(at=150)
    assert client.count("runs") % 100 == 0
    assert client.count("runs") < 300
    run(at=-1)
    assert sorted(ids_of(client, "runs")) == list(range(300))


def test_a_column_that_comes_in_the_middle_of_a_stream_stops_it_by_name_and_loses_nothing(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    wide = pa.schema([ID, pa.field("extra", pa.string())])
    for topic in ("drift-in", "drift-out"):
        client.create_topic(topic, schema=pa.schema([ID]), key=["id"])

    def send(first: int, schema: pa.Schema) -> None:
        with client.producer("drift-in") as producer:
            rows = [{"id": number, "extra": "x"} for number in range(first, first + 10)]
            producer.send(pa.RecordBatch.from_pylist(rows, schema))

    def run(**options: str) -> None:
        rows = spark.readStream.format("ringfence").options(address=node.address, **options).load("drift-in")
        sink = rows.writeStream.format("ringfence").option("address", node.address)
        sink = sink.option("topic", "drift-out").option("checkpointLocation", f"{tmp_path}/checkpoint")
        sink.trigger(availableNow=True).start().awaitTermination(120)

    send(0, pa.schema([ID]))
    run()
    client.add_schema("drift-in", wide)
    send(10, wide)
    with pytest.raises(PySparkException, match='column "extra" of the batch is not in the topic'):
        run()
    assert client.count("drift-out") == 10
    run(columns="id")  # the old columns; or add_schema of the sink, and its new ones
    assert sorted(ids_of(client, "drift-out")) == list(range(20))
    client.add_schema("drift-out", wide)
    send(20, wide)
    run()
    assert sorted(ids_of(client, "drift-out")) == list(range(30))
    last = [row for batch in client.read("drift-out") for row in batch.to_pylist() if row["id"] >= 20]
    assert {row["extra"] for row in last} == {"x"}


def test_a_checkpoint_that_is_older_than_what_it_wrote_is_refused_and_passes_nothing_over(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    """Its next batch has the number of one that is committed, and other rows: they would come nowhere."""
    client.create_topic("restored", schema=pa.schema([ID]), key=["id"])
    (tmp_path / "in").mkdir()

    def put(number: int) -> None:
        ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
        pq.write_table(pa.table({"id": ids}), tmp_path / "in" / f"{number}.parquet")

    def run(checkpoint: str) -> None:
        files = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        sink = files.parquet(f"{tmp_path}/in").writeStream.format("ringfence").option("address", node.address)
        sink = sink.option("topic", "restored").option("checkpointLocation", f"{tmp_path}/{checkpoint}")
        sink.trigger(availableNow=True).start().awaitTermination(120)

    put(0)
    run("checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    for number in (1, 2):
        put(number)
    run("checkpoint")
    put(3)
    with pytest.raises(PySparkException, match=r"its checkpoint is older than the topic"):
        run("backup")
    run("checkpoint")
    assert sorted(ids_of(client, "restored")) == list(range(40))

"""The data source without a Spark session: what Spark would call, called here; quick."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In
from pyspark.sql.types import LongType, StructField, StructType

import ringfence
import ringfence.spark
from ringfence.common.scope_values import Begun
from ringfence.native.errors import InvalidArgumentError, SchemaError
from ringfence.spark import sink_commit
from ringfence.spark.batch_read import FilteringReader
from ringfence.spark.compact import refuse_misread
from ringfence.spark.source import RingfenceSource
from ringfence.spark.staging import Target
from tests.harness.processes import NodeProcess

ID = StructType([StructField("id", LongType())])
OWN = pa.schema([("id", pa.int64()), ("_offset", pa.int64()), ("_time", pa.string())])


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def read(node: NodeProcess, topic: str, filters: Sequence[Filter] = (), **options: str) -> list[Any]:
    if filters:
        options["filters"] = "true"
    source = RingfenceSource({"address": node.address, "topic": topic, **options})
    reader = source.reader(source.schema())
    if isinstance(reader, FilteringReader):
        assert list(reader.pushFilters(list(filters))) == list(filters)
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_topics_own_columns_called_as_metadata_columns_keep_their_values(
    node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("twins", schema=OWN, key=["id"], partitions=2)
    sent = [{"id": at, "_offset": at * 100, "_time": str(at)} for at in range(5)]
    with client.producer("twins") as producer:
        producer.send(pa.RecordBatch.from_pylist(sent, OWN))

    def by_id(rows: list[Any]) -> list[Any]:
        return sorted(rows, key=lambda row: int(row["id"]))

    assert by_id(read(node, "twins")) == sent
    assert sent[3] in read(node, "twins", [EqualTo(("_offset",), 300)])
    assert sent[3] in read(node, "twins", [GreaterThan(("_offset",), 200)])
    with pytest.raises(InvalidArgumentError, match=r"names of metadata columns.*_offset.*_time"):
        read(node, "twins", metadata="true")
    plain = read(node, "twins", metadata="true", columns="id")
    assert {type(row["_offset"]) for row in plain} == {int}
    assert len(plain) == 5


def test_the_schema_of_a_stream_that_says_it_is_one_asks_for_no_ends(
    node: NodeProcess, client: ringfence.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("asked", schema=pa.schema([("id", pa.int64())]))
    asked: list[str] = []
    plain = ringfence.Client.end_offsets

    def counted(self: ringfence.Client, topic: str, **more: Any) -> Any:
        asked.append(topic)
        return plain(self, topic, **more)

    monkeypatch.setattr(ringfence.Client, "end_offsets", counted)
    given = {"address": node.address, "topic": "asked"}
    schemas = [RingfenceSource({**given, "maxRowsPerTrigger": "5"}).schema()]
    assert asked == []
    schemas.append(RingfenceSource(given).schema())
    assert asked == ["asked"]
    assert schemas[0] == schemas[1]


def test_filters_that_narrow_nothing_are_no_error(node: NodeProcess, client: ringfence.Client) -> None:
    client.create_topic("narrow", schema=pa.schema([("id", pa.int32())]), key=["id"], partitions=4)
    with client.producer("narrow") as producer:
        producer.send(pa.table({"id": pa.array(range(20), pa.int32())}))
    for one in (
        In(("_offset",), (1, None)),
        EqualTo(("_offset",), 1.5),
        EqualTo(("id",), 2**70),
        EqualTo(("id",), [1]),
        GreaterThan(("_time",), dt.datetime(1, 1, 1)),  # noqa: DTZ001 - what is tested
    ):
        read(node, "narrow", [one], metadata="true")
    assert {row["id"] for row in read(node, "narrow", [In(("id",), (7, None))])} >= {7}


def test_every_scan_of_a_dataframe_has_the_rows_of_its_load(
    node: NodeProcess, client: ringfence.Client
) -> None:
    """A DataFrame that is used twice in one query is scanned twice."""
    client.create_topic("moment", schema=pa.schema([("id", pa.int64())]), partitions=1)
    rows = pa.table({"id": [1, 2]})
    with client.producer("moment") as producer:
        producer.send(rows).result()
        source = RingfenceSource({"address": node.address, "topic": "moment"})
        schema = source.schema()
        before = [part.span for part in source.reader(schema).partitions()]
        producer.send(rows).result()
    assert sum(span.rows for span in before) == 2
    assert [part.span for part in source.reader(schema).partitions()] == before
    assert len(read(node, "moment")) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeoutSeconds", "inf"), ("timeoutSeconds", "1e300"), ("epoch", "99999999999999999999")],
)
def test_numbers_without_a_sensible_bound_are_refused_by_name(
    name: str, value: str, node: NodeProcess, client: ringfence.Client
) -> None:
    options = {"address": node.address, "topic": "bounds", "createTopic": "true", "scope": "b", "epoch": "1"}
    with pytest.raises(InvalidArgumentError, match=rf"{name}.*{value[:3]}"):
        RingfenceSource({**options, name: value}).writer(ID, overwrite=False)
    assert [topic.name for topic in client.topics("public/default/bounds")] == []


def test_epoch_zero_is_refused_and_not_taken_for_committed(spark: SparkSession, node: NodeProcess) -> None:
    """`foreachBatch` begins with batch 0: its rows would be passed over in silence."""
    df = spark.range(3)
    with pytest.raises(InvalidArgumentError, match=r"from 1 on; for foreachBatch: batch_id \+ 1"):
        ringfence.spark.write(
            df, address=node.address, topic="zero", create=True, key=["id"], scope="zero", epoch=0
        )


@pytest.mark.parametrize(
    "kind",
    [
        pa.duration("s"),
        pa.float16(),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("ns"),
        pa.list_(pa.struct([("x", pa.duration("ns"))])),
        pa.dictionary(pa.int8(), pa.timestamp("ns")),
    ],
    ids=str,
)
def test_columns_that_spark_misreads_out_of_parquet_are_refused(kind: pa.DataType) -> None:
    """Spark takes a duration of 5 s for one of 5 us, and does not read the others at all."""
    with pytest.raises(SchemaError, match="write the files by `ringfence compact`"):
        refuse_misread("public/default/t", pa.schema([("id", pa.int64()), ("c", kind)]))
    refuse_misread("t", pa.schema([("d", pa.duration("us")), ("t", pa.timestamp("us", "UTC"))]))


def test_a_value_that_spark_cannot_hold_is_said_with_its_column(
    node: NodeProcess, client: ringfence.Client
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns", "UTC"))])
    client.create_topic("nanos", schema=schema)
    with client.producer("nanos") as producer:
        producer.send(pa.table({"id": [1], "at": pa.array([1001], schema.field("at").type)}))
    with pytest.raises(SchemaError, match=r'column "at" is timestamp.*leave it out'):
        read(node, "nanos")
    assert read(node, "nanos", columns="id") == [{"id": 1}]


def test_options_of_another_use_are_refused_and_not_ignored(
    node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("uses", schema=pa.schema([("id", pa.int64())]), exist_ok=True)

    def source(**options: str) -> RingfenceSource:
        return RingfenceSource({"address": node.address, "topic": "uses", **options})

    with pytest.raises(InvalidArgumentError, match=r"options that a stream read does not have.*end"):
        source(end="2026-01-31T12:00:00Z").streamReader(ID)
    with pytest.raises(InvalidArgumentError, match=r"batch read.*failOnDataLoss"):
        source(failOnDataLoss="false").reader(ID)
    with pytest.raises(InvalidArgumentError, match=r"stream write.*scope"):
        source(scope="x", epoch="1").streamWriter(ID, overwrite=False)
    with pytest.raises(InvalidArgumentError, match=r"batch write.*start"):
        source(start="latest").writer(ID, overwrite=False)
    with pytest.raises(InvalidArgumentError, match="name each column once"):
        source(columns="id,id").schema()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("latest", "earliest"),
        ('{"PARTITION": 7}', '{"PARTITION": 6}'),
        ("latest", '{"PARTITION": 0}'),
        ("2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2090-01-02T00:00:00Z", "2090-01-01T00:00:00Z"),
    ],
)
def test_a_read_that_begins_behind_its_end_is_refused_with_both_values(
    start: str, end: str, node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("crossed", schema=pa.schema([("id", pa.int64())]), partitions=1, exist_ok=True)
    if client.count("crossed") == 0:
        with client.producer("crossed") as producer:
            producer.send(pa.table({"id": range(10)}))
    [partition] = client.end_offsets("crossed")
    start, end = (text.replace("PARTITION", str(partition)) for text in (start, end))
    with pytest.raises(InvalidArgumentError, match="start is after end") as caught:
        read(node, "crossed", start=start, end=end)
    assert (caught.value.details["start"], caught.value.details["end"]) == (start, end)
    old, far = "1999-12-31T00:00:00Z", "2090-01-01T00:00:00Z"
    for since, until in (("latest", "latest"), ("earliest", old), (far, "latest"), (start, start)):
        assert read(node, "crossed", start=since, end=until) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("failOnDataLoss", "flase", "true or false"),
        ("timeoutSeconds", "soon", "number above 0"),
        ("rowsPerTask", "0", "at least 1"),
        ("columns", ",", "names no column"),
        ("path", "another", "two topics.*uses.*another"),
    ],
)
def test_a_value_is_refused_when_the_read_begins_not_when_it_is_needed(
    name: str, value: str, said: str, node: NodeProcess, client: ringfence.Client
) -> None:
    """failOnDataLoss is looked at when rows are lost, for one: too late to say that it is misspelt."""
    client.create_topic("uses", schema=pa.schema([("id", pa.int64())]), exist_ok=True)
    source = RingfenceSource({"address": node.address, "topic": "uses", name: value})
    with pytest.raises(InvalidArgumentError, match=said):
        source.streamReader(ID)


def test_a_key_that_is_not_the_topics_is_refused_without_create_topic_too(
    node: NodeProcess, client: ringfence.Client
) -> None:
    schema = pa.schema([("id", pa.int64())])
    client.create_topic("other-key", schema=schema, exist_ok=True)
    given = {"address": node.address, "topic": "other-key"}
    with pytest.raises(InvalidArgumentError, match="exists with another key"):
        RingfenceSource({**given, "key": "id"}).writer(ID, overwrite=False)
    with pytest.raises(InvalidArgumentError, match="key names no column"):
        RingfenceSource({**given, "key": " , "}).writer(ID, overwrite=False)
    with pytest.raises(InvalidArgumentError, match=r"another key.*wanted=\['id'\]"):
        ringfence.spark.write(Interrupted(), key="id", **given)  # type: ignore[arg-type]
    RingfenceSource(given).writer(ID, overwrite=False)


class Interrupted:
    """A DataFrame whose job stages all its rows, and is interrupted then: what PySpark does at Ctrl-C."""

    schema = ID

    def mapInArrow(self, task: Any, schema: str) -> Self:  # noqa: N802 - Spark's
        self.task = task
        return self

    def collect(self) -> list[Any]:
        self.run_task()
        raise KeyboardInterrupt

    def run_task(self) -> list[pa.RecordBatch]:
        return list(self.task(iter([pa.record_batch({"id": pa.array(range(5), pa.int64())})])))


def test_ctrl_c_gives_up_what_a_write_has_staged(node: NodeProcess, client: ringfence.Client) -> None:
    client.create_topic("interrupted", schema=pa.schema([("id", pa.int64())]))
    rows = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ringfence.spark.write(rows, address=node.address, topic="interrupted")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="the epoch expired"):
        rows.run_task()  # a task that Spark has not ended yet
    assert client.count("interrupted") == 0


def test_stages_that_nobody_can_be_told_of_hide_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Why the job failed is raised next: what no node answers must not come in its place."""
    target = Target("tcp://127.0.0.1:no-port", None, "public/default/t", 1.0)
    sink_commit.expire(target, Begun(7, 1, 0, 0), 3)
    assert "scope 7, epoch 3: staged rows of a failed job could not be removed" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": None}, "newer ringfence"),
        ({"partitions": None}, "no map of offsets"),
        ({"place": {"offset": "7", "epoch": 0}}, "has no offset '7'"),
        ({"place": {"offset": 7}}, "no map of offsets and epochs"),
        ({"place": {"offset": 3, "epoch": 0}}, "ends at 3, begins at 10"),
    ],
)
def test_an_edited_checkpoint_is_said_and_reads_nothing_again(
    change: dict[str, Any], said: str, node: NodeProcess, client: ringfence.Client
) -> None:
    client.create_topic("edited", schema=pa.schema([("id", pa.int64())]), partitions=1, exist_ok=True)
    with client.producer("edited") as producer:
        producer.send(pa.table({"id": range(10)}))
    source = RingfenceSource({"address": node.address, "topic": "edited"})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    [partition] = start["partitions"]
    start["partitions"][partition]["offset"] = 10
    end = {**start, **change}
    if "place" in change:
        end["partitions"] = {partition: end.pop("place")}
    with pytest.raises(InvalidArgumentError, match=said):
        reader.partitions(start, end)
    with pytest.raises(InvalidArgumentError, match="edited or is damaged: it has no format"):
        reader.partitions(start, [])  # type: ignore[arg-type]
    reader.stop()

"""Every type of docs/spark.md is written and read, in any session's zone, by function and data source."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import ringfence
import ringfence.spark
from ringfence.native.errors import SchemaError
from ringfence.spark import arrow_schema
from tests.harness.processes import NodeProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
ZONES = ("UTC", "Asia/Kathmandu", "America/New_York")
# The first and last microsecond of years 1 and 9999, before zones had whole minutes, in a gap of summer time.
MICROS = (-62135596800000000, 253402300799999999, -2717640000123457, 1774751400000001, None)
ALL = """
    SELECT id, timestamp_micros(m) at, timestamp_ntz'0001-01-01 00:00:00.000001' ntz,
        array(timestamp_micros(m), null) listed, map('k', timestamp_micros(m)) mapped,
        map(timestamp_micros(nvl(m, 0)), 1) keyed,
        named_struct('x', timestamp_micros(m), 'l', array(named_struct('y', timestamp_micros(m)))) nested,
        INTERVAL '1 02:03:04.000005' DAY TO SECOND span, DATE'0001-01-01' date,
        cast(m as decimal(38, 3)) decimal, cast(id as byte) byte, cast(id as short) short,
        cast(id as int) int, cast(id as float) float, cast(id as double) double, id = 1 bool,
        cast(id as string) text,
        cast(cast(id as string) as binary) bytes
    FROM VALUES {rows} t(id, m)"""
LOOKED_AT = """struct(id, unix_micros(at), ntz, transform(listed, x -> unix_micros(x)),
    unix_micros(mapped['k']), transform(map_keys(keyed), x -> unix_micros(x)),
    unix_micros(nested.x), unix_micros(nested.l[0].y),
    span, date, decimal, byte, short, int, float, double, bool, text, bytes) row"""


def everything(spark: SparkSession) -> DataFrame:
    rows = ", ".join(
        f"({at}L, {'CAST(NULL AS BIGINT)' if micros is None else f'{micros}L'})"
        for at, micros in enumerate(MICROS)
    )
    return spark.sql(ALL.format(rows=rows))


def rows_of(df: DataFrame) -> list[Any]:
    return sorted((row.row for row in df.selectExpr(LOOKED_AT).collect()), key=lambda row: int(row[0]))


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("zone", ZONES)
def test_every_type_comes_back_equal_whatever_the_sessions_time_zone(
    zone: str, zoned: SparkSession, node: NodeProcess
) -> None:
    zoned.conf.set("spark.sql.session.timeZone", zone)
    df = everything(zoned)
    expected = rows_of(df)
    assert [row[1] for row in expected] == list(MICROS)
    by = zone.rpartition("/")[2]
    ringfence.spark.write(df, address=node.address, topic=f"types-fn-{by}", create=True, key="at")
    options = {"address": node.address, "createTopic": "true", "key": "at"}
    df.write.format("ringfence").options(**options).mode("append").save(f"types-{by}")
    zoned.conf.set("spark.sql.session.timeZone", ZONES[(ZONES.index(zone) + 1) % len(ZONES)])
    source = zoned.read.format("ringfence").option("address", node.address)
    assert rows_of(ringfence.spark.read(zoned, address=node.address, topic=f"types-fn-{by}")) == expected
    assert rows_of(source.load(f"types-{by}")) == expected


def test_a_stream_carries_every_type_from_topic_to_topic(
    zoned: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    zoned.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    df = everything(zoned)
    ringfence.spark.write(df, address=node.address, topic="types-piped", create=True, key="at")
    pieces = zoned.readStream.format("ringfence").option("address", node.address).load("types-piped")
    sink = pieces.writeStream.format("ringfence").option("address", node.address).option("key", "at")
    sink = sink.option("topic", "types-streamed").option("createTopic", "true")
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    back = ringfence.spark.read(zoned, address=node.address, topic="types-streamed")
    assert rows_of(back) == rows_of(df)


@pytest.mark.parametrize(
    "sql",
    [
        "parse_json('{}')",
        "array(parse_json('{}'))",
        "named_struct('x', map('k', parse_json('{}')))",
        "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
        "st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')",
        "INTERVAL '1' MONTH",
    ],
)
def test_types_that_would_not_come_back_are_refused_by_column(spark: SparkSession, sql: str) -> None:
    with pytest.raises(SchemaError, match=r'column "strange.*leave it out'):
        arrow_schema(spark.sql(f"SELECT 1L id, {sql} strange").schema)


def test_an_instant_may_be_sent_with_any_zone_and_a_time_without_one_may_not(node: NodeProcess) -> None:
    def schema(zone: str | None, unit: str = "us") -> pa.Schema:
        at = pa.timestamp(unit, zone)
        fields = [("at", at), ("id", pa.int64()), ("all", pa.list_(at)), ("of", pa.map_(at, at))]
        return pa.schema([*fields, ("in", pa.struct([("at", at)])), ("two", pa.list_(at, 1))])

    noon = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    row = {"at": noon, "id": 1, "all": [noon, None], "of": [(noon, noon)], "in": {"at": noon}, "two": [noon]}
    flat = ["at", "id"]
    with ringfence.connect(node.address, timeout_s=30) as client:
        for topic, names in (("zones", schema("UTC").names), ("zones-flat", flat)):
            client.create_topic(
                topic,
                schema=pa.schema([schema("UTC").field(name) for name in names]),
                key=["at"],
                partitions=4,
            )
            for zone in ("UTC", "Asia/Kathmandu", "+05:45"):
                with client.producer(topic) as producer:
                    sent = pa.Table.from_pylist([row], schema(zone)).select(names)
                    producer.send(sent).result()
            found = [one for batch in client.read(topic) for one in batch.to_pylist()]
            assert found == [{name: row[name] for name in names}] * 3
            counts = sorted(ends.rows for ends in client.end_offsets(topic).values())
            assert counts == [0, 0, 0, 3], "one instant is one key"
        without = pa.table({"at": pa.array([noon.replace(tzinfo=None)], pa.timestamp("us")), "id": [1]})
        with client.producer("zones-flat") as producer, pytest.raises(SchemaError, match="does not become"):
            producer.send(without)


def test_compacted_files_are_read_whatever_the_directory_is_called_and_times_are_not_written(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    """Spark takes a path for a pattern."""
    address = node.address
    ringfence.spark.write(spark.range(10), address=address, topic="odd", create=True, key="id")
    for name in ("ev[1]", "ev{a,b}", "a:b", "q?*", "b\\s", "pct%20 sp#"):
        done = ringfence.spark.compact(spark, address=address, topic="odd", directory=tmp_path / name)
        assert done.table.count() == 10, name
    times = spark.sql("SELECT 1L id, TIME'12:00:00.000001' at")
    ringfence.spark.write(times, address=address, topic="times", create=True, key="id")
    times.write.format("ringfence").option("address", address).mode("append").save("times")
    for back in (
        ringfence.spark.read(spark, address=address, topic="times"),
        spark.read.format("ringfence").option("address", address).load("times"),
    ):
        assert [row.at for row in back.collect()] == [dt.time(12, 0, 0, 1)] * 2
    with pytest.raises(SchemaError, match=r"Parquet.*'at': 'time64"):
        ringfence.spark.compact(spark, address=address, topic="times", directory=tmp_path / "times")
    assert not list(tmp_path.glob("times/*"))

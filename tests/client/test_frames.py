"""polars, pandas and DuckDB take a topic as an Arrow stream: every row and value, whatever its type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ringfence
from ringfence.encode import record_batches
from ringfence.frames import from_pandas
from ringfence.native._node import Encoder, schema_message
from ringfence.native.errors import SchemaError
from tests.system.harness import NodeProcess

FIRST = pa.schema([pa.field("id", pa.int64(), nullable=False)])
NESTED = pa.struct([("price", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string()))])
GROWN = pa.schema(
    [
        *FIRST,
        pa.field("nested", NESTED),
        pa.field("word", pa.dictionary(pa.int32(), pa.string())),
        pa.field("at", pa.timestamp("us", "Asia/Tokyo")),
        pa.field("price", pa.decimal128(38, 10)),
        pa.field("number", pa.uint64()),
    ]
)
TIME = dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=dt.UTC)
VALUES: list[dict[str, Any]] = [
    {"id": 2, "nested": {"price": Decimal("-9.99"), "tags": ["a", None]}, "word": "x", "at": TIME,
     "price": Decimal("1234567890123456789.0123456789"), "number": 2**64 - 1},
    {"id": 3, "nested": {"price": None, "tags": []}, "word": None, "at": None, "price": None, "number": 0},
    {"id": 4, "nested": None, "word": "y", "at": TIME, "price": Decimal(0), "number": None},
]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ringfence.Client]:
    """Topic `grown` has rows of its first schema, then two batches whose dictionaries differ."""
    with (
        NodeProcess(tmp_path_factory.mktemp("frames") / "data") as node,
        ringfence.connect(node.address, timeout_s=30) as made,
    ):
        made.create_topic("empty", schema=GROWN)
        made.create_topic("grown", schema=FIRST)
        with made.producer("grown") as producer:
            producer.send(pa.table({"id": [0, 1]}, FIRST)).result()
        made.add_schema("grown", GROWN)
        with made.producer("grown") as producer:
            for rows in (VALUES[:2], VALUES[2:]):
                producer.send(pa.RecordBatch.from_pylist(rows, GROWN)).result()
        yield made


def by_polars(reader: Any) -> list[dict[str, Any]]:
    return pl.DataFrame(reader).to_dicts()


def by_pandas(reader: Any) -> list[dict[str, Any]]:
    exact = {pa.uint64(): pd.UInt64Dtype()}  # by default pandas makes floats of a column with nulls
    frame = pa.RecordBatchReader.from_stream(reader).read_pandas(types_mapper=exact.get)
    back: list[dict[str, Any]] = pa.Table.from_pandas(frame, reader.schema, preserve_index=False).to_pylist()
    return back


def by_duckdb(reader: Any) -> list[dict[str, Any]]:
    found = duckdb.sql("SELECT * FROM reader")
    assert found is not None
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize("tool", [by_polars, by_pandas, by_duckdb])
def test_a_tool_has_each_row_and_value_of_a_topic_that_grew(tool: Any, client: ringfence.Client) -> None:
    older = [dict.fromkeys(GROWN.names) | {"id": number} for number in (0, 1)]
    assert tool(client.read("grown")) == older + VALUES
    assert tool(client.read("grown", columns=["word", "id"])) == [
        {"word": row["word"], "id": row["id"]} for row in older + VALUES
    ]
    assert tool(client.read("grown", start="latest")) == []
    assert tool(client.read("empty")) == []


def test_named_levels_of_an_index_are_columns_where_the_topic_has_them() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    frame = pd.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]}).groupby("k").sum()
    assert from_pandas(frame, schema).to_pylist() == [{"k": "a", "v": 4}, {"k": "b", "v": 2}]
    both = pd.MultiIndex.from_tuples([("x", 1)], names=["k", "other"])
    assert from_pandas(pd.DataFrame({"v": [5]}, index=both), schema).to_pylist() == [{"k": "x", "v": 5}]


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatch])
def test_two_columns_of_one_name_are_refused_by_name(kind: type[pa.Table | pa.RecordBatch]) -> None:
    rows = kind.from_arrays([pa.array([1]), pa.array([2])], names=["v", "v"])
    with pytest.raises(SchemaError, match='two columns are named "v"'):
        record_batches(rows, pa.schema([("v", pa.int64())]))


def test_a_pandas_time_without_a_zone_is_taken_as_utc_and_an_arrow_one_is_refused() -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", "Asia/Tokyo"))])
    (batch,) = record_batches(pd.DataFrame({"at": [TIME.replace(tzinfo=None)]}), schema)
    assert batch["at"].cast(pa.timestamp("us", "UTC")).to_pylist() == [TIME]
    naive = pa.record_batch({"at": pa.array([TIME.replace(tzinfo=None)], pa.timestamp("us"))})
    with pytest.raises(SchemaError, match='column "at": Timestamp'):
        Encoder(schema_message(schema)).whole(naive)

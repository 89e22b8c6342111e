"""polars, pandas and DuckDB take a topic as an Arrow stream: every row and value, whatever its type."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.arrow.batches import record_batches
from ringfence.arrow.pandas_frames import from_pandas
from ringfence.native._node import Encoder, schema_message
from ringfence.native.errors import SchemaError
from tests.harness.processes import NodeProcess

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
    {
        "id": 2,
        "nested": {"price": Decimal("-9.99"), "tags": ["a", None]},
        "word": "x",
        "at": TIME,
        "price": Decimal("1234567890123456789.0123456789"),
        "number": 2**64 - 1,
    },
    {"id": 3, "nested": {"price": None, "tags": []}, "word": None, "at": None, "price": None, "number": 0},
    {"id": 4, "nested": None, "word": "y", "at": TIME, "price": Decimal(0), "number": None},
]


@pytest.fixture(scope="module")
def client(module_folder: Path) -> Iterator[ringfence.Client]:
    """Topic `grown` has rows of its first schema, then two batches whose dictionaries differ."""
    with NodeProcess(module_folder / "data") as node, ringfence.connect(node.address, timeout_s=30) as made:
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
    both = pd.MultiIndex.from_tuples([("x", 1)], names=["k", None])
    assert from_pandas(pd.DataFrame({"v": [5]}, index=both), schema).to_pylist() == [{"k": "x", "v": 5}]
    unknown = pd.MultiIndex.from_tuples([("x", 1)], names=["k", "other"])
    with pytest.raises(SchemaError, match='index "other" of the DataFrame is not in the topic'):
        from_pandas(pd.DataFrame({"v": [5]}, index=unknown), schema)


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


class Frame(pd.DataFrame):
    """As geopandas' and others': a frame of another module."""

    @property
    def _constructor(self) -> type[Frame]:
        return Frame


def test_a_frame_of_a_subclass_is_taken_as_a_plain_one() -> None:
    schema = pa.schema([("a", pa.int64())])
    for kind in (pd.DataFrame, Frame):
        (batch,) = record_batches(kind({"a": [1, 2, 3]}).iloc[[0, 2]], schema)
        assert batch.to_pydict() == {"a": [1, 3]}


@pytest.mark.parametrize(
    "given",
    [
        pd.Series([1], name="a"),
        pd.DataFrame({"a": pd.arrays.SparseArray(np.array([0, 1]))}),
        pd.DataFrame({"a": pd.interval_range(0, 1)}),
        pd.Index([1]),
    ],
    ids=["series", "sparse", "interval", "index"],
)
def test_what_pandas_has_and_arrow_has_not_is_refused_as_rows(given: Any) -> None:
    with pytest.raises(ringfence.BatchError):
        record_batches(given, pa.schema([("a", pa.int64())]))


def test_a_column_that_differs_by_case_is_told_with_the_topics_own(client: ringfence.Client) -> None:
    with client.producer("grown") as producer:
        for rows in (pa.table({"ID": [1]}), pd.DataFrame({"ID": [1]})):
            with pytest.raises(SchemaError, match='the topic has "id"'):
                producer.send(rows)


def test_children_of_maps_may_have_any_names(client: ringfence.Client) -> None:
    """pyarrow names the entries of a map that it reads from Parquet after the column."""
    rows = pa.table({"id": [1, 2], "tags": pa.array([[("a", "b")], []], pa.map_(pa.string(), pa.string()))})
    file = io.BytesIO()
    pq.write_table(rows, file)
    from_parquet = pq.read_table(file)
    assert from_parquet.schema.field("tags").type.field(0).name == "tags"
    client.create_topic("maps", schema=from_parquet.schema)
    grown = pa.schema([*rows.schema, pa.field("more", pa.list_(from_parquet.schema.field("tags").type))])
    assert client.add_schema("maps", grown) == 1
    with client.producer("maps") as producer:
        for each in (from_parquet, rows, rows.to_pandas()):
            producer.send(each).result(30)
    assert pa.table(client.read("maps", columns=["id", "tags"])).to_pylist() == rows.to_pylist() * 3


def test_a_key_of_decimal256_is_refused_with_what_to_cast_it_to(client: ringfence.Client) -> None:
    with pytest.raises(ringfence.InvalidArgumentError, match=r"cast it to decimal128 of scale 3"):
        client.create_topic("wide", schema=pa.schema([("k", pa.decimal256(38, 3))]), key="k")

"""Arrow data of any library goes straight in (B8), once a capsule, and comes out of a body as it was."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.native import _node
from ringfence.native.errors import BatchError, InvalidArgumentError, SchemaError
from ringfence.native.slots import slots

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), metadata={"unit": "none"})],
    metadata={"origin": "test"},
)


def rows(count: int) -> pa.RecordBatch:
    names = [None if at % 3 == 0 else f"row {at}" for at in range(count)]
    return pa.record_batch([np.arange(count), pa.array(names, pa.string())], schema=SCHEMA)


def decoded(body: bytes | bytearray, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(body), schema)


@pytest.fixture
def encoder() -> _node.Encoder:
    return _node.Encoder(_node.schema_message(SCHEMA))


class Capsules:
    """An object that hands out the same capsules again."""

    def __init__(self, pair: tuple[object, object]) -> None:
        self.pair = pair

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.pair


def test_a_schema_message_keeps_fields_metadata_and_nullability() -> None:
    found = pa.ipc.read_schema(pa.py_buffer(_node.schema_message(SCHEMA)))
    assert found.equals(SCHEMA, check_metadata=True)


def test_slots_of_polars_duckdb_and_pandas_equal_those_of_arrow() -> None:
    plain = pa.table({"id": range(1000), "name": [f"n{at}" for at in range(1000)]})
    expected = slots(plain, ["id", "name"]).tolist()
    assert slots(pl.DataFrame(plain), ["id", "name"]).tolist() == expected
    assert slots(duckdb.from_arrow(plain), ["id", "name"]).tolist() == expected
    assert slots(pd.DataFrame({"id": range(1000)}), ["id"]).tolist() == slots(plain, ["id"]).tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([0, 64, 4096]))
def test_gathered_bodies_hold_each_row_once_behind_the_extension(
    count: int, partitions: int, seed: int, extension_bytes: int
) -> None:
    rng = np.random.default_rng(seed)
    batch, of_row = rows(count), rng.integers(0, partitions, count)
    order = np.argsort(of_row, kind="stable").astype(np.uint32)
    bounds = np.searchsorted(of_row[order], np.arange(partitions + 1)).astype(np.uint32)
    encoder = _node.Encoder(_node.schema_message(SCHEMA))
    extension = rng.bytes(extension_bytes)
    bodies = encoder.gather(batch, order, bounds, extension)
    assert len(bodies) == partitions
    for partition, (body, crc) in enumerate(bodies):
        assert crc == _node.crc32c(body)
        wanted = batch.take(np.flatnonzero(of_row == partition))
        if not wanted.num_rows:
            assert body == b""
            continue
        assert body[:extension_bytes] == extension
        assert decoded(body[extension_bytes:]).equals(wanted)


@pytest.mark.parametrize(("start", "count"), [(0, 10), (3, 4), (9, 1)])
def test_a_whole_slice_is_encoded_without_a_gather(encoder: _node.Encoder, start: int, count: int) -> None:
    batch = rows(20).slice(5, 10)
    assert decoded(encoder.whole(batch, start, count)[0]).equals(batch.slice(start, count))
    assert decoded(encoder.whole(batch, start)[0]).equals(batch.slice(start))


def test_columns_are_matched_by_name_and_cast_only_where_lossless(encoder: _node.Encoder) -> None:
    narrow = pa.record_batch({"name": pa.array(["a"], pa.large_string()), "id": pa.array([7], pa.int32())})
    assert decoded(encoder.whole(narrow)[0]).to_pylist() == [{"id": 7, "name": "a"}]
    with pytest.raises(SchemaError) as caught:
        encoder.whole(pa.record_batch({"id": pa.array([1.5]), "name": ["a"]}))
    assert caught.value.column == "id"
    assert "Float64" in str(caught.value) and "Int64" in str(caught.value)
    with pytest.raises(SchemaError, match='column "id"'):
        encoder.whole(pa.record_batch({"name": ["a"]}))


def test_a_capsule_is_taken_once(encoder: _node.Encoder) -> None:
    held = Capsules(rows(3).__arrow_c_array__())
    assert decoded(encoder.whole(held)[0]).equals(rows(3))
    with pytest.raises(BatchError, match="already consumed"):
        encoder.whole(held)
    with pytest.raises(BatchError, match="already consumed"):
        slots(held, ["id"])


def test_capsules_of_other_names_are_refused(encoder: _node.Encoder) -> None:
    schema, array = rows(1).__arrow_c_array__()
    with pytest.raises(ValueError, match="name"):
        encoder.whole(Capsules((array, schema)))


@pytest.mark.parametrize("wrong", [5, None, [1, 2]])
def test_what_is_not_arrow_data_is_refused_by_its_type(encoder: _node.Encoder, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{type(wrong).__name__} is not Arrow data"):
        encoder.whole(wrong)
    with pytest.raises(InvalidArgumentError, match="is not Arrow data"):
        _node.schema_message(wrong)


def test_a_plain_array_and_null_rows_are_refused(encoder: _node.Encoder) -> None:
    with pytest.raises(SchemaError, match="struct of columns"):
        encoder.whole(pa.array([1]))
    with pytest.raises(BatchError, match="1 rows of the batch are null"):
        encoder.whole(pa.array([{"id": 1, "name": "a"}, None]))


@pytest.mark.parametrize("extension_bytes", [1, 63, 65_600])
def test_an_extension_that_would_misalign_the_message_is_refused(
    encoder: _node.Encoder, extension_bytes: int
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the extension has {extension_bytes} bytes"):
        encoder.whole(rows(1), extension=bytes(extension_bytes))


@pytest.mark.parametrize(
    ("order", "bounds"),
    [([0, 9], [0, 2]), ([0, 1], [0, 3]), ([0, 1], [1, 0]), ([0, 1], [])],
    ids=["row", "end", "falling", "none"],
)
def test_a_selection_that_does_not_fit_is_refused(
    encoder: _node.Encoder, order: list[int], bounds: list[int]
) -> None:
    with pytest.raises(InvalidArgumentError):
        encoder.gather(rows(2), np.array(order, np.uint32), np.array(bounds, np.uint32))
    with pytest.raises(InvalidArgumentError, match="order must be a buffer of u32"):
        encoder.gather(rows(2), np.array([0, 1]), np.array([0, 2], np.uint32))


def test_a_batch_without_columns_keeps_its_rows() -> None:
    """The topic's nullable column is missing in it and becomes nulls: as many as the batch has rows."""
    nullable = pa.schema([("x", pa.int64())])
    encoder = _node.Encoder(_node.schema_message(nullable))
    batch = pa.record_batch({"y": [1, 2, 3]}).select([])
    assert decoded(encoder.whole(batch)[0], nullable).to_pylist() == [{"x": None}] * 3

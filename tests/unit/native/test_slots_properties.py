"""Slots of any Arrow data equal those of its plain values by the slow reference."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.native.errors import BatchError, InvalidArgumentError, SchemaError
from ringfence.native.slots import hash64, slots
from tests.unit.native.reference import hash_rows, slot_of


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Any]:
    top = 10**precision - 1
    return st.integers(-top, top).map(lambda whole: Decimal(f"{whole}E-{scale}"))


TEXT = st.text(max_size=60) | st.sampled_from(["", "x" * 12, "x" * 13, "y" * 31, "y" * 32, "z" * 500])
SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): integers(20),
    pa.timestamp("us", tz="UTC"): integers(50),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.binary(): st.binary(max_size=80),
    pa.large_binary(): st.binary(max_size=80),
    pa.binary_view(): st.binary(max_size=80),
    pa.binary(7): st.binary(min_size=7, max_size=7),
    pa.decimal128(10, 2): decimals(10, 2),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.decimal256(38, 3): decimals(38, 3),
    pa.null(): st.none(),
}


@st.composite
def types_and_values(draw: st.DrawFn, depth: int = 0) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    if depth < 2 and draw(st.integers(0, 4)) == 0:
        inner, values = draw(types_and_values(depth=depth + 1))
        maybe = st.none() | values
        shape = draw(st.sampled_from(["list", "large_list", "fixed", "struct"]))
        if shape == "struct":
            fields = [("a", inner), ("b", pa.int32())]
            return pa.struct(fields), st.fixed_dictionaries({"a": maybe, "b": st.none() | integers(32)})
        if shape == "fixed":
            return pa.list_(inner, 2), st.lists(maybe, min_size=2, max_size=2)
        return (pa.list_ if shape == "list" else pa.large_list)(inner), st.lists(maybe, max_size=4)
    kind = draw(st.sampled_from(list(SCALARS)))
    return kind, SCALARS[kind]


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    """A column with nulls, cut out of a longer one, dictionary-encoded at times."""
    kind, values = draw(types_and_values())
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    count = before + rows + after
    nullable = draw(st.booleans())
    column = pa.array(
        draw(st.lists(st.none() | values if nullable else values, min_size=count, max_size=count)), kind
    )
    if kind in (pa.string(), pa.int32(), pa.binary(), pa.int64()) and draw(st.booleans()):
        column = column.dictionary_encode()
    return column.slice(before, rows)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 20))
    found = draw(st.lists(columns(rows), min_size=1, max_size=3))
    batch = pa.record_batch(found, names=[f"k{at}" for at in range(len(found))])
    start = draw(st.integers(0, rows))
    return batch.slice(start) if draw(st.booleans()) else batch


@settings(max_examples=400, deadline=None)
@given(batches(), st.sampled_from([-1, 0]))
def test_hashes_of_any_batch_equal_the_reference(batch: pa.RecordBatch, level: int) -> None:
    expected = hash_rows(batch.columns)
    assert hash64(batch, batch.schema.names, level=level).tolist() == expected
    found = slots(batch, batch.schema.names, level=level)
    assert found.dtype == np.uint16
    assert found.tolist() == [slot_of(h) for h in expected]


@settings(max_examples=30, deadline=None)
@given(st.lists(batches(), min_size=0, max_size=3), st.integers(0, 2**32))
def test_a_stream_hashes_like_its_batches_one_after_the_other(parts: list[pa.RecordBatch], seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [pa.record_batch({"k": rng.integers(0, 99, part.num_rows)}) for part in parts]
    table = pa.Table.from_batches(made, schema=pa.schema([("k", pa.int64())]))
    expected = [value for part in made for value in hash64(part, ["k"]).tolist()]
    assert hash64(table, ["k"]).tolist() == expected
    assert slots(table, "k").tolist() == [slot_of(h) for h in expected]


@pytest.mark.parametrize("level", [-1, 0])
@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.decimal128(18, 0)], ids=str
)
def test_more_rows_than_a_block_with_and_without_nulls(kind: pa.DataType, level: int) -> None:
    values = (np.arange(5001) % 2 if kind == pa.bool_() else np.arange(5001)).tolist()
    through = pa.int32()  # integers of 32 bits become any of the types
    for nulls in (False, True):
        column = pa.array([None if nulls and v % 3 == 0 else v for v in values], through).cast(kind)
        batch = pa.record_batch({"k": column}).slice(3)
        assert hash64(batch, ["k"], level=level).tolist() == hash_rows([column.slice(3)])


def test_a_null_view_that_holds_garbage_is_not_followed() -> None:
    # 16 bytes of 0xff: a length of 4 G in block 4 G, which exists nowhere
    column = pa.Array.from_buffers(
        pa.string_view(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(b"\xff" * 16 + b"\x01\0\0\0a" + bytes(11))]
    )
    assert hash64(pa.record_batch({"k": column}), ["k"]).tolist() == [42, *hash_rows([pa.array(["a"])])]


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint8(),
        pa.uint64(),
        pa.timestamp("ns"),
        pa.date64(),
        pa.float16(),
        pa.map_(pa.int32(), pa.int32()),
        pa.decimal256(50, 1),
        pa.duration("us"),
        pa.time64("us"),
        pa.list_(pa.uint32()),
    ],
    ids=str,
)
def test_a_type_that_spark_cannot_hash_is_refused_by_name(kind: pa.DataType) -> None:
    batch = pa.record_batch({"k": pa.nulls(3, kind)})
    with pytest.raises(SchemaError, match="'k") as caught:
        slots(batch, ["k"])
    assert caught.value.column.startswith("k")
    assert not caught.value.retriable


def test_missing_and_ambiguous_key_columns_are_named() -> None:
    batch = pa.record_batch([[1], [2]], names=["a", "a"])
    with pytest.raises(SchemaError, match="several columns 'a'"):
        slots(batch, ["a"])
    with pytest.raises(SchemaError, match="no column 'b'"):
        slots(batch, ["b"])
    with pytest.raises(SchemaError, match="no column 'b'"):
        slots(pa.table({"a": pa.array([], pa.int32())}), ["b"])
    with pytest.raises(InvalidArgumentError, match="key must name"):
        slots(batch, [])


class Capsules:
    """An object with chosen capsules."""

    def __init__(self, pair: tuple[object, object]) -> None:
        self.pair = pair

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.pair


def test_what_is_not_a_batch_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not Arrow data"):
        slots([1, 2], ["k"])
    with pytest.raises(SchemaError, match="struct of columns"):
        slots(pa.array([1, 2]), ["k"])
    schema, array = pa.record_batch({"k": [1]}).__arrow_c_array__()
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        slots(Capsules((array, schema)), ["k"])


def test_a_batch_with_null_rows_is_refused() -> None:
    rows = pa.array([{"k": 1}, None, {"k": 3}])
    with pytest.raises(BatchError, match="row 1 of the batch is null"):
        slots(rows, ["k"])
    assert slots(rows.slice(2), ["k"]).tolist() == slots(pa.record_batch({"k": [3]}), ["k"]).tolist()


def test_the_same_capsules_may_be_hashed_twice() -> None:
    batch = pa.record_batch({"k": [1, 2, 3]})
    held = Capsules(batch.__arrow_c_array__())
    assert slots(held, ["k"]).tolist() == slots(held, ["k"]).tolist() == slots(batch, ["k"]).tolist()

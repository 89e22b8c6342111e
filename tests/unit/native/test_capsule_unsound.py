"""Columns whose offsets, views, indexes or buffers lie: refused by name, and nothing is followed."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import timeit
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import ringfence
from ringfence.arrow.batches import one_batch, record_batches
from ringfence.native._node import Encoder, schema_message
from ringfence.native.errors import BatchError
from ringfence.native.slots import hash64
from tests.conftest import ROOT

FAR = 1 << 30  # bytes behind any buffer: nobody's memory, most likely


def text(rows: int, kind: pa.DataType, wrong: int) -> pa.Array:
    """Values of two bytes; the offset in the middle says `wrong`. First and last are sound."""
    offsets = np.arange(0, 2 * rows + 2, 2).astype("i8" if kind == pa.large_utf8() else "i4")
    offsets[(rows + 1) // 2] = wrong
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets), pa.py_buffer(bytes(2 * rows))])


def view(buffer: int, offset: int, length: int = 20) -> Callable[[int], pa.Array]:
    def made(rows: int) -> pa.Array:
        views = [struct.pack("<i4sii", 20, b"abcd", 0, 0)] * rows
        views[rows // 2] = struct.pack("<i4sii", length, b"abcd", buffer, offset)
        buffers = [None, pa.py_buffer(b"".join(views)), pa.py_buffer(b"abcd" * 25)]
        return pa.Array.from_buffers(pa.string_view(), rows, buffers)

    return made


def dictionary(kind: pa.DataType, wrong: int) -> Callable[[int], pa.Array]:
    def made(rows: int) -> pa.Array:
        indexes = np.zeros(rows, kind.to_pandas_dtype())
        indexes[rows // 2] = wrong
        values = pa.array([f"v{place}" for place in range(200)])
        return pa.DictionaryArray.from_arrays(pa.array(indexes, kind), values, safe=False)

    return made


def lists(rows: int) -> pa.Array:
    offsets = np.arange(rows + 1, dtype=np.int32)
    offsets[(rows + 1) // 2] = FAR
    return pa.Array.from_buffers(
        pa.list_(pa.int32()),
        rows,
        [None, pa.py_buffer(offsets)],
        children=[pa.array(range(rows), pa.int32())],
    )


UNSOUND: dict[str, tuple[Callable[[int], pa.Array], str]] = {
    "far": (lambda rows: text(rows, pa.utf8(), FAR), f"is the bytes [0-9]+..{FAR} of"),
    "large": (lambda rows: text(rows, pa.large_utf8(), 1 << 50), f"is the bytes [0-9]+..{1 << 50} of"),
    "negative": (lambda rows: text(rows, pa.binary(), -FAR), f"is the bytes [0-9]+..-{FAR} of"),
    "no buffer": (view(9, 0), "is buffer 9 of 1"),
    "negative buffer": (view(-1, 0), "is buffer 4294967295 of 1"),
    "beyond its buffer": (view(0, 90), "is the bytes up to 110 of buffer 0, which has 100"),
    "long": (view(0, 0, FAR), f"is the bytes up to {FAR} of buffer 0, which has 100"),
    "index": (dictionary(pa.int32(), FAR), f"is the index {FAR} .*of a dictionary of 200 values"),
    "negative index": (dictionary(pa.int8(), -100), "is the index 156 .*of a dictionary of 128 values"),
    "next index": (dictionary(pa.uint8(), 200), "is the index 200 .*of a dictionary of 200 values"),
    "list": (lists, f"is the elements [0-9]+..{FAR} of"),
}


# Of one row the offset in the middle is the last one, too: pyarrow does not make such an array.
MIDDLE = {"far", "large", "negative", "list"}


@pytest.mark.parametrize(
    ("name", "rows"),
    [(name, rows) for name in UNSOUND for rows in (1, 3, 16, 17, 5000) if rows > 1 or name not in MIDDLE],
)
def test_a_key_that_points_nowhere_is_refused_by_its_name(name: str, rows: int) -> None:
    make, said = UNSOUND[name]
    key = make(rows)
    held = pa.StructArray.from_arrays([pa.array(range(rows)), key], ["other", "inner"])
    for batch, path in (
        (pa.record_batch({"id": pa.array(range(rows)), "name": key}), "name"),
        (pa.record_batch({"id": pa.array(range(rows)), "name": held}), "name.inner"),
    ):
        for hashed in (hash64, ringfence.slots):
            with pytest.raises(
                BatchError, match=f"column '{re.escape(path)}' is invalid: its value"
            ) as caught:
                hashed(batch, ["id", "name"])
            assert re.search(said, str(caught.value))
            assert caught.value.column == path


def test_a_null_that_points_nowhere_is_not_followed() -> None:
    key = text(2, pa.utf8(), FAR)
    nulls = pa.Array.from_buffers(pa.utf8(), 2, [pa.py_buffer(b"\0"), *key.buffers()[1:]])
    assert hash64(pa.record_batch({"k": nulls}), "k").tolist() == [42, 42]


@pytest.mark.parametrize("rows", [3, 16, 17, 5000])
@pytest.mark.parametrize("name", UNSOUND)
@pytest.mark.parametrize("beside", [False, True])
def test_rows_that_point_nowhere_are_encoded_in_neither_way(name: str, rows: int, *, beside: bool) -> None:
    columns = {"id": pa.array(range(rows)), "name": UNSOUND[name][0](rows)}
    if beside:  # a column with children: the whole batch goes another way
        columns["list"] = pa.array([[1]] * rows)
    batch = pa.record_batch(columns)
    refusals = refused_both_ways(batch)
    assert all('column "name" is not sound: ' in refusal for refusal in refusals)
    assert refusals[0] == refusals[1]


def refused_both_ways(batch: pa.RecordBatch) -> list[str]:
    encoder = Encoder(schema_message(batch.schema))
    order, bounds = np.arange(batch.num_rows, dtype=np.uint32), np.array([0, batch.num_rows], np.uint32)
    said = []
    for way in (lambda: encoder.whole(batch), lambda: encoder.gather(batch, order, bounds)):
        with pytest.raises(BatchError) as caught:
            way()
        said.append(str(caught.value))
    return said


def test_what_no_row_uses_may_point_anywhere() -> None:
    offsets = np.array([0, 1, 1, 1], np.int32)  # the first list has one string, the others none
    unsound = pa.Array.from_buffers(
        pa.list_(pa.utf8()), 3, [None, pa.py_buffer(offsets)], children=[text(2, pa.utf8(), FAR)]
    )
    whole = pa.record_batch({"name": unsound})
    encoder = Encoder(schema_message(whole.schema))
    assert "its elements: its value 0 is the bytes" in refused_both_ways(whole)[0]
    batch = whole.slice(1)
    order, bounds = np.arange(2, dtype=np.uint32), np.array([0, 2], np.uint32)
    for body, _ in (encoder.whole(batch), *encoder.gather(batch, order, bounds)):
        assert pa.ipc.read_record_batch(pa.py_buffer(body), batch.schema).to_pylist() == [{"name": []}] * 2


def test_run_ends_that_go_back_are_refused_with_a_key_and_without() -> None:
    ends = np.array([10, 30, 40], np.int32)
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(ends)]), [1, 2, 3]
    )
    batch = pa.record_batch({"id": pa.array(range(40)), "runs": runs})
    ends[:2] = 30, 10
    refusals = refused_both_ways(batch)
    assert 'column "runs" is not sound: ' in refusals[0]
    assert "strictly increasing" in refusals[0]
    assert refusals[0] == refusals[1]


def shortened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As files without a check give it: the last buffer has a byte."""
    held = pa.allocate_buffer(64, resizable=True)
    array = pa.Array.from_buffers(pa.int64(), 8, [None, held])
    made = pa.record_batch([*batch.columns, array], [*batch.schema.names, "short"])
    held.resize(1)
    return made


def test_a_buffer_that_is_too_short_is_named_however_few_the_rows() -> None:
    batch = shortened(pa.record_batch({"id": pa.array(range(8))}))
    for call in (
        lambda: record_batches(batch, batch.schema),
        lambda: record_batches(pa.Table.from_batches([batch]), batch.schema),
        lambda: ringfence.slots(batch, "short"),
        lambda: ringfence.slots(pa.RecordBatchReader.from_batches(batch.schema, [batch]), "short"),
    ):
        with pytest.raises(BatchError, match=r'the Arrow data of column "short" is invalid: .*too small'):
            call()


def test_rows_with_wrong_indexes_are_not_joined() -> None:
    unsound = pa.record_batch({"k": dictionary(pa.int32(), FAR)(3)})
    sound = pa.record_batch({"k": pa.array(["other"] * 3).dictionary_encode()})
    with pytest.raises(BatchError, match='the Arrow data of column "k" is invalid'):
        one_batch([sound, unsound])


def test_joining_slices_costs_what_their_rows_cost() -> None:
    whole, rows = 200_000, 100
    offsets = np.arange(whole + 1, dtype=np.int32)
    lists = pa.ListArray.from_arrays(offsets, pa.array([f"value {at}" for at in range(whole)]))
    column = pa.StructArray.from_arrays([lists], ["lists"])
    slices = [pa.record_batch({"k": column.slice(start, rows)}) for start in (0, whole - rows)]
    alone = [batch.take(pa.array(range(rows))) for batch in slices]
    assert one_batch(slices).equals(one_batch(alone))
    # 35 times and more where the children are looked at as a whole.
    assert min(timeit.repeat(lambda: one_batch(slices), number=1, repeat=9)) < 10 * min(
        timeit.repeat(lambda: one_batch(alone), number=1, repeat=9)
    )


def test_slots_of_a_reader_are_those_of_its_batches() -> None:
    table = pa.table({"k": pa.array(range(100))})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    assert ringfence.slots(reader, "k").tolist() == ringfence.slots(table, "k").tolist()
    assert ringfence.slots(reader, "k").tolist() == []


def test_a_name_with_a_zero_byte_is_refused_by_name() -> None:
    batch = pa.record_batch({"a\0b": pa.array([1])})
    with pytest.raises(ringfence.SchemaError, match=r"'a\\x00b' has a zero byte"):
        record_batches(batch, batch.schema)


def test_metadata_that_is_no_text_names_its_field() -> None:
    inner = pa.field("inner", pa.int32(), metadata={b"key": b"\xff"})
    for schema, said in (
        (
            pa.schema([("a", pa.int32()), ("s", pa.struct([inner]))]),
            'metadata of column "s.inner" cannot be stored',
        ),
        (
            pa.schema([("d", pa.dictionary(pa.int8(), pa.struct([inner])))]),
            'metadata of column "d.inner" cannot be stored',
        ),
        (pa.schema([("a", pa.int32())], metadata={b"\xff": b"v"}), "metadata of the schema cannot be stored"),
    ):
        with pytest.raises(ringfence.SchemaError, match=said):
            schema_message(schema)


def test_a_struct_with_its_fields_in_another_order_is_refused_by_name() -> None:
    topic = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.int32())]))])
    other = pa.array([{"b": 1, "a": 2}], pa.struct([("b", pa.int32()), ("a", pa.int32())]))
    with pytest.raises(
        ringfence.SchemaError, match=r'column "s": Struct.* does not become the topic'
    ) as caught:
        Encoder(schema_message(topic)).whole(pa.record_batch({"id": pa.array([1]), "s": other}))
    assert caught.value.column == "s"


def test_nothing_is_read_behind_a_buffer_whatever_a_batch_says() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.unit.native.unsound", "1", "250"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert int(told.stdout.split()[-2]) > 100, told.stdout

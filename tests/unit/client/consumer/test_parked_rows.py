"""Rows with the columns of an export, and topics that can take them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ringfence.consumer.parked import Parked
from ringfence.consumer.parked_rows import (
    COLUMNS,
    check_other_topic,
    check_target,
    rows_of,
    target_schema,
    with_columns,
)
from ringfence.native.errors import InvalidArgumentError, SchemaError

SOURCE = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
PARKED = Parked(7, 1 << 20, 12, 5, 3, "bad", 1_700_000_000_000)


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = list(range(first, first + count))
    return pa.record_batch([ids, [str(one) for one in ids]], schema=SOURCE)


def test_each_row_says_where_it_was_and_why_it_is_here() -> None:
    made = with_columns(rows(12, 2), 12, PARKED, "public/default/t", "c")
    assert made.schema == target_schema(SOURCE, "t")
    assert made.to_pylist()[1] == {
        "id": 13,
        "text": "13",
        "parked_topic": "public/default/t",
        "parked_cohort": "c",
        "parked_partition": 7,
        "parked_offset": 13,
        "parked_count": 3,
        "parked_reason": "bad",
        "parked_ms": 1_700_000_000_000,
    }


def test_a_topic_with_a_column_of_these_names_is_refused() -> None:
    with pytest.raises(SchemaError, match="parked_reason"):
        target_schema(pa.schema([*SOURCE, pa.field("parked_reason", pa.string())]), "t")


def test_a_target_without_the_columns_is_refused_and_they_are_named() -> None:
    whole = target_schema(SOURCE, "t")
    check_target(SOURCE, whole, "t", "u")
    check_target(SOURCE, pa.schema([*whole, pa.field("more", pa.int64())]), "t", "u")
    with pytest.raises(SchemaError, match="parked_ms is missing"):
        check_target(SOURCE, pa.schema([*SOURCE, *COLUMNS[:-1]]), "t", "u")
    with pytest.raises(SchemaError, match="id is int32 and must be int64"):
        check_target(SOURCE, whole.set(0, pa.field("id", pa.int32())), "t", "u")


def test_a_topic_is_not_exported_into_itself() -> None:
    check_other_topic(1, 2, "u")
    with pytest.raises(InvalidArgumentError):
        check_other_topic(1, 1, "t")


class Reader:
    """Gives batches with places; `closed` afterwards."""

    def __init__(self, *batches: tuple[int, int]) -> None:
        self._batches, self.place, self.closed = iter(batches), Any, False
        self.given = 0

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> pa.RecordBatch:
        first, count = next(self._batches)
        self.given += 1
        self.place = SimpleNamespace(first_offset=first)  # type: ignore[assignment]
        return rows(first, count)

    def close(self) -> None:
        self.closed = True


def offsets(reader: Reader) -> list[int]:
    client: Any = SimpleNamespace(read=lambda *_, **__: reader)
    batches = list(rows_of(client, "t", "c", PARKED))
    assert reader.closed
    return [one for batch in batches for one in batch.column("parked_offset").to_pylist()]


def test_only_rows_of_the_range_are_copied_and_no_more_is_read() -> None:
    reader = Reader((10, 4), (14, 4), (18, 4))
    assert offsets(reader) == [12, 13, 14, 15, 16]
    assert reader.given == 2


def test_rows_that_are_gone_are_left_out() -> None:
    assert offsets(Reader((15, 4))) == [15, 16]
    assert offsets(Reader((17, 4))) == []
    assert offsets(Reader()) == []

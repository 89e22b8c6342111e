"""Filters that Spark pushes down: which ranges and partitions are left, and which filters narrow nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ringfence.native.slots import slots
from ringfence.spark.filters import VALUES_MAX, PushedFilters
from ringfence.spark.ranges import Range

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
HALF = 1 << 15
SPANS = [Range(1, 0, 100), Range(2, 10, 60)]
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Topics:
    """A client of one topic with two partitions: slots below the middle, and the others."""

    def __init__(self, key: Sequence[str] = ("id",)) -> None:
        partitions = [
            SimpleNamespace(partition=1, lo=0, hi=HALF - 1),
            SimpleNamespace(partition=2, lo=HALF, hi=(1 << 16) - 1),
        ]
        self._info = SimpleNamespace(key=list(key), schemas=[SCHEMA], partitions=partitions)

    def topic(self, _: str) -> Any:
        return self._info

    def offsets_at(self, _: str, when: dt.datetime) -> dict[int, int]:
        return {1: 40, 2: 50} if when >= NOON else {1: 5, 2: 0}


def left(*filters: Filter, metadata: bool = True, key: Sequence[str] = ("id",)) -> list[tuple[int, int, int]]:
    pushed = PushedFilters.of(filters, metadata=metadata)
    ranges = pushed.restrict(Topics(key), "t", SPANS)  # type: ignore[arg-type]
    return [(one.partition, one.first, one.last) for one in ranges]


@pytest.mark.parametrize(
    ("filters", "first", "last"),
    [
        ([GreaterThan(("_offset",), 20)], 21, 100),
        ([GreaterThanOrEqual(("_offset",), 20)], 20, 100),
        ([LessThan(("_offset",), 20)], 0, 20),
        ([LessThanOrEqual(("_offset",), 20)], 0, 21),
        ([EqualTo(("_offset",), 20)], 20, 21),
        ([In(("_offset",), (30, 20, None))], 20, 31),
        ([GreaterThan(("_offset",), 20), LessThan(("_offset",), 30), GreaterThan(("_offset",), 5)], 21, 30),
    ],
)
def test_offsets_bound_the_ranges(filters: list[Filter], first: int, last: int) -> None:
    assert left(*filters)[0] == (1, first, last)


def test_a_time_begins_each_partition_at_its_first_row_since() -> None:
    assert left(GreaterThanOrEqual(("_time",), NOON)) == [(1, 40, 100), (2, 50, 60)]
    later = left(GreaterThan(("_time",), NOON - dt.timedelta(hours=1)), GreaterThan(("_time",), NOON))
    assert later == [(1, 40, 100), (2, 50, 60)], "the latest counts"
    assert left(GreaterThan(("_time",), NOON.replace(tzinfo=None))) == [(1, 0, 100), (2, 10, 60)]
    assert left(LessThan(("_time",), NOON)) == [(1, 0, 100), (2, 10, 60)]


def test_partitions_are_chosen_by_name_and_by_the_key() -> None:
    assert [one[0] for one in left(EqualTo(("_partition",), 2))] == [2]
    numbers = pa.record_batch([pa.array(range(50), pa.int64())], schema=SCHEMA)
    lower = [row for row, slot in enumerate(slots(numbers, ["id"]).tolist()) if slot < HALF]
    assert 0 < len(lower) < 50
    assert [one[0] for one in left(In(("id",), tuple(lower)))] == [1]
    assert left(In(("id",), tuple(lower)), EqualTo(("_partition",), 2)) == []
    assert left(EqualTo(("id",), lower[0]), EqualTo(("id",), lower[1])) == [], "no row has two values"


def test_a_partition_that_the_topic_does_not_have_any_more_is_no_reason_to_leave_rows_out() -> None:
    """The plan is of `load`; the partition was split, emptied and pruned since. Its task fails."""
    spans = [*SPANS, Range(9, 0, 5)]
    for filters, wanted in (
        ([EqualTo(("id",), 1)], {9}),
        ([EqualTo(("id",), 1), EqualTo(("_partition",), 2)], set()),
        ([EqualTo(("_partition",), 9)], {9}),
    ):
        pushed = PushedFilters.of(filters, metadata=True)
        found = {one.partition for one in pushed.restrict(Topics(), "t", spans)}  # type: ignore[arg-type]
        assert found - {1, 2} == wanted


def test_what_narrows_nothing_is_left_to_spark() -> None:
    whole = [(1, 0, 100), (2, 10, 60)]
    assert left() == whole
    assert left(Not(EqualTo(("id",), 1))) == whole
    assert left(EqualTo(("id",), "text")) == whole, "no row of that column has it"
    assert left(In(("id",), tuple(range(VALUES_MAX + 1)))) == whole
    assert left(EqualTo(("a", "b"), 1)) == whole
    assert left(EqualTo(("id",), [1])) == whole
    assert left(EqualTo(("id",), 1), key=("id", "other")) == whole, "only a part of the key"
    assert left(EqualTo(("id",), 1), key=()) == whole


def test_without_metadata_columns_their_names_are_the_topic_s_own() -> None:
    filters = (GreaterThan(("_offset",), 20), EqualTo(("_partition",), 2), GreaterThan(("_time",), NOON))
    assert left(*filters, metadata=False) == [(1, 0, 100), (2, 10, 60)]

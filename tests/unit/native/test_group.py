"""Rows by partition: every row once, in the batch's order, whatever the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.native.errors import InvalidArgumentError
from ringfence.native.group import rows_by_partition


def ranges(count: int) -> NDArray[np.uint16]:
    """`count` partitions of about the same size."""
    return (np.arange(65536) * count // 65536).astype(np.uint16)


@given(st.integers(0, 300), st.integers(1, 65536), st.integers(0, 2**32 - 1))
def test_order_is_a_stable_sort_by_partition(rows: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots, table = rng.integers(0, 65536, rows).astype(np.uint16), ranges(count)
    order, bounds = rows_by_partition(slots, table, count)
    assert order.dtype == bounds.dtype == np.uint32
    assert order.tolist() == np.argsort(table[slots], kind="stable").tolist()
    assert bounds.tolist() == np.searchsorted(np.sort(table[slots]), np.arange(count + 1)).tolist()


def test_partitions_without_rows_are_empty_ranges() -> None:
    order, bounds = rows_by_partition(np.zeros(5, np.uint16), ranges(4), 4)
    assert (order.tolist(), bounds.tolist()) == ([0, 1, 2, 3, 4], [0, 5, 5, 5, 5])


@pytest.mark.parametrize("at", [0, 3, 4, 6])
def test_an_index_beyond_the_partitions_names_its_row(at: int) -> None:
    slots, table = np.zeros(7, np.uint16), np.zeros(65536, np.uint16)
    slots[at], table[9] = 9, 3
    with pytest.raises(
        InvalidArgumentError, match=f"row {at} has slot 9, whose partition index 3 is not below 3"
    ):
        rows_by_partition(np.where(slots == 9, 9, 0).astype(np.uint16), table, 3)


def test_wrong_types_and_sizes_are_named() -> None:
    slots, table = np.zeros(3, np.uint16), ranges(2)
    wide: Any = np.zeros(3, np.int64)
    with pytest.raises(InvalidArgumentError, match="slots must be uint16; its format is 'l'"):
        rows_by_partition(wide, table, 2)
    with pytest.raises(InvalidArgumentError, match="table has 3 slots, and must have 65536"):
        rows_by_partition(slots, slots, 2)
    for count in (0, 65537):
        with pytest.raises(InvalidArgumentError, match=f"count is {count}"):
            rows_by_partition(slots, table, count)
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        rows_by_partition(np.zeros(6, np.uint16)[::2], table, 2)

"""Ranges of rows: against sets of rows."""

from __future__ import annotations

import random

import pytest

from ringfence.consumer.queue_rows import common, joined, overlaps, rows_in, without


@pytest.mark.parametrize("seed", range(200))
def test_ranges_are_as_sets_of_rows(seed: int) -> None:
    dice = random.Random(seed)
    left, right = ({row for row in range(40) if dice.random() < 0.6} for _ in range(2))
    ranges, others = joined(left), joined(right)
    assert rows_in(ranges) == len(left)
    assert joined(row for one in common(ranges, others) for row in range(*one)) == joined(left & right)
    assert list(without(ranges, others)) == joined(left - right)
    first = dice.randrange(0, 40)
    end = first + dice.randrange(1, 9)
    assert overlaps(first, end, ranges) == bool(left & set(range(first, end)))

"""A store of positions that is behind the cohort is noticed before a row is missing in it."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.consumer.settings import Settings
from ringfence.consumer.stores import PRUNED_UNREAD, READ, begin_of
from ringfence.consumer.values import Point
from ringfence.native.errors import PositionError, TruncatedError

PARENT, END = 7, 100


def store(position: int | None = None, **options: Any) -> Settings:
    """A store that has this position in the parent, and nothing else."""
    positions = {PARENT: None if position is None else f"1:{PARENT}:{position}:1:1"}
    return Settings(topic="t", cohort="c", mode="checkpoint", positions=positions, **options)


def asked(how: int | None = None, **values: Any) -> dict[str, Any]:
    parents = [] if how is None else [(PARENT, END, how)]
    return {"begin": 0, "settled": None, "parents": parents, **values}


def test_a_cohort_that_is_new_begins() -> None:
    assert begin_of(8, asked(), store()) == (Point(0, 0), False)
    assert begin_of(8, asked(begin=20, settled=20), store()) == (Point(20, 0), False)


def test_a_store_without_the_partition_that_the_cohort_has_read_is_refused() -> None:
    with pytest.raises(PositionError, match="the cohort is at 500 in partition 8") as refused:
        begin_of(8, asked(settled=500), store())
    assert refused.value.details["settled"] == 500


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_store_that_another_member_has_filled_since_it_was_asked_is_not_behind(is_reported: bool) -> None:
    positions = {8: "1:8:500:3:1"}
    settings = Settings(topic="t", cohort="c", mode="checkpoint", positions=positions, report=is_reported)
    assert begin_of(8, asked(READ, settled=500), settings) == (Point(500, 3), is_reported)


@pytest.mark.parametrize("position", [None, END - 1])
def test_a_store_that_has_not_the_end_of_a_parent_that_was_read_is_refused(position: int | None) -> None:
    with pytest.raises(PositionError, match="behind the cohort in partition 7") as refused:
        begin_of(8, asked(READ), store(position))
    assert refused.value.details["stored"] == position


def test_a_store_that_has_the_end_of_the_parent_goes_on() -> None:
    assert begin_of(8, asked(READ), store(END)) == (Point(0, 0), False)


@pytest.mark.parametrize("how", [READ, PRUNED_UNREAD])
def test_a_parent_without_rows_is_missed_in_no_store(how: int) -> None:
    question = {"begin": 0, "settled": None, "parents": [(PARENT, 0, how)]}
    assert begin_of(8, question, store()) == (Point(0, 0), how == PRUNED_UNREAD)


def test_a_parent_that_was_removed_unread_is_told_or_skipped() -> None:
    with pytest.raises(TruncatedError, match="removed before the cohort had read it") as told:
        begin_of(8, asked(PRUNED_UNREAD), store(50))
    assert told.value.details["pruned"] == [(PARENT, END)]
    assert begin_of(8, asked(PRUNED_UNREAD), store(50, on_truncated="skip")) == (Point(0, 0), True)
    assert begin_of(8, asked(PRUNED_UNREAD), store(END)) == (Point(0, 0), True)

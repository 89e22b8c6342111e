"""Errors of lost rows: exact, merged, and bounded in text and memory."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from ringfence.consumer.lost_rows import LISTED_MAX, RANGES_MAX, LostRows, Outcomes, lost_error, merged
from ringfence.native.errors import ConflictError, LostRowsError

WHY = "their lease was over before"


def test_an_error_names_rows_and_partition() -> None:
    error = lost_error({7: [(3, 5), (9, 10), (5, 6)]}, WHY)
    assert error.lost == {7: [(3, 6), (9, 10)]}
    assert error.partition == 7
    assert str(error) == f"rows 3 to 5, 9 of partition 7 are not acknowledged: {WHY} [partition=7]"


def test_the_text_is_bounded_and_the_ranges_are_all_there() -> None:
    many = {partition: [(row, row + 1) for row in range(0, 100, 2)] for partition in range(1, 100)}
    error = lost_error(many, WHY)
    assert len(str(error)) < 1_000
    assert "rows of 91 more partitions" in str(error)
    assert sum(map(len, error.lost.values())) == 99 * 50
    assert error.partition is None
    assert str(error).count(" and more") == LISTED_MAX


def test_one_error_has_what_several_lost() -> None:
    errors = [lost_error({1: [(0, 5)]}, WHY), lost_error({2: [(1, 2)], 1: [(5, 7)]}, WHY)]
    error = merged(errors)
    assert isinstance(error, LostRowsError)
    assert error.lost == {1: [(0, 7)], 2: [(1, 2)]}
    assert merged(errors[:1]) is errors[0]
    assert merged([]) is None


def test_an_error_of_something_else_comes_first() -> None:
    other = ConflictError("another position")
    assert merged([lost_error({1: [(0, 5)]}, WHY), other]) is other


def test_the_outcome_is_told_when_the_last_one_is_there() -> None:
    heard: list[Exception | None] = []
    outcomes = Outcomes(heard.append, WHY)
    outcomes.of([1, 2])
    outcomes.lose({4: [(0, 1)]})
    outcomes(None)
    assert heard == []
    outcomes(lost_error({4: [(1, 3)]}, WHY))
    (error,) = heard
    assert isinstance(error, LostRowsError)
    assert error.lost == {4: [(0, 3)]}


def test_it_can_be_copied_and_so_be_pickled() -> None:
    error = copy.deepcopy(lost_error({7: [(3, 5)]}, WHY))
    assert (error.lost, error.why, error.partition) == ({7: [(3, 5)]}, WHY, 7)


def rows_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {row for first, end in ranges for row in range(first, end)}


SPANS = st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda one: (one[0], sum(one)))


@given(st.lists(st.tuples(st.booleans(), SPANS)))
def test_rows_are_lost_until_they_are_given_again(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    lost, wanted = LostRows(), set[int]()
    for is_lost, rows in steps:
        if is_lost:
            lost.add(1, [rows])
            wanted |= rows_of([rows])
        else:
            lost.given(1, rows)
            wanted -= rows_of([rows])
    assert rows_of(lost.take().get(1, [])) == wanted
    assert lost.take() == {}


def test_what_is_kept_of_a_partition_is_bounded_and_no_row_is_left_out() -> None:
    lost = LostRows()
    end = 2 * RANGES_MAX + 100
    lost.add(1, [(row, row + 1) for row in range(0, end, 2)])
    ranges = lost.take()[1]
    assert len(ranges) == RANGES_MAX
    assert rows_of(ranges) >= set(range(0, end, 2))
    assert rows_of(ranges[-10:]) == set(range(end - 20, end, 2)), "the newest ones are exact"

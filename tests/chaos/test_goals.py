"""A run in which too little happened says what was missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.cohort_record import Part
from tests.chaos.faults import FAULTS
from tests.chaos.goals import MAIN, OTHER, CohortCounts, CohortGoals, Counts, Goals, missing_in_lineage

FIVE = Goals.of(300)
ENOUGH = Counts(
    Counter(dict.fromkeys(MAIN, 11) | dict.fromkeys(OTHER, 4)), while_moving=20, moves=20, rows=2_000_000
)


def test_each_fault_that_there_is_has_a_least_count() -> None:
    assert set(MAIN) | set(OTHER) == set(FAULTS)


def test_five_minutes_are_as_the_issue_says() -> None:
    assert Goals(60, 10, 4, 20, 20, 2_000_000) == FIVE
    assert FIVE.missing(ENOUGH) == []


@pytest.mark.parametrize("kind", MAIN)
def test_nine_of_a_main_kind_are_too_few(kind: str) -> None:
    few = replace(ENOUGH, faults=ENOUGH.faults + Counter({"clock_jump": 10}) - Counter({kind: 2}))
    assert FIVE.missing(few) == [f"faults of kind {kind}: 9, wanted 10"]


@pytest.mark.parametrize("kind", OTHER)
def test_three_of_another_kind_are_too_few(kind: str) -> None:
    few = replace(ENOUGH, faults=ENOUGH.faults + Counter({"kill": 10}) - Counter({kind: 1}))
    assert FIVE.missing(few) == [f"faults of kind {kind}: 3, wanted 4"]


def test_each_other_count_that_is_too_low_is_named() -> None:
    few = replace(
        ENOUGH, faults=ENOUGH.faults - Counter({"kill": 1}), while_moving=19, moves=19, rows=1_999_999
    )
    assert FIVE.missing(few) == [
        "faults: 59, wanted 60",
        "faults while partitions moved: 19, wanted 20",
        "committed moves: 19, wanted 20",
        "rows: 1,999,999, wanted 2,000,000",
    ]


def test_a_short_run_asks_for_each_kind_once() -> None:
    assert Goals.of(40) == Goals(8, 1, 1, 2, 2, 266_666)


def test_a_cohort_in_which_too_little_happened_is_named_with_each_count() -> None:
    enough = CohortCounts(acknowledged=10_000, handovers=10, deaths=4)
    assert CohortGoals.of(300).missing("audit", enough) == []
    assert CohortGoals.of(300).missing("audit", CohortCounts(9_999, 9, 3)) == [
        "rows acknowledged in audit: 9,999, wanted 10,000",
        "hand-overs in audit: 9, wanted 10",
        "deaths of members in audit: 3, wanted 4",
    ]
    assert CohortGoals.of(20) == CohortGoals(666, 1, 1)


LINEAGE = [Part(1, (), 9), Part(2, (1,), 5), Part(3, (1,), 5), Part(4, (2, 3), None)]


def test_a_lineage_of_which_members_saw_a_split_and_a_merge_lacks_nothing() -> None:
    assert missing_in_lineage(LINEAGE, {1, 2, 4}, 1) == []


@pytest.mark.parametrize(
    ("lacks", "parts", "given", "owner_changes"),
    [
        ("split", LINEAGE, {2, 3, 4}, 1),
        ("split", LINEAGE[1:], {2, 3, 4}, 1),
        ("merged", LINEAGE[:3], {1, 2, 3}, 1),
        ("merged", LINEAGE, {1, 2, 3}, 1),
        ("owner of a gate", LINEAGE, {1, 2, 3, 4}, 0),
    ],
)
def test_what_no_member_saw_of_a_lineage_is_named(
    lacks: str, parts: list[Part], given: set[int], owner_changes: int
) -> None:
    [line] = missing_in_lineage(parts, given, owner_changes)
    assert lacks in line

"""CH11 and CH12 on histories of a few rows: a sound one passes, and each anomaly is named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.checker.cohort_history import Given, Held
from tests.checker.consumed import ClaimJudge, Decided, Rows, copied

SOURCE = {1: (10, 11, 12), 2: (20,)}
FIRST, NEWEST = 7, 8


def test_a_copy_is_sound_whose_newest_incarnation_has_every_row() -> None:
    output: dict[int, Rows] = {FIRST: {1: (10, 11)}, NEWEST: {1: (10, 11, 12), 2: (20,)}}
    assert copied(SOURCE, output, NEWEST) == []


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("twice", (10, 11, 11, 12)),
        ("invented", (10, 11, 13)),
        ("order", (10, 12, 11)),
        ("gap", (10, 12)),
        ("missing", (10, 11)),
    ],
)
def test_what_is_wrong_with_a_copy_is_named(kind: str, rows: Sequence[int]) -> None:
    found = copied(SOURCE, {NEWEST: {1: rows, 2: (20,)}}, NEWEST)
    assert [one.kind for one in found] == [kind]


def test_an_older_incarnation_may_end_anywhere_and_leaves_nothing_out() -> None:
    whole = {1: (10, 11, 12), 2: (20,)}
    assert copied(SOURCE, {FIRST: {1: (10,)}, NEWEST: whole}, NEWEST) == []
    found = copied(SOURCE, {FIRST: {1: (11,)}, NEWEST: whole}, NEWEST)
    assert [one.kind for one in found] == ["gap"]


def test_a_newest_incarnation_without_any_row_is_missing() -> None:
    assert {one.kind for one in copied(SOURCE, {}, NEWEST)} == {"missing"}


# ---- CH12 ----


def judged(*events: Held | Given | Decided) -> list[str]:
    judge = ClaimJudge()
    for event in events:
        judge.take(event)
    return [one.kind for one in judge.found]


def held(hold: int, position: int, *, incarnation: int = FIRST) -> Held:
    return Held(f"m{hold}", 1, incarnation, hold, position)


def given(hold: int, first: int, end: int) -> Given:
    return Given(f"m{hold}", 1, FIRST, hold, first, end)


def decided(hold: int, first: int, through: int) -> Decided:
    return Decided(1, FIRST, hold, first, through)


def test_holds_that_follow_each_other_are_sound() -> None:
    events = held(5, 0), given(5, 0, 9), decided(5, 0, 9), held(6, 9), given(6, 9, 12), decided(6, 9, 12)
    assert judged(*events) == []


def test_rows_of_an_aborted_block_may_be_given_again() -> None:
    assert judged(held(5, 0), given(5, 0, 9), given(5, 0, 9), decided(5, 0, 9)) == []


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("let in", (held(5, 0), held(6, 0), decided(5, 0, 9))),
        ("let in", (held(5, 0), decided(5, 0, 9), held(6, 4))),
        ("given after", (given(6, 0, 9), decided(5, 0, 9))),
        ("given after", (decided(5, 0, 9), given(5, 4, 9))),
        ("not from the position", (decided(5, 0, 9), decided(5, 10, 12))),
        ("not from the position", (decided(5, 0, 9), decided(6, 8, 12))),
    ],
)
def test_what_a_claim_did_not_keep_out_is_named(
    kind: str, events: tuple[Held | Given | Decided, ...]
) -> None:
    assert judged(*events) == [kind]


def test_incarnations_are_judged_apart() -> None:
    assert judged(held(5, 0), decided(5, 0, 9), held(6, 0, incarnation=NEWEST)) == []

"""The judge of a cohort's history finds each anomaly that is planted, and nothing in a sound history."""

from __future__ import annotations

import pytest

from tests.checker.cohort_history import (
    Done,
    Ended,
    Event,
    Given,
    Gone,
    Held,
    History,
    Key,
    Leased,
    Made,
    Position,
    Sealed,
    Sought,
    Spans,
    Taken,
    Told,
)
from tests.checker.cohorts import anomalies

A, B = "a", "b"
P, LEFT, RIGHT = 1, 2, 3
INC = 7


def key_of(partition: int, offset: int) -> Key:
    """Two keys that take turns; each child goes on with one of them, from row 10 on."""
    if partition == P:
        return Key((0, offset % 2), (offset, offset))
    return Key((0, int(partition == RIGHT)), (10 + offset, 0))


def sound() -> list[Event]:
    """A reads a partition in part, B goes on; it is split; both read children."""
    return [
        Sought(INC, {}),
        Held(A, P, INC, 1, 0),
        Given(A, P, INC, 1, 0, 6),
        Told(A, P, INC, 1, 4, 100),
        Taken(100),
        Position(P, INC, 4),
        Held(B, P, INC, 2, 4),
        Given(B, P, INC, 2, 4, 10),
        Sealed(P, 10),
        Made(LEFT, (P,)),
        Made(RIGHT, (P,)),
        Told(B, P, INC, 2, 10, 101),
        Taken(101),
        Held(A, LEFT, INC, 3, 0),
        Given(A, LEFT, INC, 3, 0, 3),
        Held(B, RIGHT, INC, 3, 0),
        Given(B, RIGHT, INC, 3, 0, 2),
        Told(A, LEFT, INC, 3, 3, 102),
        Taken(102),
    ]


def kinds(events: list[Event], *, ends: dict[int, int] | None = None, deliveries_max: int = 0) -> set[str]:
    history = History(events, key_of, ends or {}, deliveries_max=deliveries_max)
    return {anomaly.kind for anomaly in anomalies(history)}


def test_nothing_is_found_in_a_sound_history() -> None:
    assert kinds(sound(), ends={LEFT: 3, RIGHT: 2}) == set()


def without(events: list[Event], *gone: Event) -> list[Event]:
    return [event for event in events if event not in gone]


def replaced(events: list[Event], old: Event, *new: Event) -> list[Event]:
    at = events.index(old)
    return [*events[:at], *new, *events[at + 1 :]]


CASES = {
    "again": [*sound(), Held(B, LEFT, INC, 4), Given(B, LEFT, INC, 4, 2, 3)],
    "lost": without(sound(), Given(A, LEFT, INC, 3, 0, 3)),
    "two holds": [
        *sound(),
        Held(A, RIGHT, INC, 4),
        Given(A, RIGHT, INC, 4, 0, 1),
        Told(B, RIGHT, INC, 3, 2, 103),
        Taken(103),
    ],
    "fenced hold": [*sound(), Held(A, RIGHT, INC, 4), Told(B, RIGHT, INC, 3, 2, 103), Taken(103)],
    "older hold": [
        *sound(),
        Held(A, RIGHT, INC, 4),
        Given(A, RIGHT, INC, 4, 0, 1),
        Given(B, RIGHT, INC, 3, 2, 3),
    ],
    "twice": [*sound(), Given(B, RIGHT, INC, 3, 1, 2)],
    "back": [*sound(), Held(B, LEFT, INC, 4, 2)],
}


@pytest.mark.parametrize("kind", sorted(CASES))
def test_an_anomaly_is_found(kind: str) -> None:
    assert kinds(CASES[kind]) == {kind}


def test_a_child_that_is_read_before_its_parent_is_drained_is_early() -> None:
    events = replaced(sound(), Told(B, P, INC, 2, 10, 101), Told(B, P, INC, 2, 9, 101))
    assert kinds(events) == {"early"}


def test_a_grandchild_waits_for_ancestors_whose_child_had_no_rows() -> None:
    events = replaced(sound(), Told(B, P, INC, 2, 10, 101), Told(B, P, INC, 2, 9, 101))
    empty: list[Event] = [Sealed(LEFT, 0), Made(4, (LEFT,)), Held(A, 4, INC, 5), Given(A, 4, INC, 5, 0, 1)]
    kept = [event for event in events if not isinstance(event, Given) or event.partition == P]
    found = anomalies(History([*kept, *empty]))
    assert [(one.kind, "ancestor 1 is at 9 of 10" in one.text) for one in found[:1]] == [("early", True)]


def test_rows_of_a_key_that_come_out_of_their_order_are_found() -> None:
    def late(partition: int, offset: int) -> Key:
        return Key((0, 0), (5 if (partition, offset) == (LEFT, 1) else 10 * partition + offset, 0))

    assert {one.kind for one in anomalies(History(sound(), late))} == {"order"}


def test_rows_that_are_left_out_are_found_where_the_next_ones_come_unless_they_are_gone_by_then() -> None:
    left_out: list[Event] = [Given(B, RIGHT, INC, 3, 4, 6)]
    assert skips([*sound(), *left_out]) == ["skipped"]
    assert skips([*sound(), Gone(RIGHT, 3), *left_out]) == ["skipped"]
    assert skips([*sound(), Gone(RIGHT, 4), *left_out]) == []
    assert skips([*sound(), *left_out, Gone(RIGHT, 4)]) == ["skipped"]


def skips(events: list[Event]) -> list[str]:
    return [one.kind for one in anomalies(History(events, key_of, tells_gone=True))]


def test_a_position_that_an_owner_tells_below_an_acknowledgement_is_back() -> None:
    assert kinds([*sound(), Position(LEFT, INC, 2)]) == {"back"}


def test_rows_that_nobody_came_to_in_peace_are_lost_and_rows_that_are_gone_are_not() -> None:
    assert kinds(sound(), ends={RIGHT: 5}) == {"lost"}
    assert kinds([*sound(), Gone(RIGHT, 5)], ends={RIGHT: 5}) == set()


def test_a_seek_lets_rows_be_given_again_and_children_wait_again() -> None:
    again: list[Event] = [Sought(8, {P: 2}), Held(A, P, 8, 9), Given(A, P, 8, 9, 2, 10)]
    assert kinds([*sound(), *again]) == set()
    assert kinds([*sound(), *again, Given(A, LEFT, 8, 10, 0, 1)]) == {"early"}
    late: list[Event] = [
        Sought(8, {}),
        Held(A, P, 8, 9),
        Given(A, P, 8, 9, 0, 1),
        Given(B, RIGHT, INC, 10, 2, 3),
    ]
    assert kinds([*sound(), *late]) == {"behind a seek"}
    begun_behind: list[Event] = [Sought(8, {P: 10}), Given(A, LEFT, 8, 10, 0, 1)]
    assert kinds([*sound(), *begun_behind]) == set()


def test_a_reader_with_its_own_store_may_be_given_rows_again() -> None:
    assert anomalies(History(CASES["again"], key_of, repeats=True)) == []


QUEUE: list[Event] = [
    Leased(A, P, 1, 0, 10, 1, 0.0, 30.0),
    Done(1, 0, 5),
    Leased(B, P, 2, 10, 20, 1, 1.0, 31.0),
    Ended(2),
    Leased(B, P, 3, 10, 20, 2, 2.0, 32.0),
    Leased(B, P, 4, 5, 10, 2, 31.0, 61.0),
    Done(4, 5, 10),
]
QUEUES: dict[str, list[Event]] = {
    "acknowledged twice": [*QUEUE, Done(4, 9, 10)],
    "over the limit": [*QUEUE, Ended(3), Leased(A, P, 5, 10, 20, 4, 33.0, 63.0)],
    "two leases": [*QUEUE, Leased(A, P, 5, 19, 21, 1, 31.5, 61.5)],
    "again": [*QUEUE, Leased(A, P, 5, 0, 1, 2, 33.0, 63.0)],
}


def test_leases_that_end_before_others_begin_are_sound() -> None:
    assert kinds(QUEUE, deliveries_max=3) == set()


@pytest.mark.parametrize("kind", sorted(QUEUES))
def test_an_anomaly_of_leases_is_found(kind: str) -> None:
    assert kinds(QUEUES[kind], deliveries_max=3) == {kind}


def test_spans_join_ranges_that_touch_and_tell_holes() -> None:
    spans = Spans()
    for first, end in [(0, 2), (4, 6), (8, 9), (2, 4), (20, 30), (5, 12)]:
        spans.add(first, end)
    assert spans.ranges == [(0, 12), (20, 30)]
    assert spans.missing(0, 12) is None
    assert spans.missing(3, 40) == (12, 20)
    assert spans.missing(25, 40) == (30, 40)
    assert spans.within(12, 20) is None
    assert spans.within(10, 25) == (10, 12)

"""One partition: offsets stay in order, and the bytes in memory are counted."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import Fetched
from ringfence.consumer.gate import Gate, Phase
from ringfence.consumer.values import Point

REPORTED, SAVED = 55, 248
"""Owner epochs: of the last row that the cohort was told of, and of the last one in the store."""


def opened(start: int = 20) -> Gate:
    gate = Gate(1, Phase.OPENING)
    gate.opened(Fetched(5, start, start, 2), 10.0)
    return gate


def test_a_gate_opens_at_the_settled_position() -> None:
    gate = opened()
    assert (gate.phase, gate.hold, gate.newest) == (Phase.HELD, 5, 5)
    assert gate.settled == gate.told == gate.given == gate.fetched == Point(20, 2)
    assert list(gate.faults()) == []
    assert not gate.owes


def test_an_answer_that_begins_before_is_kept_from_the_next_row_on() -> None:
    gate = opened()
    gate.store(Fetched(5, 15, 30, 2, bytes=100))
    assert [(stored.start, stored.end) for stored in gate.answers] == [(20, 30)]
    gate.store(Fetched(5, 15, 30, 2, bytes=100))
    assert len(gate.answers) == 1


def test_bytes_are_freed_when_the_last_row_of_an_answer_is_acknowledged() -> None:
    gate = opened()
    gate.given, gate.fetched = Point(40, 2), Point(40, 2)
    gate.given_sizes.extend([(30, 100), (40, 50)])
    assert gate.acknowledge(Point(29, 2)) == 0
    assert gate.acknowledge(Point(30, 2)) == 100
    assert gate.acknowledge(Point(25, 2)) == 0
    assert gate.told == Point(30, 2)
    assert gate.owes
    assert gate.has_unacknowledged
    assert gate.ended(Phase.WAITING) == 50


def test_what_was_fetched_and_not_given_is_fetched_again_after_a_drop() -> None:
    gate = opened()
    gate.store(Fetched(5, 20, 30, 3, bytes=100))
    assert gate.drop_fetched() == 100
    assert gate.fetched == gate.given == Point(20, 2)


def test_callers_that_wait_are_called_in_time_and_once() -> None:
    gate = opened()
    called: list[Exception | None] = []
    gate.wait_settled = [(25, called.append), (30, called.append)]
    gate.settled = Point(25, 2)
    for call in gate.settled_callbacks():
        call(None)
    assert called == [None]
    assert [through for through, _ in gate.wait_settled] == [30]


def test_disorder_is_named() -> None:
    gate = opened()
    gate.told = Point(50, 2)
    assert "not in order" in next(gate.faults())
    gate = opened()
    gate.hold = 0
    assert "without its hold" in next(gate.faults())


@pytest.mark.parametrize(
    ("position", "begins"),
    [
        (Point(171, SAVED), Point(171, SAVED)),
        (Point(150, SAVED), Point(171, REPORTED)),
        (None, Point(171, REPORTED)),
    ],
)
def test_a_store_that_is_ahead_of_the_last_report_begins_with_its_own_epoch(
    position: Point | None, begins: Point
) -> None:
    gate = Gate(1, Phase.OPENING)
    gate.position = position
    gate.opened(Fetched(5, 171, 171, REPORTED), lease_until=1.0)
    assert gate.fetched == gate.settled == begins

"""What owners hear: merged, one request at a time, repeated only where that is harmless."""

from __future__ import annotations

from typing import Any

from ringfence.consumer.calls import Note, Refusal, Why
from ringfence.consumer.queue_calls import (
    NotTakenBecause,
    QueueSettle,
    QueueSettled,
    RowsNotTaken,
    RowsParked,
    What,
)
from ringfence.native.errors import FencedError, RetriableError
from ringfence.native.wire import Code
from tests.fakes.queue_alone import LEASE_S, QueueAlone


def test_neighbours_that_are_done_become_one_line() -> None:
    alone = QueueAlone(interval_s=1.0)
    alone.lease(0, 30)
    for place in [alone.gave(10) for _ in range(3)]:
        alone.say(place, What.DONE)
    assert alone.told(What.DONE) == [(0, 10)], "the first one goes immediately"
    alone.settle(What.DONE)
    assert alone.told(What.DONE) == [], "one each interval"
    alone.turn(1.0)
    assert alone.told(What.DONE) == [(10, 30)]


def test_done_is_repeated_without_an_answer_and_failures_are_not() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave()
    alone.say(place, What.FAILED, (3, 4))
    alone.say(place, What.DONE)
    (failed,) = [one for one in alone.calls(QueueSettle) if one.lines[0].what is What.FAILED]
    alone.member.unanswered(failed.number, alone.now)
    alone.turn(1.0)
    assert alone.told(What.FAILED) == [], "it may have been taken, and its rows on lease again"
    (done,) = [one for one in alone.calls(QueueSettle) if one.lines[0].what is What.DONE]
    alone.member.unanswered(done.number, alone.now)
    alone.turn(1.0)
    assert alone.told(What.DONE) == [(0, 3), (4, 10)]


def test_failures_are_repeated_if_they_were_refused_for_sure_and_within_the_lease() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.say(alone.gave(), What.FAILED)
    overloaded = RetriableError("overloaded", code=Code.OVERLOADED)
    alone.settle(What.FAILED, Refusal(Why.RETRY, overloaded))
    alone.turn(1.0)
    assert alone.told(What.FAILED) == [(0, 10)]
    alone.settle(What.FAILED, Refusal(Why.RETRY, overloaded))
    alone.now += LEASE_S
    alone.turn(1.0)
    assert alone.told(What.FAILED) == []
    assert alone.member.telling.is_idle


def test_without_room_for_ranges_it_is_said_again_until_the_lease_is_over() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    outcomes: list[Any] = []
    alone.say(alone.gave(), What.DONE, outcomes=outcomes)
    full = QueueSettled((RowsNotTaken(0, 10, NotTakenBecause.NO_ROOM),))
    alone.settle(What.DONE, full)
    alone.turn(1.0)
    assert (alone.told(What.DONE), outcomes) == ([(0, 10)], [])
    alone.now += LEASE_S
    alone.settle(What.DONE, full)
    assert isinstance(outcomes[0], FencedError)


def test_what_is_of_before_a_seek_is_over() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    outcomes: list[Any] = []
    alone.say(alone.gave(), What.DONE, outcomes=outcomes)
    alone.settle(What.DONE, Refusal(Why.NOT_ASSIGNED, FencedError("before the seek")))
    assert isinstance(outcomes[0], FencedError)
    assert alone.member.telling.is_idle


def test_done_goes_to_the_next_owner() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.say(alone.gave(), What.DONE)
    alone.settle(What.DONE, Refusal(Why.REDIRECT, version=2))
    alone.table({1: 2}, version=2, epoch=2)
    alone.member.up(2)
    alone.attach()
    (call,) = [one for one in alone.calls(QueueSettle) if one.lines[0].what is What.DONE]
    assert call.node == 2


def test_a_parked_row_is_told_in_the_log_and_to_who_exports_it() -> None:
    alone = QueueAlone()
    alone.lease(7, 8, failures=4)
    alone.say(alone.gave(), What.FAILED)
    alone.settle(What.FAILED, QueueSettled((RowsNotTaken(7, 8, NotTakenBecause.PARKED),)))
    (note,) = [one for one in alone.effects if isinstance(one, Note)]
    assert "rows 7 to 7 of partition 1 are parked" in note.text
    assert [one for one in alone.effects if isinstance(one, RowsParked)] == [RowsParked(1, 7, 8)]

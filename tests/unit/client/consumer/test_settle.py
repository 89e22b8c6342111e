"""Acknowledgements: merged, one request a node, repeated until they are answered."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import Fetch, NotTaken, Refusal, Settle, Settled, Settlement, Why
from ringfence.consumer.values import Point
from ringfence.native.errors import FencedError, TruncatedError
from tests.fakes.consumer_alone import Alone


def working(*partitions: int, **options: object) -> Alone:
    alone = Alone(*partitions, **options)
    for partition in partitions:
        alone.open(partition, hold=partition * 10, rows=100)
    return alone


def test_one_request_is_under_way_and_the_next_one_has_the_newest() -> None:
    alone = working(1)
    for _ in range(3):
        alone.member.acknowledge(alone.gave(10))
        alone.turn()
    first = alone.call(Settle)
    assert first.entries == (Settlement(1, 10, Point(10, 1), release=False),)
    alone.turn(0.3)
    alone.answer(first, Settled())
    assert alone.call(Settle).entries == (Settlement(1, 10, Point(30, 1), release=False),)


def test_acknowledgements_of_several_partitions_go_together_and_wait_for_the_interval() -> None:
    alone = working(1, 2)
    alone.member.acknowledge(alone.gave(10))
    alone.answer(alone.call(Settle), Settled())
    for _ in range(2):
        alone.gave(10)
    alone.member.giving.acknowledge_given()
    assert alone.calls(Settle) == []
    alone.turn(0.2)
    assert [entry.partition for entry in alone.call(Settle).entries] == [1, 2]


def test_who_waits_is_not_kept_by_the_interval_and_hears_of_the_answer() -> None:
    alone = working(1)
    heard: list[Exception | None] = []
    alone.member.acknowledge(alone.gave(10))
    alone.answer(alone.call(Settle), Settled())
    alone.member.acknowledge(alone.gave(10), heard.append)
    call = alone.call(Settle)
    assert heard == []
    alone.answer(call, Settled())
    assert heard == [None]


@pytest.mark.parametrize("way", ["refused", "unanswered", "down"])
def test_what_got_no_answer_is_told_again(way: str) -> None:
    alone = working(1)
    alone.member.acknowledge(alone.gave(10))
    call = alone.call(Settle)
    if way == "refused":
        alone.answer(call, Refusal(Why.RETRY))
    elif way == "unanswered":
        alone.member.unanswered(call.number, alone.now)
    else:
        alone.member.down(1, alone.now)
        alone.member.up(1)
        alone.turn(0.3)
        alone.answer(alone.made_attach(), alone.attached())
    alone.turn(0.3)
    again = alone.call(Settle)
    assert again.entries == call.entries
    assert again.number != call.number


def test_a_hold_that_a_newer_one_ended_is_lost_and_callers_are_told() -> None:
    alone = working(1)
    heard: list[Exception | None] = []
    alone.member.acknowledge(alone.gave(10), heard.append)
    alone.answer(alone.call(Settle), Settled((NotTaken(1, 99, Why.NOT_ASSIGNED, None),)))
    assert isinstance(heard[0], FencedError)
    assert alone.member.state.gates[1].hold == 0
    assert alone.calls(Fetch)[-1].reopen


def test_an_owner_of_before_ends_no_hold() -> None:
    alone = working(1)
    alone.member.acknowledge(alone.gave(10))
    alone.answer(alone.call(Settle), Settled((NotTaken(1, 9, Why.NOT_ASSIGNED, None),)))
    assert alone.member.state.gates[1].hold == 10
    alone.turn(0.3)
    assert alone.call(Settle).entries[0].through == Point(10, 1)


def test_rows_of_another_history_are_not_settled() -> None:
    alone = working(1)
    heard: list[Exception | None] = []
    alone.member.acknowledge(alone.gave(10), heard.append)
    error = TruncatedError("another history", partition=1)
    alone.answer(alone.call(Settle), Settled((NotTaken(1, 10, Why.TRUNCATED, error),)))
    assert heard == [error]
    assert alone.member.state.gates[1].hold == 0


def test_a_release_that_is_refused_is_over() -> None:
    alone = working(1)
    alone.plan(generation=2)
    call = alone.call(Settle)
    assert call.entries == (Settlement(1, 10, Point(0, 0), release=True),)
    alone.answer(call, Settled((NotTaken(1, 10, Why.NOT_ASSIGNED, None),)))
    assert alone.member.state.gates == {}
    assert alone.member.settling.is_idle

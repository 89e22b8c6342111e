"""What the application gets: partitions in turn, only under a valid hold, and nothing skipped."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import Fetch, Fetched, Refusal, Why
from ringfence.native.errors import InvalidArgumentError
from tests.fakes.consumer_alone import Alone


def test_partitions_take_turns() -> None:
    alone = Alone(1, 2, 3)
    for partition in (1, 2, 3):
        alone.open(partition, hold=partition, rows=10)
    assert [alone.gave(5).partition for _ in range(6)] == [1, 2, 3, 1, 2, 3]
    assert alone.give() is None


def test_a_paused_partition_keeps_its_rows_and_its_hold() -> None:
    alone = Alone(1, 2)
    alone.open(1)
    alone.open(2, hold=2)
    alone.member.pause([1], is_paused=True)
    assert [alone.gave(2).partition for _ in range(3)] == [2, 2, 2]
    alone.member.pause([1], is_paused=False)
    assert {alone.gave(2).partition for _ in range(2)} == {1, 2}
    assert alone.member.state.gates[1].hold == 1


def test_rows_that_were_decoded_before_the_hold_was_lost_are_not_given() -> None:
    alone = Alone(1)
    alone.open(1)
    turn = alone.member.turn(alone.now)
    assert turn is not None
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ASSIGNED, hold=5))
    assert alone.member.giving.give(turn, 0, 10, 1, alone.now) is None
    alone.member.giving.finish(turn)
    assert list(alone.member.faults()) == []


def test_rows_that_cannot_be_decoded_are_fetched_again() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.gave(3)
    turn = alone.member.turn(alone.now)
    assert turn is not None
    alone.member.giving.rewind(turn)
    assert alone.member.state.bytes == 0
    assert alone.member.state.gates[1].fetched.offset == 3


def test_rows_that_the_application_has_not_got_are_not_acknowledged_with_the_others() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.gave(3)
    alone.give(4, is_seen=False)
    gate, giving = alone.member.state.gates[1], alone.member.giving
    giving.acknowledge_given()
    assert gate.told.offset == 3
    assert giving.seen()
    giving.acknowledge_given()
    assert gate.told.offset == 7
    assert not giving.seen(), "there is none"


def test_rows_that_the_application_will_not_get_are_fetched_again() -> None:
    alone = Alone(1)
    alone.open(1)
    giving = alone.member.giving
    alone.gave(3)
    for rows in (4, 3):
        alone.give(rows, is_seen=False)
    giving.take_back()
    alone.turn()
    giving.acknowledge_given()
    assert alone.member.state.gates[1].told.offset == 3
    assert not giving.seen()
    call = alone.newest(Fetch)
    assert call.offset == 3
    alone.answer(call, Fetched(1, 3, 10, 1, bytes=100))
    assert alone.gave().first_offset == 3


def test_rows_whose_hold_ended_before_the_application_got_them_are_not_given() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.give(4, is_seen=False)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ASSIGNED, hold=5))
    assert not alone.member.giving.seen()


def test_more_than_was_given_cannot_be_acknowledged() -> None:
    alone = Alone(1)
    alone.open(1)
    place = alone.gave(3)
    with pytest.raises(InvalidArgumentError, match="rows that were not given"):
        alone.member.acknowledge(place._replace(end_offset=4))
    assert not alone.member.acknowledge(place._replace(fencing_token=99, end_offset=4))


def test_all_that_was_given_is_acknowledged_at_once() -> None:
    alone = Alone(1, 2)
    alone.open(1)
    alone.open(2, hold=2)
    alone.gave(3)
    alone.gave(4)
    alone.member.giving.acknowledge_given()
    assert [gate.told.offset for gate in alone.member.state.gates.values()] == [3, 4]


def test_an_answer_whose_last_records_have_no_rows_is_passed() -> None:
    alone = Alone(1)
    alone.open(1, rows=10)
    turn = alone.member.turn(alone.now)
    assert turn is not None
    alone.member.giving.give(turn, 0, 8, 1, alone.now)
    alone.member.giving.finish(turn)
    assert alone.member.state.gates[1].given.offset == 10

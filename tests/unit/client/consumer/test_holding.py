"""Partitions come and go: what the application has may be acknowledged, what it has not is dropped."""

from __future__ import annotations

from ringfence.consumer.calls import Fetch, Fetched, Refusal, Settle, Settled, Settlement, Why
from ringfence.consumer.gate import Phase
from ringfence.consumer.values import Point, TaskKind
from ringfence.native.errors import LostRowsError
from tests.fakes.consumer_alone import Alone

ALL = frozenset(TaskKind)


def test_a_partition_without_rows_in_hand_is_released_immediately() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.plan(generation=2)
    assert alone.call(Settle).entries == (Settlement(1, 1, Point(0, 0), release=True),)
    assert alone.give() is None


def test_rows_in_hand_may_be_acknowledged_before_the_release() -> None:
    alone = Alone(1)
    alone.open(1)
    place = alone.gave(4)
    alone.plan(generation=2)
    alone.turn(20.0)
    assert alone.calls(Settle) == []
    assert alone.give() is None
    assert alone.member.acknowledge(place)
    assert alone.tasks() == ["revoked 1"]
    assert alone.call(Settle).entries[0] == Settlement(1, 1, Point(4, 1), release=True)
    alone.answer(alone.call(Settle), Settled())
    assert alone.member.state.gates == {}
    assert not alone.member.acknowledge(place)


def test_the_application_hears_of_each_step() -> None:
    alone = Alone(1, tells=ALL)
    assert alone.calls(Fetch) == []
    assert alone.tasks() == ["assigned 1"]
    alone.open(1)
    alone.plan(2, generation=2)
    assert alone.calls(Settle) == []
    assert alone.tasks() == ["revoked 1", "assigned 2"]
    assert alone.call(Settle).entries[0].release


def test_a_plan_that_is_taken_back_costs_nothing() -> None:
    alone = Alone(1)
    alone.open(1)
    place = alone.gave(4)
    alone.plan(generation=2)
    alone.plan(1, generation=3)
    assert alone.tasks() == ["revoked 1"]
    assert alone.member.state.gates[1].phase is Phase.HELD
    assert alone.member.acknowledge(place)
    assert alone.newest(Fetch).offset == 4
    assert not alone.newest(Fetch).reopen


def test_a_partition_that_comes_back_during_its_release_is_opened_again() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.plan(generation=2)
    release = alone.call(Settle)
    alone.plan(1, generation=3)
    alone.answer(release, Settled())
    assert (alone.newest(Fetch).reopen, alone.newest(Fetch).hold) == (True, 1)


def test_a_hold_that_comes_too_late_is_given_back() -> None:
    alone = Alone(1)
    call = alone.call(Fetch)
    alone.plan(generation=2)
    assert alone.member.state.gates == {}
    alone.answer(call, Fetched(3, 50, 60, 1, bytes=100))
    assert alone.call(Settle).entries[0] == Settlement(1, 3, Point(50, 0), release=True)
    assert alone.give() is None


def test_a_lost_hold_is_told_and_the_next_one_begins_where_the_cohort_stands() -> None:
    alone = Alone(1, tells=frozenset({TaskKind.LOST}))
    alone.open(1)
    place = alone.gave(4)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ASSIGNED, hold=9))
    assert alone.tasks() == ["lost 1"]
    assert not alone.member.acknowledge(place)
    alone.turn(1.0)
    call = alone.call(Fetch)
    assert (call.offset, call.reopen) == (None, True)
    alone.answer(call, Fetched(10, 2, 8, 1, bytes=60))
    assert alone.gave().first_offset == 2


def lost(alone: Alone) -> dict[int, list[tuple[int, int]]]:
    """What who waits for all that was given hears, once."""
    return alone.member.state.lost_rows.take()


def test_of_a_place_whose_hold_is_over_what_was_settled_under_it_is_not_lost() -> None:
    alone = Alone(1)
    alone.open(1)
    place = alone.gave(6)
    alone.member.acknowledge(place._replace(end_offset=4))
    alone.turn(1.0)
    alone.answer(alone.call(Settle), Settled())
    alone.answer(alone.newest(Fetch), Refusal(Why.NOT_ASSIGNED, hold=9))
    holding = alone.member.holding
    assert holding.not_settled(place) == [(4, 6)]
    assert holding.not_settled(place._replace(end_offset=4)) == []
    assert holding.not_settled(place._replace(fencing_token=7)) == [(0, 6)], "nothing is known of it"


def test_rows_of_a_partition_that_is_drained_are_not_lost() -> None:
    alone = Alone(1)
    alone.open(1)
    place = alone.gave(10)
    alone.member.acknowledge(place)
    alone.turn(1.0)
    alone.answer(alone.call(Settle), Settled())
    alone.answer(alone.newest(Fetch), Fetched(1, 10, 10, 1, sealed_end=10))
    assert alone.member.state.gates[1].phase is Phase.DRAINED
    assert not alone.member.acknowledge(place)
    assert alone.member.holding.not_settled(place) == []


def test_rows_that_were_lost_in_hand_are_told_to_who_acknowledges_all() -> None:
    alone = Alone(1)
    alone.open(1)
    heard: list[Exception | None] = []
    alone.member.acknowledge(alone.gave(2), heard.append)
    alone.gave(4)
    alone.give(3, is_seen=False)
    alone.answer(alone.newest(Fetch), Refusal(Why.NOT_ASSIGNED, hold=9))
    (error,) = heard
    assert isinstance(error, LostRowsError)
    assert error.lost == {1: [(0, 2)]}
    alone.member.giving.acknowledge_given()
    assert lost(alone) == {1: [(0, 6)]}, "an acknowledgement that nothing waits for tells none of it"
    assert lost(alone) == {}


def test_rows_that_come_again_to_their_member_are_not_lost() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.gave(6)
    alone.answer(alone.newest(Fetch), Refusal(Why.NOT_ASSIGNED, hold=9))
    alone.turn(1.0)
    alone.answer(alone.newest(Fetch), Fetched(10, 0, 8, 1, bytes=60))
    alone.gave(4)
    assert lost(alone) == {1: [(4, 6)]}


def test_rows_that_a_release_leaves_are_lost() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.gave(6)
    alone.member.close(leave=True)
    alone.answer(alone.call(Settle), Settled())
    assert lost(alone) == {1: [(0, 6)]}


def test_rows_of_a_session_that_is_over_are_lost() -> None:
    alone = Alone(1, 2)
    for partition in (1, 2):
        alone.open(partition)
    for _ in range(2):
        alone.gave(5)
    alone.member.holding.all_lost()
    assert lost(alone) == {1: [(0, 5)], 2: [(0, 5)]}


def test_an_owner_of_before_ends_no_hold() -> None:
    alone = Alone(1)
    alone.open(1, hold=5)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ASSIGNED, hold=4))
    assert alone.member.state.gates[1].hold == 5
    alone.turn(1.0)
    assert not alone.call(Fetch).reopen


def test_a_seek_gives_every_hold_up_and_settles_nothing_of_before() -> None:
    alone = Alone(1, tells=frozenset({TaskKind.LOST}))
    alone.open(1)
    place = alone.gave(4)
    alone.plan(1, generation=2, incarnation=2)
    assert alone.tasks() == ["lost 1"]
    assert not alone.member.acknowledge(place)
    release = alone.call(Settle)
    assert release.entries == (Settlement(1, 1, Point(0, 0), release=True),)
    alone.answer(release, Settled())
    alone.answer(alone.newest(Fetch), Fetched(2, 0, 6, 1, bytes=60))
    assert alone.gave().fencing_token == 2
    assert lost(alone) == {}, "they are of before, and were not lost to others"


def test_a_reader_with_a_store_of_its_own_is_asked_before_anything_is_fetched() -> None:
    alone = Alone(1, is_checkpoint=True)
    assert alone.calls(Fetch) == []
    alone.member.positioned(1, Point(500, 3))
    assert alone.tasks() == ["assigned 1"]
    call = alone.call(Fetch)
    assert (call.offset, call.epoch) == (500, 3)

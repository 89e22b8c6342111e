"""Requests for rows: bounded, one waiting at each gate, and of sealed partitions at their own owners."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import (
    Fetch,
    Fetched,
    Leave,
    Left,
    Read,
    Refresh,
    Refusal,
    Settle,
    Settled,
    Settlement,
    Why,
)
from ringfence.consumer.fetching import ANSWERS_MAX, BYTES_MIN
from ringfence.consumer.gate import Phase
from ringfence.consumer.values import Point, TaskKind
from ringfence.native.errors import TruncatedError
from tests.fakes.consumer_alone import Alone


def sealed(end: int = 30, **options: object) -> Alone:
    """Partition 1 was split after its first 10 rows were fetched; its gate is at the heir's owner, node 2."""
    alone = Alone(1, **options)
    alone.open(1, rows=10)
    alone.table({1: 2}, 1, version=2)
    alone.member.up(2)
    alone.answer(alone.made_attach(2), alone.attached())
    call = alone.calls(Fetch)[-1]
    assert (call.node, call.hold, call.reopen) == (2, 1, False)
    alone.answer(call, Fetched(1, 10, 10, 1, sealed_end=end))
    return alone


def opened_sealed(start: int) -> Alone:
    """Partition 1 was sealed before this member got it; the cohort has settled so many of its 30 rows."""
    alone = Alone(1)
    alone.table({1: 2}, 1, version=2)
    alone.member.up(2)
    alone.answer(alone.made_attach(2), alone.attached())
    alone.answer(alone.calls(Fetch)[-1], Fetched(1, start, start, 1, sealed_end=30))
    return alone


def test_answers_of_one_partition_are_bounded() -> None:
    alone = Alone(1)
    for number in range(ANSWERS_MAX):
        alone.answer(alone.call(Fetch), Fetched(1, number * 10, number * 10 + 10, 1, bytes=100))
    assert alone.calls(Fetch) == []
    alone.gave()
    assert alone.call(Fetch).offset == 10 * ANSWERS_MAX


def test_rows_that_are_not_acknowledged_take_room_until_they_are() -> None:
    alone = Alone(1, bytes_max=4 * BYTES_MIN)
    alone.open(1, rows=10, size=4 * BYTES_MIN)
    alone.answer(alone.call(Fetch), Fetched(1, 10, 10, 1))  # the one at a time that is always allowed
    place = alone.gave()
    alone.answer(alone.call(Fetch), Fetched(1, 10, 20, 1, bytes=4 * BYTES_MIN))
    assert alone.member.state.bytes == 8 * BYTES_MIN
    alone.member.acknowledge(place)
    assert alone.member.state.bytes == 4 * BYTES_MIN


def test_many_partitions_share_the_room() -> None:
    alone = Alone(*range(1, 41), bytes_max=40 * BYTES_MIN)
    calls = alone.calls(Fetch)
    assert sum(call.bytes_max for call in calls) <= 40 * BYTES_MIN
    for call in calls:
        alone.answer(call, Fetched(call.partition, 0, 10, 1, bytes=BYTES_MIN))
    assert alone.member.state.bytes + sum(call.bytes_max for call in alone.calls(Fetch)) <= 41 * BYTES_MIN


def test_a_redirect_asks_for_a_table_and_the_new_owner_is_asked_under_the_same_hold() -> None:
    alone = Alone(1)
    alone.open(1)
    alone.answer(alone.call(Fetch), Refusal(Why.REDIRECT, version=5))
    assert alone.made(Refresh) == [Refresh(5)]
    alone.table({1: 2}, version=5)
    alone.member.up(2)
    alone.answer(alone.made_attach(2), alone.attached())
    assert (alone.call(Fetch).node, alone.call(Fetch).hold, alone.call(Fetch).offset) == (2, 1, 10)


def test_a_late_answer_of_a_former_owner_is_not_used() -> None:
    alone = Alone(1)
    alone.open(1)
    late = alone.call(Fetch)
    alone.table({1: 2}, version=2)
    alone.answer(late, Fetched(1, 10, 20, 1, bytes=100))
    assert alone.member.state.gates[1].fetched.offset == 10


def test_rows_of_a_sealed_partition_come_from_its_owner_and_the_hold_is_watched_at_the_heirs() -> None:
    alone = sealed()
    read = alone.call(Read)
    assert (read.partition, read.offset) == (1, 10)
    assert alone.calls(Fetch)[-1].node == 2
    alone.answer(read, Fetched(0, 10, 30, 1, bytes=100))
    assert (alone.gave().end_offset, alone.gave().end_offset) == (10, 30)
    assert alone.calls(Read) == []
    assert alone.member.giving.waits_for() == [1]


def test_a_sealed_partition_is_drained_when_the_heir_has_its_end() -> None:
    alone = sealed(end=10)
    alone.gave()
    alone.member.giving.acknowledge_given()
    alone.answer(alone.call(Settle), Settled())
    assert alone.member.state.gates[1].phase is Phase.DRAINED
    assert alone.member.state.bytes == 0
    asked = len(alone.made(Fetch))
    alone.turn(5.0)
    assert len(alone.made(Fetch)) == asked


def test_the_application_hears_once_that_children_wait_for_it() -> None:
    alone = sealed(end=10, tells=frozenset({TaskKind.DRAIN}))
    assert alone.tasks() == []
    alone.gave()
    assert alone.tasks() == ["drain 1"]
    alone.turn(10.0)
    assert alone.tasks() == []


def test_it_hears_it_also_if_the_partition_was_sealed_after_its_last_row_was_given() -> None:
    alone = Alone(1, tells=frozenset({TaskKind.DRAIN}))
    alone.open(1, rows=10)
    alone.gave()
    assert alone.tasks() == []
    alone.answer(alone.call(Fetch), Fetched(1, 10, 10, 1, sealed_end=10))
    assert alone.tasks() == ["drain 1"]


def test_a_child_that_waits_for_its_parents_is_asked_again() -> None:
    alone = Alone(1)
    alone.answer(alone.call(Fetch), Fetched(0, 0, 0, 0, is_blocked=True))
    alone.turn(0.1)
    assert alone.call(Fetch).reopen


@pytest.mark.parametrize("skips", [False, True])
def test_rows_that_are_gone_are_told_or_skipped(skips: bool) -> None:
    alone = Alone(1, skips=skips)
    alone.open(1, rows=10)
    alone.gave()
    error = TruncatedError("gone", partition=1)
    alone.answer(alone.call(Fetch), Refusal(Why.TRUNCATED, error, start=50))
    if skips:
        assert alone.member.take_error() is None
        assert alone.call(Settle).entries[0].through.offset == 50
        assert alone.call(Fetch).offset == 50
    else:
        assert alone.member.take_error() is error
        alone.turn(1.0)
        assert alone.call(Fetch).offset == 10


def test_a_sealed_partition_of_which_nothing_was_settled_begins_at_its_log_start() -> None:
    alone = opened_sealed(0)
    gone = Refusal(Why.TRUNCATED, TruncatedError("gone"), start=20)
    alone.answer(alone.call(Read), gone)
    assert alone.member.take_error() is None
    assert alone.call(Settle).entries[0].through.offset == 20
    assert alone.call(Read).offset == 20


def test_a_sealed_partition_that_was_read_in_part_tells_what_is_gone() -> None:
    alone = opened_sealed(10)
    error = TruncatedError("gone")
    alone.answer(alone.call(Read), Refusal(Why.TRUNCATED, error, start=20))
    assert alone.member.take_error() is error


def test_an_opening_that_skips_names_the_log_start() -> None:
    alone = Alone(1, skips=True)
    alone.answer(alone.call(Fetch), Refusal(Why.TRUNCATED, TruncatedError("gone"), start=50))
    assert (alone.call(Fetch).offset, alone.call(Fetch).reopen) == (50, True)


def test_rows_of_a_log_that_lost_its_end_are_asked_for_where_the_cohort_stands() -> None:
    """Retention took none, for the log still begins before them: those that come now are others."""
    alone = Alone(1, skips=True, tells=frozenset({TaskKind.LOST}))
    alone.open(1, rows=100)
    alone.gave()
    alone.answer(
        alone.newest(Fetch), Refusal(Why.TRUNCATED, TruncatedError("beyond its end"), hold=1, start=0)
    )
    assert alone.tasks() == ["lost 1"]
    alone.turn(1.0)
    call = alone.newest(Fetch)
    assert (call.offset, call.reopen) == (None, True)
    alone.answer(call, Fetched(2, 80, 90, 6, bytes=60))
    assert alone.gave().first_offset == 80


def test_requests_that_are_refused_come_again_ever_more_slowly() -> None:
    alone, times = Alone(1), []
    for _ in range(6):
        alone.answer(alone.call(Fetch), Refusal(Why.RETRY))
        began = alone.now
        while not alone.calls(Fetch):
            alone.turn(0.01)
        times.append(round(alone.now - began, 2))
    assert times == sorted(times)
    assert 0.05 <= times[0] < 0.2
    assert times[-1] <= 1.02


def test_a_store_that_has_nothing_is_asked_again_when_the_cohort_has_something() -> None:
    alone = Alone(1, is_checkpoint=True)
    assert alone.tasks() == ["assigned 1"]
    assert alone.call(Fetch).offset is None
    alone.answer(
        alone.call(Fetch), Refusal(Why.POSITION, details={"begin": 0, "settled": None, "parents": []})
    )
    assert alone.member.question(1) == {"begin": 0, "settled": None, "parents": []}
    alone.member.positioned(1, Point(0, 0), tells=True)
    assert alone.tasks() == ["position 1"]
    alone.turn(1.0)
    assert alone.call(Fetch).offset == 0
    alone.open(1, rows=5)
    assert alone.call(Settle).entries[0] == Settlement(1, 1, Point(0, 0), release=False)
    alone.answer(alone.call(Settle), Settled())
    assert alone.member.settling.is_idle


def test_what_was_missed_before_a_partition_is_settled_under_the_hold_of_the_refusal() -> None:
    alone = Alone(1, skips=True)
    details = {"begin": 20, "pruned": [(7, 100)]}
    missed = Refusal(Why.TRUNCATED, TruncatedError("missed"), hold=5, start=20, details=details)
    alone.answer(alone.call(Fetch), missed)
    assert alone.call(Settle).entries[0] == Settlement(1, 5, Point(20, 0), release=False)
    assert (alone.call(Fetch).hold, alone.call(Fetch).offset, alone.call(Fetch).reopen) == (5, 20, False)


def test_a_hold_that_comes_while_the_member_closes_is_released_before_it_leaves() -> None:
    alone = Alone(1)
    opening = alone.call(Fetch)
    alone.member.close(leave=True)
    assert alone.calls(Leave) == []
    alone.answer(opening, Fetched(5, 0, 10, 1, bytes=100))
    release = alone.call(Settle)
    assert release.entries == (Settlement(1, 5, Point(0, 0), release=True),)
    assert alone.calls(Leave) == []
    alone.answer(release, Settled())
    alone.answer(alone.call(Leave), Left())
    assert alone.member.is_closed


def test_a_member_that_closes_waits_for_a_hold_for_a_quarter_of_a_second_only() -> None:
    alone = Alone(1)
    alone.member.close(leave=True)
    assert alone.calls(Leave) == []
    alone.turn(0.2)
    assert alone.calls(Leave) == []
    alone.turn(0.1)
    alone.answer(alone.call(Leave), Left())
    assert alone.member.is_closed

"""Requests for rows on lease: one at a node, rows given back, sealed partitions read elsewhere."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import Fetched, Read, Refresh, Refusal, Why
from ringfence.consumer.queue_calls import Leased, Line, QueueFetch, QueueSettle, What
from ringfence.consumer.queue_fetching import FULL_ROWS
from tests.fakes.queue_alone import LEASE_S, QueueAlone
from tests.fakes.queue_planted import plant, what_is_done_is_given_with_its_next_lease


def test_a_node_is_asked_again_when_all_rows_of_its_answer_are_given() -> None:
    alone = QueueAlone(rows_max=16)
    assert alone.call(QueueFetch).rows_max == 16
    alone.lease(0, 10)
    assert alone.calls(QueueFetch) == []
    alone.gave(4)
    assert alone.calls(QueueFetch) == []
    alone.gave(6)
    assert alone.call(QueueFetch).node == 1


def test_an_application_that_was_fast_has_one_answer_ahead_and_no_more() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.now += 0.01
    alone.gave(10)
    alone.lease(10, 20)
    alone.lease(20, 30)
    assert alone.calls(QueueFetch) == []
    alone.gave(10)
    assert alone.call(QueueFetch).node == 1


def test_an_application_that_waits_for_a_node_with_many_rows_has_a_second_request_there() -> None:
    alone = QueueAlone()
    alone.lease(0, FULL_ROWS)
    alone.gave(FULL_ROWS)
    alone.turn()
    first, second = alone.calls(QueueFetch)
    alone.turn()
    assert len(alone.calls(QueueFetch)) == 2
    # A node without rows ends the first when the second comes: it is asked once from then on.
    alone.answer(first, Leased(0, 1, 0, 0))
    alone.turn(1.0)
    assert alone.calls(QueueFetch) == [second]
    line = Line(FULL_ROWS, FULL_ROWS + 10, 1, 0, is_again=False)
    alone.answer(second, Leased(1, 1, line.first, line.end, (line,), bytes=9))
    alone.gave(10)
    alone.turn()
    assert len(alone.calls(QueueFetch)) == 1


def test_an_answer_ahead_of_the_application_keeps_to_the_limit_of_bytes() -> None:
    alone = QueueAlone(bytes_max=100)
    alone.lease(0, 10)
    alone.now += 0.01
    alone.gave(10)
    alone.lease(10, 20)
    assert alone.calls(QueueFetch) == []
    alone.gave(10)
    assert alone.call(QueueFetch).node == 1


@pytest.mark.parametrize("planted", [False, True])
def test_rows_that_are_done_are_not_given_with_a_lease_that_began_before(
    monkeypatch: pytest.MonkeyPatch, *, planted: bool
) -> None:
    if planted:
        plant(monkeypatch, what_is_done_is_given_with_its_next_lease)
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.member.fetching.done(1, alone.member.state.incarnation, (0, 10))
    assert (alone.give() is None) is not planted


def test_an_answer_without_rows_that_came_at_once_is_not_asked_for_in_a_loop() -> None:
    alone = QueueAlone()
    alone.answer(alone.call(QueueFetch), Leased(0, 0, 0, 0))
    assert alone.calls(QueueFetch) == []
    alone.turn(0.1)
    alone.now += 5
    alone.answer(alone.call(QueueFetch), Leased(0, 0, 0, 0))
    assert alone.call(QueueFetch)


def test_rows_that_come_late_go_back_at_once() -> None:
    alone = QueueAlone()
    call = alone.call(QueueFetch)
    alone.member.unanswered(call.number, alone.now)
    alone.answer(call, Leased(1, 1, 0, 10, (Line(0, 10, 1, 0, False),), bytes=100))
    assert alone.told(What.RELEASED) == [(0, 10)]
    assert alone.give() is None


def test_rows_of_a_connection_that_ended_are_not_given_and_go_back() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.gave(4)
    alone.member.down(1, alone.now)
    alone.turn()
    assert alone.give() is None
    alone.member.up(1)
    alone.attach()
    assert alone.told(What.RELEASED) == [(4, 10)]


def test_a_release_of_before_does_not_end_a_new_lease() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.member.down(1, alone.now)
    alone.turn()
    late = alone.member.state
    late.session, session = 0, late.session  # nothing is sent meanwhile
    alone.turn()
    late.session = session
    reply = Leased(1, 1, 0, 10, (Line(0, 10, 1, 0, False),), bytes=100)
    alone.member.fetching.fetched(QueueFetch(0, 1, 0, 0, 5.0), reply, alone.now, alone.now)
    alone.member.up(1)
    alone.attach()
    assert alone.told(What.RELEASED) == []


def test_rows_of_an_owner_that_was_replaced_are_not_given() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.table({1: 2}, version=2, epoch=2)
    assert alone.give() is None
    assert alone.member.state.bytes == 0


def test_rows_that_an_owner_gave_before_it_was_replaced_and_that_arrive_later_are_not_given() -> None:
    """Its successor gives them to another member; a later owner gets them back."""
    alone = QueueAlone()
    call = alone.call(QueueFetch)
    alone.table({1: 2, 3: 1}, version=2)
    alone.member.up(2)
    alone.attach()
    alone.answer(call, Leased(1, 1, 0, 10, (Line(0, 10, 1, 0, False),), bytes=100, body=b""))
    assert alone.give() is None
    assert alone.member.state.bytes == 0
    (release,) = [one for one in alone.calls(QueueSettle) if one.lines[0].what is What.RELEASED]
    assert release.node == 2


def test_the_same_node_as_a_new_owner_gets_the_rows_back() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.table({1: 1}, version=2, epoch=2)
    assert alone.told(What.RELEASED) == [(0, 10)]


def test_rows_over_their_lease_are_not_given() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.turn(LEASE_S)
    assert alone.give() is None
    assert alone.call(QueueFetch)


def test_rows_of_before_a_seek_are_dropped() -> None:
    alone = QueueAlone()
    alone.table({1: 1, 2: 2}, version=2)
    alone.member.up(2)
    alone.attach()
    one, two = sorted(alone.calls(QueueFetch), key=lambda call: call.node)
    line = Line(0, 10, 1, 0, False)
    alone.answer(one, Leased(1, 1, 0, 10, (line,), bytes=100))
    alone.answer(two, Leased(2, 2, 0, 10, (line,), bytes=100))
    place = alone.gave()
    assert (place.partition, place.fencing_token) == (2, 2)
    assert alone.give() is None


def test_rows_of_a_sealed_partition_are_read_at_its_owner() -> None:
    alone = QueueAlone()
    lines = (Line(5, 10, 0, 0, False), Line(12, 20, 0, 1, False))
    alone.answer(alone.call(QueueFetch), Leased(1, 1, 5, 20, lines, is_elsewhere=True))
    read = alone.call(Read)
    assert (read.partition, read.offset) == (1, 5)
    alone.answer(read, Fetched(0, 0, 15, 3, bytes=50, body=b""))
    assert [alone.gave().first_offset, alone.gave().first_offset] == [5, 12]
    assert alone.call(Read).offset == 15
    alone.answer(alone.call(Read), Refusal(Why.TRUNCATED, start=18))
    alone.turn(2.0)
    assert alone.told(What.GONE) == [(15, 18)]
    alone.answer(alone.call(Read), Fetched(0, 18, 20, 3, bytes=50, body=b""))
    place = alone.gave()
    assert (place.first_offset, place.end_offset) == (18, 20)


@pytest.mark.parametrize("node", [1, 2])
def test_rows_of_a_sealed_partition_are_not_given_once_their_gate_has_a_new_owner(node: int) -> None:
    """Another node leases them again, and so does the same one."""
    alone = QueueAlone()
    lines = (Line(5, 10, 0, 0, False), Line(12, 20, 0, 1, False))
    alone.answer(alone.call(QueueFetch), Leased(1, 1, 5, 20, lines, is_elsewhere=True))
    read = alone.call(Read)
    alone.table({1: node}, version=2, epoch=2)
    assert alone.told(What.RELEASED) == ([(5, 10), (12, 20)] if node == 1 else [])
    alone.answer(read, Fetched(0, 0, 25, 3, bytes=50, body=b""))
    assert alone.give() is None
    assert alone.calls(Read) == []


def test_rows_of_a_sealed_partition_that_no_record_has_are_done_with() -> None:
    """Damaged ones that an operator gave up: what is read begins behind them."""
    for start, gone in ((7, [(5, 7)]), (20, [(5, 10), (12, 20)])):
        alone = QueueAlone()
        lines = (Line(5, 10, 0, 0, False), Line(12, 20, 0, 1, False))
        alone.answer(alone.call(QueueFetch), Leased(1, 1, 5, 20, lines, is_elsewhere=True))
        alone.answer(alone.call(Read), Fetched(0, start, 25, 3, bytes=50, body=b""))
        alone.turn(2.0)
        assert alone.told(What.GONE) == gone
        places = [alone.gave() for _ in range(2)] if start < 20 else []
        assert [place.first_offset for place in places] == ([7, 12] if start < 20 else [])
        assert alone.give() is None


def test_a_refused_request_is_made_later_and_a_redirect_asks_for_a_table() -> None:
    alone = QueueAlone()
    alone.answer(alone.call(QueueFetch), Refusal(Why.REDIRECT, version=4))
    assert Refresh(4) in alone.effects
    assert alone.calls(QueueFetch) == []
    alone.turn(0.06)
    assert alone.call(QueueFetch)
    assert alone.calls(QueueSettle) == []


def test_rows_of_a_partition_that_the_table_does_not_have_ask_for_a_newer_one() -> None:
    alone = QueueAlone()
    version = alone.member.state.routes.version
    line = Line(0, 10, 1, 0, False)
    alone.answer(alone.call(QueueFetch), Leased(99, 1, 0, 10, (line,), bytes=100))
    assert Refresh(version + 1) in alone.effects

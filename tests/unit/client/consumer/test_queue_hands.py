"""Rows in the hands of the application: begun, extended, lost, and what is said of them."""

from __future__ import annotations

from typing import Any

from ringfence.consumer.calls import Refusal, Why
from ringfence.consumer.queue_calls import (
    NotTakenBecause,
    QueueSettle,
    QueueSettled,
    RowsNotTaken,
    Told,
    What,
)
from ringfence.consumer.queue_hands import text_of
from ringfence.consumer.queue_rows import KNOWN_PARTITIONS_MAX, KNOWN_RANGES_MAX, KnownRows
from ringfence.consumer.values import ConsumerPlace, TaskKind
from ringfence.native.errors import LostRowsError
from tests.fakes.queue_alone import LEASE_S, QueueAlone


def test_rows_are_said_to_be_begun_when_they_are_given() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.gave(4)
    assert alone.told(What.BEGUN) == [(0, 4)]


def test_rows_whose_reader_is_gone_are_given_after_the_owner_has_heard_so() -> None:
    alone = QueueAlone()
    alone.lease(0, 10, is_again=True)
    assert alone.give() is None
    assert alone.told(What.BEGUN) == [(0, 10)]
    alone.settle(What.BEGUN)
    assert alone.gave(4).end_offset == 4
    assert alone.gave(6).end_offset == 10


def test_rows_that_come_again_and_are_anothers_are_skipped() -> None:
    alone = QueueAlone()
    alone.lease(0, 10, is_again=True)
    alone.give()
    not_taken = RowsNotTaken(0, 10, NotTakenBecause.OTHER_COUNT)
    alone.settle(What.BEGUN, QueueSettled((not_taken,)))
    assert alone.give() is None
    assert alone.member.state.bytes == 0


def test_a_lease_is_extended_at_a_third_of_it_while_the_application_has_the_rows() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave(6)
    alone.settle(What.BEGUN)
    alone.turn(LEASE_S / 3 - 0.1)
    assert alone.told(What.EXTENDED) == []
    alone.turn(0.2)
    assert alone.told(What.EXTENDED) == [(0, 6)], "not what is only fetched"
    alone.settle(What.EXTENDED)
    alone.say(place, What.DONE, (0, 2))
    alone.turn(LEASE_S / 3)
    assert alone.told(What.EXTENDED) == [(2, 6)]
    alone.settle(What.EXTENDED, Refusal(Why.RETRY))
    alone.turn(LEASE_S / 9)
    assert alone.told(What.EXTENDED) == [(2, 6)], "again soon"


def test_a_lease_that_went_on_without_this_member_is_told() -> None:
    alone = QueueAlone(tells=frozenset({TaskKind.LOST}))
    alone.lease(0, 10)
    place = alone.gave()
    alone.settle(What.BEGUN)
    alone.turn(LEASE_S / 3)
    alone.settle(What.EXTENDED, QueueSettled((RowsNotTaken(3, 5, NotTakenBecause.ON_LEASE),)))
    task = alone.member.next_task()
    assert task is not None
    assert (task.kind, task.partitions) == (TaskKind.LOST, (1,))
    alone.say(place, What.DONE)
    assert alone.told(What.DONE) == [(0, 3), (5, 10)]


def test_of_each_row_the_first_word_counts() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave()
    assert alone.say(place, What.FAILED, (3, 4), (5, 6))
    assert alone.say(place, What.DONE)
    assert not alone.say(place, What.FAILED)
    (call,) = [one for one in alone.calls(QueueSettle) if one.lines[0].what is not What.BEGUN]
    assert [(one.first, one.end) for one in call.lines] == [(3, 4), (5, 6)], "failures do not wait"
    alone.answer(call, QueueSettled())
    alone.turn(1.0)
    assert alone.told(What.DONE) == [(0, 3), (4, 5), (6, 10)]


def test_the_outcome_is_told_once_to_each_who_waits() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave()
    outcomes: list[Any] = []
    alone.say(place, What.DONE, (0, 4), outcomes=outcomes)
    assert outcomes == []
    assert alone.say(place, What.DONE, outcomes=outcomes), "waits for both"
    alone.settle(What.DONE)
    assert outcomes == [None]
    alone.settle(What.DONE)
    assert outcomes == [None, None]


def test_rows_that_are_done_may_be_said_to_be_done_again() -> None:
    alone = QueueAlone()
    alone.lease(0, 20)
    first, second = alone.gave(10), alone.gave(10)
    outcomes: list[Any] = []
    alone.say(second, What.DONE, (10, 15), outcomes=outcomes)
    alone.settle(What.DONE)
    alone.say(second, What.FAILED, (15, 20))
    alone.settle(What.FAILED)
    assert alone.say(second, What.DONE, (10, 15), outcomes=outcomes)
    assert outcomes == [None, None]
    assert alone.told(What.DONE) == [], "no owner is asked again"
    assert not alone.say(second, What.DONE, outcomes=outcomes), "some of it failed"
    assert not alone.say(second, What.FAILED, (10, 15), outcomes=outcomes), "it is done, and did not fail"
    alone.say(first, What.DONE, outcomes=outcomes)
    alone.settle(What.DONE)
    assert alone.say(second, What.DONE, (8, 12), outcomes=outcomes), "over two answers"
    assert outcomes == [None] * 4


def test_rows_that_came_again_are_not_done_by_what_was_said_before() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave()
    alone.say(place, What.DONE, outcomes=[])
    alone.settle(What.DONE)
    alone.lease(0, 10)  # an owner lost its log
    again = alone.gave()
    alone.say(again, What.RELEASED)
    assert not alone.say(again, What.DONE, outcomes=[])


def test_what_is_known_of_done_rows_is_bounded() -> None:
    done = KnownRows()
    for first in range(0, 1_000, 2):
        done.add(1, 1, (first, first + 1))
    assert len(done) == KNOWN_RANGES_MAX
    assert done.others(1, 1, [(998, 999)]) == []
    assert done.others(1, 1, [(0, 1)]) == [(0, 1)]
    assert done.others(1, 2, [(998, 999)]) == [(998, 999)], "of another incarnation"
    for partition in range(2, 2_000):
        done.add(partition, 1, (0, 1))
        done.add(partition, 1, (1, 2))
    assert len(done) == KNOWN_PARTITIONS_MAX
    assert done.others(1_999, 1, [(0, 2)]) == []


def lost_of(outcomes: list[Any]) -> dict[int, list[tuple[int, int]]]:
    """Rows of the newest outcome that others have."""
    error = outcomes.pop()
    assert isinstance(error, LostRowsError)
    return error.lost


def test_who_waits_hears_exactly_of_the_rows_that_went_to_another() -> None:
    """Of the others it is true that they are done: who takes their effects back loses them."""
    alone = QueueAlone()
    alone.lease(0, 10)
    outcomes: list[Any] = []
    place = alone.gave()
    alone.say(place, What.DONE, outcomes=outcomes)
    alone.settle(What.DONE, QueueSettled((RowsNotTaken(4, 5, NotTakenBecause.ON_LEASE),)))
    assert lost_of(outcomes) == {1: [(4, 5)]}
    assert not alone.say(place, What.DONE, outcomes=outcomes)
    alone.member.hands.settle_all(Told(0, 0, 0, What.DONE))
    alone.member.hands.settle_all(Told(0, 0, 0, What.DONE), outcomes.append)
    assert lost_of(outcomes) == {1: [(4, 5)]}, "who waited before may be another, or have given up"


def a_lease_that_lost(rows: tuple[int, int]) -> tuple[QueueAlone, ConsumerPlace]:
    """Of ten rows in hand; its owner said so when the lease was to be extended."""
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave()
    alone.settle(What.BEGUN)
    alone.turn(LEASE_S / 3)
    alone.settle(What.EXTENDED, QueueSettled((RowsNotTaken(*rows, NotTakenBecause.ON_LEASE),)))
    return alone, place


def test_rows_that_were_lost_before_are_an_error_beside_those_that_are_done() -> None:
    alone, place = a_lease_that_lost((3, 5))
    outcomes: list[Any] = []
    assert alone.say(place, What.DONE, outcomes=outcomes)
    assert outcomes == []
    alone.settle(What.DONE, QueueSettled((RowsNotTaken(8, 9, NotTakenBecause.ON_LEASE),)))
    assert lost_of(outcomes) == {1: [(3, 5), (8, 9)]}


def test_rows_of_a_batch_of_which_only_others_come_again_are_lost() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    place = alone.gave()
    alone.lease(0, 5)
    alone.gave()
    outcomes: list[Any] = []
    assert alone.say(place, What.DONE, outcomes=outcomes)
    alone.settle(What.DONE)
    assert lost_of(outcomes) == {1: [(5, 10)]}


def test_lost_rows_between_others_that_are_done_are_all_known() -> None:
    """Hundreds of ranges of one batch."""
    alone = QueueAlone()
    alone.lease(0, 300)
    place = alone.gave()
    alone.settle(What.BEGUN)
    alone.turn(LEASE_S / 3)
    odd = [(row, row + 1) for row in range(1, 300, 2)]
    alone.settle(
        What.EXTENDED, QueueSettled(tuple(RowsNotTaken(*one, NotTakenBecause.ON_LEASE) for one in odd))
    )
    outcomes: list[Any] = []
    alone.say(place, What.DONE, outcomes=outcomes)
    alone.settle(What.DONE)
    assert lost_of(outcomes) == {1: odd}


def test_an_acknowledgement_of_all_that_was_given_tells_what_was_lost_once() -> None:
    alone, _ = a_lease_that_lost((0, 10))
    outcomes: list[Any] = []
    hands = alone.member.hands
    hands.settle_all(Told(0, 0, 0, What.DONE), outcomes.append)
    assert lost_of(outcomes) == {1: [(0, 10)]}
    hands.settle_all(Told(0, 0, 0, What.DONE), outcomes.append)
    assert outcomes.pop() is None
    alone.lease(20, 30)
    alone.gave()
    hands.all_lost()
    hands.settle_all(Told(0, 0, 0, What.DONE), outcomes.append)
    assert lost_of(outcomes) == {1: [(20, 30)]}


def test_rows_that_came_again_to_this_member_are_not_lost() -> None:
    alone, place = a_lease_that_lost((0, 10))
    alone.lease(0, 10)
    again = alone.gave()
    outcomes: list[Any] = []
    alone.member.hands.settle_all(Told(0, 0, 0, What.DONE), outcomes.append)
    alone.settle(What.DONE)
    assert alone.say(again, What.DONE, outcomes=outcomes)
    assert outcomes == [None, None]
    assert place == again


def test_rows_that_cannot_be_decoded_fail_and_the_others_go_back() -> None:
    alone = QueueAlone()
    alone.lease(0, 30)
    (stored,) = alone.member.fetching.stored
    alone.member.hands.undecodable(stored, (10, 20), "cannot be decoded")
    assert alone.told(What.FAILED) == [(10, 20)]
    assert sorted(alone.told(What.RELEASED)) == [(0, 10), (20, 30)]


def test_an_exception_fails_the_rows_that_were_given_last() -> None:
    alone = QueueAlone()
    alone.lease(0, 30)
    alone.gave(10)
    alone.gave(5)
    alone.member.hands.interrupted("ValueError: no")
    assert alone.told(What.FAILED) == [(10, 15)]


def test_rows_that_the_application_has_not_got_are_neither_done_nor_failed_with_the_others() -> None:
    alone = QueueAlone()
    alone.lease(0, 30)
    alone.gave(10)
    alone.give(5, is_seen=False)
    hands = alone.member.hands
    hands.interrupted("ValueError: no")
    assert alone.told(What.FAILED) == [(0, 10)]
    alone.settle(What.FAILED)
    alone.member.acknowledge_given()
    alone.turn(1.0)
    assert alone.told(What.DONE) == []
    assert hands.seen()
    alone.member.acknowledge_given()
    alone.turn(1.0)
    assert alone.told(What.DONE) == [(10, 15)]
    assert not hands.seen(), "there are none"


def test_rows_that_the_application_will_not_get_go_back() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.gave(4)
    for rows in (3, 3):
        alone.give(rows, is_seen=False)
    alone.member.hands.take_back()
    assert alone.told(What.RELEASED) == [(4, 7), (7, 10)]
    assert not alone.member.hands.seen()
    alone.settle(What.RELEASED)
    alone.member.acknowledge_given()
    alone.turn(1.0)
    assert alone.told(What.DONE) == [(0, 4)]


def test_rows_that_the_application_has_not_got_go_back_when_it_closes() -> None:
    alone = QueueAlone()
    alone.lease(0, 10)
    alone.give(10, is_seen=False)
    alone.member.close(leave=True)
    alone.turn()
    assert alone.told(What.RELEASED) == [(0, 10)]
    assert not alone.member.hands.seen()


def test_a_reason_is_cut_between_two_characters() -> None:
    assert text_of("ä" * 200) == ("ä" * 120).encode()
    assert text_of("x" + "ä" * 200) == ("x" + "ä" * 119).encode()

"""What consumers of the log checker said becomes a history in which each planted fault is found, no other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.chaos.cohort_record import LATE_S, Part
from tests.chaos.log_owners import OwnerChanges
from tests.chaos.log_record import (
    Absence,
    LeaseRecord,
    Line,
    TopicRows,
    acknowledged,
    handovers,
    not_worked_on,
    stream_history,
    unsaid,
)
from tests.checker.cohort_history import Gone
from tests.checker.cohorts import anomalies
from tests.checker.log_history import value_of

PARENT, CHILD = 1, 2
ENDS = {PARENT: 4, CHILD: 2}
PARTS = [Part(PARENT, (), 4), Part(CHILD, (PARENT,), None)]


def topic() -> TopicRows:
    """One writer, one key: numbers ascend over both partitions."""
    rows = TopicRows(ENDS)
    for partition, numbers in ((PARENT, range(4)), (CHILD, range(4, 6))):
        values = np.array([value_of(1, number) for number in numbers], np.int64)
        assert rows.note(partition, 0, values, np.zeros(len(values), np.int64)) is None
    return rows


def read(member: str, at: float, partition: int, first: int, end: int, hold: int) -> list[Line]:
    """Rows are given, and acknowledged right after that."""
    return [
        Line(at + step / 10, what, member, partition, first, end, hold)
        for step, what in enumerate(("given", "told", "acked"))
    ]


def sound() -> list[Line]:
    """A is killed with half of the parent in hand; B gets that, and the child."""
    return [
        *read("a", 1.0, PARENT, 0, 2, 10),
        Line(2.0, "given", "a", PARENT, 2, 4, 10),
        *read("b", 5.0, PARENT, 2, 4, 11),
        *read("b", 6.0, CHILD, 0, 2, 12),
    ]


def kinds(lines: list[Line], gone: list[tuple[float, Gone]] | None = None) -> set[str]:
    lines = sorted(lines, key=lambda line: line.at)
    found = anomalies(stream_history(lines, PARTS, topic().key_of, ENDS, gone or []))
    return {one.kind for one in found}


def test_a_sound_record_of_a_stream_has_no_anomaly_and_is_counted() -> None:
    assert kinds(sound()) == set()
    assert unsaid(sound(), ENDS) == []
    assert handovers(sound()) == 1
    assert acknowledged(sound(), is_cumulative=True) == 6
    assert acknowledged(sound()[:4], is_cumulative=True) == 2


STREAMS = {
    "again": [*sound(), Line(7.0, "given", "a", CHILD, 1, 2, 13)],
    "early": [*sound()[:4], *read("b", 5.0, CHILD, 0, 2, 12), *read("b", 6.0, PARENT, 2, 4, 11)],
    "skipped": [*sound()[:7], Line(6.0, "given", "b", CHILD, 1, 2, 12)],
    "lost": sound()[:7],
    "older hold": [*sound(), Line(7.0, "given", "a", PARENT, 3, 4, 10)],
    "two holds": [
        *sound(),
        *(line._replace(at=line.at + 6) for line in read("a", 2.0, PARENT, 3, 4, 10)[1:]),
    ],
}


@pytest.mark.parametrize("kind", sorted(STREAMS))
def test_a_planted_anomaly_of_a_stream_is_found(kind: str) -> None:
    assert kind in kinds(STREAMS[kind])


def test_rows_that_were_truncated_before_a_member_went_on_are_not_skipped() -> None:
    lines = [
        *read("a", 1.0, PARENT, 0, 1, 10),
        *read("a", 3.0, PARENT, 3, 4, 10),
        *read("a", 4.0, CHILD, 0, 2, 11),
    ]
    assert kinds(lines) == {"skipped", "lost"}
    assert kinds(lines, [(2.0, Gone(PARENT, 3))]) == set()
    assert kinds(lines, [(2.0, Gone(PARENT, 2))]) == {"skipped", "lost"}
    assert kinds(lines, [(3.5, Gone(PARENT, 3))]) == {"skipped"}


def test_an_end_that_no_member_acknowledged_is_told() -> None:
    assert len(unsaid(sound()[:4], ENDS)) == 2


def test_other_rows_than_those_that_stand_there_are_told() -> None:
    rows, key = topic(), np.zeros(1, np.int64)
    assert rows.note(PARENT, 1, np.array([value_of(1, 1)], np.int64), key) is None
    assert "where row 1 of writer 1 stands" in str(
        rows.note(PARENT, 1, np.array([value_of(1, 7)], np.int64), key)
    )
    assert "no such rows" in str(rows.note(CHILD, 2, np.array([value_of(1, 6)], np.int64), key))


# ---- QUEUE -------------------------------------------------------------------------------------------------


def queue() -> list[Line]:
    """A has a range done and one in hand when it is killed at 5; B gets that."""
    return [
        *read("a", 1.0, PARENT, 0, 2, 0),
        Line(2.0, "given", "a", PARENT, 2, 4, 0),
        *read("b", 8.0, PARENT, 2, 4, 0),
        *read("b", 9.0, CHILD, 0, 2, 0),
    ]


KILLED = Absence("a", 5.0, 5.1, ends=True)


def leases(
    lines: list[Line], *away: Absence, change: tuple[float, float] | None = None
) -> tuple[set[str], int]:
    owners = OwnerChanges()
    if change is not None:
        owners.look(change[0], change[0], {PARENT: 1, CHILD: 1})
        owners.look(change[1], change[1], {PARENT: 2, CHILD: 1})
    record = LeaseRecord(owners, away)
    found = {one.kind for one in anomalies(record.take(sorted(lines, key=lambda line: line.at)))}
    return found, record.repeated


def test_a_sound_record_of_a_queue_has_no_anomaly() -> None:
    assert leases(queue(), KILLED) == (set(), 0)
    assert not_worked_on(queue(), ENDS) == []
    assert acknowledged(queue(), is_cumulative=False) == 6


def test_rows_that_no_member_was_given_or_said_to_be_done_are_lost() -> None:
    assert [line.split(",")[1] for line in not_worked_on(queue()[:4], ENDS)] == [
        " and no member was given them",
        " and no member said that they are done",
        " and no member said that they are done",
    ]


def test_rows_on_lease_to_two_members_are_found_unless_an_owner_changed_between() -> None:
    assert leases(queue())[0] == {"two leases"}
    assert leases(queue(), change=(4.0, 4.2)) == (set(), 2)
    assert leases(queue(), change=(8.1 + LATE_S + 0.1, 8.2 + LATE_S + 0.2))[0] == {"two leases"}
    assert leases(queue(), change=(1.0, 2.0 - LATE_S - 0.1))[0] == {"two leases"}


def test_rows_that_were_done_and_come_again_are_found_unless_an_owner_changed_just_then() -> None:
    again = [*queue(), *read("b", 20.0, PARENT, 0, 2, 0)]
    assert leases(again, KILLED)[0] == {"again", "acknowledged twice"}
    assert leases(again, KILLED, change=(19.0, 19.5)) == (set(), 2)
    assert leases(again, KILLED, change=(10.0, 20.0 - LATE_S - 0.1))[0] == {"again", "acknowledged twice"}
    late_other = [*queue(), *read("b", 20.0, CHILD, 0, 2, 0)]
    assert leases(late_other, KILLED, change=(19.0, 19.5))[0] == {"again", "acknowledged twice"}


def test_rows_that_were_done_may_come_to_a_member_that_wakes_and_to_no_other() -> None:
    again = [*queue(), *read("b", 20.0, PARENT, 0, 2, 0)]
    assert leases(again, KILLED, Absence("b", 15.0, 19.0, ends=False)) == (set(), 2)
    assert leases(again, KILLED, Absence("c", 15.0, 19.0, ends=False))[0] == {"again", "acknowledged twice"}
    woken_long_ago = Absence("b", 10.0, 20.0 - LATE_S - 0.1, ends=False)
    assert leases(again, KILLED, woken_long_ago)[0] == {"again", "acknowledged twice"}


def test_a_late_acknowledgement_of_a_range_that_another_member_has_done_is_no_second_one() -> None:
    both = [*queue(), *read("a", 2.0, PARENT, 2, 4, 0)[1:]]
    both = [
        line._replace(at=line.at + 10) if line.member == "a" and 2.0 < line.at < 3.0 else line
        for line in both
    ]
    assert leases(both, change=(4.0, 4.2)) == (set(), 2)
    assert "acknowledged twice" in leases(both)[0]


def test_a_node_that_is_behind_makes_no_change_of_an_owner() -> None:
    owners = OwnerChanges()
    for at, epoch in ((0.0, 1), (10.0, 2), (20.0, 1), (30.0, 2)):
        owners.look(at, at, {PARENT: epoch})
    assert len(owners) == 1
    assert owners.by_partition() == {PARENT: [(0.0, 10.0)]}

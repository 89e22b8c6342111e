"""What members said becomes a history in which each planted fault is found, and none in a sound one."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.cohort_progress import SettledKeys
from tests.chaos.cohort_record import (
    LATE_S,
    Loss,
    Part,
    QueueRecord,
    last_deliveries,
    other_rows,
    rows_again,
    stream_history,
)
from tests.checker.cohorts import anomalies
from tests.harness.deliveries import KEYS
from tests.harness.member import Acked, Given, Member
from tests.harness.queue_member import QueueMember, Rows

PARENT, CHILD = 1, 2
STORED = {PARENT: [(0, 0), (1, 0), (0, 1), (1, 1)], CHILD: [(0, 2), (1, 2)]}
PARTS = [Part(PARENT, (), 4), Part(CHILD, (PARENT,), None)]


def member(name: str) -> Member:
    return Member("tcp://nowhere", "t", "c", name)


def given(at: float, name: str, partition: int, first: int, end: int, token: int) -> Given:
    return Given(at, name, partition, first, end, token, tuple(STORED[partition][first:end]))


def sound() -> list[Member]:
    """A acknowledges half of the parent and is killed with the rest in hand; B reads that, and the child."""
    a, b = member("a"), member("b")
    a.given = [given(1.0, "a", PARENT, 0, 2, 10), given(3.0, "a", PARENT, 2, 4, 10)]
    a.told, a.acked = [Acked(1.5, "a", PARENT, 2, 10)], [Acked(2.0, "a", PARENT, 2, 10)]
    b.given = [given(5.0, "b", PARENT, 2, 4, 11), given(8.0, "b", CHILD, 0, 2, 12)]
    b.told = [Acked(6.0, "b", PARENT, 4, 11), Acked(9.0, "b", CHILD, 2, 12)]
    b.acked = [Acked(7.0, "b", PARENT, 4, 11), Acked(9.5, "b", CHILD, 2, 12)]
    return [a, b]


def kinds(members: list[Member]) -> set[str]:
    return {one.kind for one in anomalies(stream_history(members, STORED, PARTS))}


def test_a_sound_record_has_no_anomaly() -> None:
    assert kinds(sound()) == set()
    assert rows_again(sound()) == 2
    assert other_rows(sound(), STORED) == []


def test_a_row_that_was_acknowledged_and_comes_again_is_found() -> None:
    members = sound()
    members[1].given[0] = given(5.0, "b", PARENT, 1, 4, 11)
    assert "again" in kinds(members)


def test_rows_that_are_left_out_are_found() -> None:
    members = sound()
    members[1].given[1] = given(8.0, "b", CHILD, 1, 2, 12)
    assert "lost" in kinds(members)


def test_rows_of_a_child_before_the_end_of_its_parent_are_found() -> None:
    members = sound()
    members[1].given[1] = replace(members[1].given[1], at=5.5)
    assert kinds(members) == {"early"}


def test_keys_out_of_order_are_found() -> None:
    members = sound()
    members[1].given.insert(0, given(0.5, "b", CHILD, 0, 2, 9))
    assert "order" in kinds(members)


def test_an_acknowledgement_under_an_older_hold_is_found() -> None:
    members = sound()
    members[0].told.append(Acked(6.5, "a", PARENT, 4, 10))
    members[0].acked.append(Acked(6.6, "a", PARENT, 4, 10))
    assert "two holds" in kinds(members)


def test_other_rows_than_stored_are_found() -> None:
    members = sound()
    members[0].given[0] = replace(members[0].given[0], rows=((0, 7), (1, 0)))
    assert len(other_rows(members, STORED)) == 1


# ---- queue ----


def queue() -> list[QueueMember]:
    """A has two ranges done and a third one in hand when it is killed at 5; B gets that."""
    a, b = (QueueMember("tcp://nowhere", "t", "q", name) for name in "ab")
    a.given = [Rows(at, PARENT, first, first + 1) for at, first in ((1.0, 0), (2.0, 1), (3.0, 2))]
    a.acked = [Rows(at, PARENT, first, first + 1) for at, first in ((1.5, 0), (2.5, 1))]
    b.given, b.acked = [Rows(7.0, PARENT, 2, 4)], [Rows(8.0, PARENT, 2, 4)]
    return [a, b]


def queue_kinds(members: list[QueueMember], *losses: Loss) -> tuple[set[str], int]:
    record = QueueRecord(losses)
    found = {one.kind for one in anomalies(record.take(members, {"a": 5.0}))}
    return found, record.repeated


def test_a_sound_record_of_a_queue_has_no_anomaly() -> None:
    assert queue_kinds(queue()) == (set(), 0)


def test_a_row_on_lease_to_two_members_is_found() -> None:
    members = queue()
    members[1].given[0] = Rows(4.0, PARENT, 2, 4)
    assert queue_kinds(members) == ({"two leases"}, 0)


def test_a_row_of_a_queue_that_was_done_and_comes_again_is_found_but_for_the_loss_of_an_owner() -> None:
    members = queue()
    members[1].given[0], members[1].acked[0] = Rows(7.0, PARENT, 0, 4), Rows(8.0, PARENT, 0, 4)
    assert queue_kinds(members)[0] == {"again", "acknowledged twice"}
    assert queue_kinds(members, Loss(6.0, 6.5)) == (set(), 4)
    assert queue_kinds(members, Loss(3.0, 7.0 - LATE_S - 0.1))[0] == {"again", "acknowledged twice"}


def test_of_a_lease_that_was_lost_in_part_the_other_rows_are_done() -> None:
    members = queue()
    members[1].given, members[1].acked = [Rows(7.0, PARENT, 2, 6)], [Rows(8.0, PARENT, 2, 3)]
    members[1].acked.append(Rows(8.0, PARENT, 5, 6))
    assert queue_kinds(members) == (set(), 0)
    members[0].given.append(Rows(9.0, PARENT, 3, 5))
    assert queue_kinds(members) == (set(), 0)
    members[0].given.append(Rows(9.5, PARENT, 5, 6))
    assert queue_kinds(members)[0] == {"again"}


def test_rows_that_a_killed_member_had_in_hand_are_those_of_its_last_delivery() -> None:
    assert [*last_deliveries(queue(), {"a": 5.0})] == [(PARENT, 2)]
    assert [*last_deliveries(queue(), {})] == []


# ---- how far all keys are ----


def test_a_key_is_as_far_as_acknowledgements_in_any_order_of_lines_say() -> None:
    one, other = member("one"), member("other")
    settled = SettledKeys([one, other])
    rows = tuple((key, 0) for key in range(KEYS))
    other.given, other.acked = (
        [Given(3.0, "other", PARENT, 8, KEYS, 2, rows[8:])],
        [Acked(4.0, "other", PARENT, KEYS, 2)],
    )
    assert settled.reached() == -1
    one.given = [Given(1.0, "one", PARENT, 0, 8, 1, rows[:8])]
    assert settled.reached() == 0
    one.given.append(Given(5.0, "one", PARENT, KEYS, KEYS + 1, 3, ((0, 1),)))
    assert settled.reached() == 0

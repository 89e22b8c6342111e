"""What owners tell goes into few entries, in an order in which the metadata takes it."""

from __future__ import annotations

from ringfence.control.model.cohort_commands import MarkBegun, MarkDrained
from ringfence.control.model.cohorts import StartKind
from ringfence.control.model.results import ItemsTaken
from ringfence.control.state_machines.cohorts.progress import (
    GATHER_MS,
    REPROPOSE_MS,
    WAITING_MAX,
    ProgressGathering,
)
from tests.fakes.cohort_log import CohortLog


def lineage() -> tuple[CohortLog, list[int]]:
    """A topic of depth three: the ids of its sealed partitions, the newest first."""
    log = CohortLog(partitions=1)
    first = log.active[0]
    one, _ = log.split_done(first)
    two, _ = log.split_done(log.part(one.partition))
    log.split_done(log.part(two.partition))
    return log, [two.partition, one.partition, first.partition]


def test_marks_are_gathered_and_parents_come_before_their_children() -> None:
    log, sealed = lineage()
    number = log.create()
    told = ProgressGathering()
    told.tell_drained(log.drained(number, *sealed[:2]).marks, 0)
    assert told.step(log.state, GATHER_MS - 1) == ()
    told.tell_drained(log.drained(number, sealed[2]).marks, GATHER_MS - 1)
    (entry,) = told.step(log.state, GATHER_MS)
    assert [mark.partition for mark in entry.marks] == sealed[::-1]
    assert log.took(entry) == ItemsTaken(count=3)


def test_one_entry_is_under_way_at_a_time_and_an_answer_that_is_lost_ends_its_wait() -> None:
    log, sealed = lineage()
    number = log.create()
    told = ProgressGathering()
    told.tell_drained(log.drained(number, sealed[2]).marks, 0)
    (first,) = told.step(log.state, 200)
    told.tell_drained(log.drained(number, sealed[1]).marks, 210)
    assert told.step(log.state, 400) == ()
    told.end(first)
    log.must(first)
    (second,) = told.step(log.state, 400)
    assert [mark.partition for mark in second.marks] == [sealed[1]]
    told.tell_drained(log.drained(number, sealed[1]).marks, 500)
    assert told.step(log.state, 400 + REPROPOSE_MS - 1) == ()
    (again,) = told.step(log.state, 400 + REPROPOSE_MS)
    assert again == second, "its owner told it again, and the entry has no answer"


def test_what_the_metadata_would_not_take_makes_no_entry() -> None:
    log, sealed = lineage()
    number = log.create()
    told = ProgressGathering()
    old = log.drained(number, sealed[2]).marks
    log.must(log.seek(number))
    gone = log.create("gone")
    late = log.drained(gone, sealed[2]).marks
    log.must(log.delete(gone))
    active = log.drained(number, log.active[0].partition).marks
    told.tell_drained((*old, *late, *active), 0)
    told.tell_begun(log.begun(number, sealed[2], late=1).marks, 0)
    assert told.step(log.state, 1_000) == ()


def test_beginnings_come_first() -> None:
    log, sealed = lineage()
    number, latest = log.create(), log.create("l", start=StartKind.LATEST)
    told = ProgressGathering()
    told.tell_drained(log.drained(number, sealed[2]).marks, 0)
    told.tell_begun(log.begun(latest, *log.cohort(latest).resetting).marks, 0)
    first, second = told.step(log.state, 100)
    assert isinstance(first, MarkBegun)
    assert isinstance(second, MarkDrained)
    log.must(first)
    assert log.cohort(latest).resetting == ()


def test_the_same_word_twice_is_one_item_and_the_line_has_an_end() -> None:
    log, sealed = lineage()
    number = log.create()
    told = ProgressGathering()
    for _ in range(3):
        told.tell_drained(log.drained(number, sealed[2]).marks, 0)
    (entry,) = told.step(log.state, 100)
    assert len(entry.marks) == 1
    mark = entry.marks[0]
    flood = ProgressGathering()
    flood.tell_drained((mark._replace(partition=part) for part in range(WAITING_MAX + 9)), 0)  # type: ignore[misc, arg-type]
    assert len(flood._drained) == WAITING_MAX

"""Drained marks, seeks and beginnings, as the metadata takes them."""

from __future__ import annotations

from ringfence.control.model.cohort_commands import MarkBegun, MarkDrained
from ringfence.control.model.cohorts import CohortMode, DrainedMark, StartKind
from ringfence.control.model.ids import drawn
from ringfence.control.model.results import CohortSought, ItemsTaken, LayoutFinalized
from tests.fakes.cohort_log import DAY_MS, CohortLog

STREAM, QUEUE = CohortMode.STREAM, CohortMode.QUEUE
LATEST, POSITIONS = StartKind.LATEST, StartKind.POSITIONS
NONE, ONE = ItemsTaken(count=0), ItemsTaken(count=1)


def test_a_mark_is_taken_of_a_sealed_partition_once_and_changes_no_generation() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    assert log.took(log.drained(number, source.partition)) == NONE, "ACTIVE"
    log.split_done(source)
    log.join(number, "a")
    log.plan(number)
    generation = log.cohort(number).generation
    assert log.took(log.drained(number, source.partition, incarnation=number + 1)) == NONE
    assert log.took(log.drained(number, 7)) == NONE, "no partition of this topic"
    assert log.took(log.drained(number, source.partition)) == ONE
    assert log.took(log.drained(number, source.partition)) == NONE, "a mark that was said twice"
    assert log.state.drained_marks[number] == (DrainedMark(source.partition, True),)
    assert log.cohort(number).generation == generation, "PB43"


def test_an_empty_middle_waits_for_its_parents_and_may_come_in_their_entry() -> None:
    """P15: depth three, the middle without rows."""
    log = CohortLog(partitions=1)
    number = log.create()
    first = log.active[0]
    middle, _ = log.split_done(first)
    log.split_done(log.part(middle.partition))
    assert log.took(log.drained(number, middle.partition)) == NONE, "CD2, CD3"
    assert log.took(log.drained(number, middle.partition, first.partition)) == ONE, "in their order"
    other = log.create("other")
    assert log.took(log.drained(other, first.partition, middle.partition)).count == 2


def test_marks_of_many_cohorts_and_partitions_are_one_entry() -> None:
    """PB43: 20 parents of 10 cohorts."""
    log = CohortLog(partitions=20)
    numbers = [log.create(f"c{place}") for place in range(10)]
    sources = log.active
    for part in sources:
        log.done(log.split(part), upto="opened")
    marks = [
        mark for number in numbers for mark in log.drained(number, *(p.partition for p in sources)).marks
    ]
    before = log.at
    assert log.took(MarkDrained(marks=tuple(marks))).count == 200
    assert log.at == before + 1
    assert [log.cohort(number).generation for number in numbers] == [0] * 10


def test_a_cohort_that_begins_after_a_sealed_partition_takes_no_mark_of_it() -> None:
    log = CohortLog(partitions=1)
    source = log.active[0]
    one, _ = log.split_done(source)
    number = log.create(start=LATEST)
    assert log.took(log.drained(number, source.partition)) == NONE
    log.split_done(log.part(one.partition))
    assert log.took(log.drained(number, one.partition)) == ONE, "its parent has no mark, and needs none"


# ---- seeks ----------------------------------------------------------------------------------------------


def test_a_seek_takes_marks_back_and_waits_for_what_may_still_give_old_rows() -> None:
    log = CohortLog(partitions=2)
    number = log.create()
    first, other = log.active
    one, two = log.split_done(first)
    log.split_done(log.part(one.partition))
    log.must(log.drained(number, first.partition))
    generation = log.cohort(number).generation
    result = log.took(log.seek(number))
    cohort = log.cohort(number)
    assert result == CohortSought(incarnation=cohort.incarnation)
    assert cohort.incarnation == drawn(log.at, 0)
    assert cohort.generation == generation + 1
    assert number not in log.state.drained_marks
    active = {part.partition for part in log.active}
    assert {*cohort.resetting} == active | {one.partition}, (
        "ACTIVE ones, and sealed ones that were not through"
    )
    assert {two.partition, other.partition} <= active
    assert log.took(log.drained(number, first.partition, incarnation=number)) == NONE, "of before the seek"


def test_a_seek_after_a_seek_waits_for_what_the_first_one_waited_for() -> None:
    log = CohortLog(partitions=2)
    number = log.create()
    first, other = log.active
    log.must(log.seek(number))
    log.split_done(first)
    log.must(log.seek(number, LATEST))
    assert first.partition in log.cohort(number).resetting, "sealed, and through by metadata: it still waits"
    assert other.partition in log.cohort(number).resetting


def test_a_seek_is_compared_with_the_incarnation_that_was_seen() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    late = log.seek(number)
    log.must(late)
    assert "look where it is" in log.refuses(late, "is in incarnation").message


def test_a_beginning_is_taken_from_the_owner_of_now_once() -> None:
    log = CohortLog(partitions=1)
    number = log.create(start=LATEST)
    (first,) = log.cohort(number).resetting
    late = log.begun(number, first, late=1)
    assert log.took(late) == NONE, "of an owner that was replaced"
    assert log.took(MarkBegun(marks=(late.marks[0]._replace(incarnation=number + 1),))) == NONE  # type: ignore[arg-type]
    told = log.begun(number, first)
    assert log.took(told) == ONE
    assert log.cohort(number).resetting == ()
    assert log.took(told) == NONE


def test_the_beginning_of_a_sealed_partition_is_told_by_the_owner_of_its_heir() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    epoch = log.epoch(source.partition)
    log.must(log.seek(number))
    log.split_done(source)
    log.split_done(log.part(log.part(source.partition).children[0]))
    told = log.begun(number, source.partition)
    wrong = MarkBegun(marks=(told.marks[0]._replace(epoch=epoch),))
    assert log.took(wrong) == NONE
    assert log.took(told) == ONE


# ---- what waits for cohorts -------------------------------------------------------------------------------


def test_finalize_and_prune_wait_for_cohorts_and_name_those_that_are_overdue() -> None:
    log = CohortLog(partitions=1)
    slow, _ = log.create("slow"), log.create("behind", QUEUE)
    source = log.active[0]
    log.split_done(source)
    late = log.create("late")
    log.refuses(log.finalize(), "registered readers are not through")
    log.must(log.drained(late, source.partition))
    log.must(log.drained(slow, source.partition))
    log.refuses(log.finalize(), "registered readers are not through")
    log.time_ms += DAY_MS
    assert log.took(log.finalize()) == LayoutFinalized(overdue=("behind",))


def test_a_cohort_that_was_created_after_a_split_does_not_hold_it() -> None:
    log = CohortLog(partitions=1)
    source = log.active[0]
    log.split_done(source)
    number = log.create()
    log.must(log.finalize())
    log.time_ms += 2_000_000
    log.refuses(log.prune(source.partition), "registered readers c are not through it")
    log.must(log.drained(number, source.partition))
    log.must(log.prune(source.partition))
    assert number not in log.state.drained_marks, "marks go with the partition"

"""What a cohort missed when a partition was pruned that it had not drained (CR3)."""

from __future__ import annotations

from ringfence.control.model.cohorts import NOTES_MAX, CohortId, CohortMode, NoteKind, StartKind
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.results import Done, MissedRows, PartitionsPruned
from tests.fakes.cohort_log import CohortLog
from tests.fakes.layout_log import END

STREAM, CHECKPOINT, QUEUE = CohortMode.STREAM, CohortMode.CHECKPOINT, CohortMode.QUEUE
MISSED, READ = NoteKind.MISSED, NoteKind.READ


def notes(log: CohortLog, number: CohortId) -> dict[int, list[tuple[int, int, NoteKind]]]:
    known = log.state.pruned_notes.get(number, {})
    return {int(child): [tuple(note) for note in one.notes] for child, one in known.items()}  # type: ignore[misc]


def test_what_was_pruned_undrained_is_noted_at_its_children_by_each_ordered_cohort() -> None:
    log = CohortLog(partitions=1)
    source = log.active[0]
    stream, queue, away = log.create("s"), log.create("q", QUEUE), log.create("away")
    one, two = log.split_done(source)
    behind = log.create("behind", start=StartKind.LATEST)
    log.must(log.drained(away, source.partition))
    result = log.prune_overdue(source.partition)
    assert result == PartitionsPruned(
        missed=(MissedRows(queue, source.partition), MissedRows(stream, source.partition))
    )
    line = [(source.partition, END.offset, MISSED)]
    assert notes(log, stream) == {one.partition: line, two.partition: line}
    assert notes(log, queue) == notes(log, away) == notes(log, behind) == {}


def test_notes_go_on_to_the_children_when_their_partition_is_pruned_too() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    one, _ = log.split_done(source)
    child, _ = log.split_done(log.part(one.partition))
    log.prune_overdue(source.partition)
    log.prune_overdue(one.partition)
    expected = [(source.partition, END.offset, MISSED), (one.partition, END.offset, MISSED)]
    assert notes(log, number)[child.partition] == expected


def test_notes_go_with_the_mark_of_the_child_and_with_a_seek() -> None:
    log = CohortLog(partitions=1)
    marked, sought = log.create("marked"), log.create("sought")
    source = log.active[0]
    one, two = log.split_done(source)
    log.split_done(log.part(one.partition))
    log.prune_overdue(source.partition)
    log.must(log.drained(marked, one.partition))
    assert {*notes(log, marked)} == {two.partition}
    log.must(log.seek(sought))
    assert notes(log, sought) == {}


def test_a_checkpoint_store_must_have_the_ends_of_what_was_read() -> None:
    log = CohortLog(partitions=2)
    number = log.create(mode=CHECKPOINT)
    one, other = log.active
    child = log.merge_done(one, other)
    log.must(log.drained(number, one.partition))
    log.must(log.drained(number, other.partition, read=False))
    assert log.prune_overdue(one.partition, other.partition) == Done()
    assert notes(log, number) == {child.partition: [(one.partition, END.offset, READ)]}
    assert not log.state.pruned_notes[number][child.partition].has_missed


def test_a_partition_that_never_had_a_row_is_not_missed() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    log.must(log.split(source))
    log.must(log.hold())
    log.must(log.commit(end=LogEnd(log.epoch(source.partition), 1, 0, 9)))
    log.must(log.opened())
    assert log.prune_overdue(source.partition) == Done()
    assert notes(log, number) == {}


def test_more_notes_than_are_kept_by_id_are_a_number() -> None:
    count = NOTES_MAX + 6
    log = CohortLog(partitions=count)
    number = log.create()
    sources = [part.partition for part in log.active]
    log.done(log.repartition((SlotRange(0, 65_535),)), upto="opened")
    child = log.active[0].partition
    log.prune_overdue(*sources)
    kept = log.state.pruned_notes[number][child]
    assert (len(kept.notes), kept.more, kept.has_missed) == (NOTES_MAX, 6, True)


def test_a_prune_shortens_slices_by_one_generation_and_ends_waits() -> None:
    log = CohortLog(partitions=1)
    number, idle = log.create(), log.create("idle")
    source = log.active[0].partition
    log.split_done(log.active[0])
    log.join(number, "a")
    log.must(log.seek(number))
    log.plan(number)
    generation = log.cohort(number).generation
    assert source in log.slices(number)["a"]
    assert source in log.cohort(number).resetting
    log.prune_overdue(PartitionId(source))
    assert log.cohort(number).generation == generation + 1
    assert source not in (*log.slices(number)["a"], *log.cohort(number).resetting)
    assert log.cohort(idle).generation == 0

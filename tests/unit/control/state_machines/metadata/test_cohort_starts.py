"""The target of a seek, resolved over the layout of its entry."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.cohorts import CohortPosition, StartKind
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.native.wire import Code
from tests.fakes.cohort_log import CohortLog
from tests.fakes.layout_log import END

EARLIEST, LATEST, POSITIONS = StartKind.EARLIEST, StartKind.LATEST, StartKind.POSITIONS


def test_a_seek_to_an_end_of_the_log_names_nothing() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    first = log.active[0].partition
    for to in (EARLIEST, LATEST):
        log.refuses(log.seek(number, to, {first: 3}), "names no positions")
        log.refuses(log.seek(number, to, rest=LATEST), "names no positions")
        log.must(log.seek(number, to))
        assert log.cohort(number).start.kind is to


def test_positions_are_in_the_history_of_the_layout() -> None:
    log = CohortLog(partitions=2)
    number = log.create()
    source, other = log.active
    one, two = log.split_done(source)
    both = {source.partition: END.offset, other.partition: 0}
    log.refuses(log.seek(number, POSITIONS, {}), "1 to")
    log.refuses(log.seek(number, POSITIONS, {source.partition: 3}), "have nothing to do with the positions")
    log.refuses(log.seek(number, POSITIONS, {**both, source.partition: END.offset + 1}), f"end {END.offset}")
    log.refuses(log.seek(number, POSITIONS, {**both, other.partition: -1}), "not between 0")
    log.refuses(log.seek(number, POSITIONS, {**both, PartitionId(7): 0}), "nothing is known of it")
    log.refuses(log.seek(number, POSITIONS, both, rest=POSITIONS), "EARLIEST or LATEST")
    late = log.seek(number, POSITIONS, both)
    newer = CohortPosition(other.partition, 4, Epoch(log.epoch(other.partition) + 1))
    log.refuses(replace(late, positions=(late.positions[0], newer)), "was not drawn yet")
    log.refuses(replace(late, positions=late.positions[::-1]), "ascending")
    log.must(late)
    start = log.cohort(number).start
    assert [position[:2] for position in start.positions] == [*sorted(both.items())]
    assert start.finished == ()
    log.must(log.seek(number, POSITIONS, {one.partition: 5, other.partition: 1, two.partition: 0}))
    assert log.cohort(number).start.finished == (source.partition,), "an ancestor of a named one is finished"


def test_descendants_of_a_named_one_begin_at_0_though_the_rest_begins_at_the_latest_rows() -> None:
    log = CohortLog(partitions=2)
    number = log.create()
    source, other = log.active
    one, two = log.split_done(source)
    log.must(log.seek(number, POSITIONS, {source.partition: 5}, rest=LATEST))
    start = log.cohort(number).start
    assert start.kind is LATEST
    offsets = {position.partition: position.offset for position in start.positions}
    assert offsets == {source.partition: 5, one.partition: 0, two.partition: 0}
    assert other.partition not in start.finished


def test_a_pruned_partition_counts_at_its_end_only() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    one, two = log.split_done(source)
    log.prune_overdue(source.partition)
    refusal = log.refuses(log.seek(number, POSITIONS, {source.partition: END.offset - 1}), "it ended at 70")
    assert refusal.code == Code.TRUNCATED
    log.must(log.seek(number, POSITIONS, {source.partition: END.offset}))
    start = log.cohort(number).start
    assert (start.positions, start.finished) == ((), ()), "its children begin at 0"
    assert {part.partition for part in log.active} == {one.partition, two.partition}


def test_a_prune_takes_a_partition_out_of_the_start() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    source = log.active[0]
    one, two = log.split_done(source)
    log.must(log.seek(number, POSITIONS, {one.partition: 5, two.partition: 6}))
    assert log.cohort(number).start.finished == (source.partition,)
    log.prune_overdue(source.partition)
    assert log.cohort(number).start.finished == ()

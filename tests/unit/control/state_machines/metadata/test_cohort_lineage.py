"""Where a cohort begins in which partition (CD7), what it is through, and whose log has a gate."""

from __future__ import annotations

import random

import pytest

from ringfence.control.model.cohorts import CohortMode, StartKind
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Layout, Partition
from ringfence.control.model.ranges import SlotRange
from ringfence.control.state_machines.metadata.cohort_lineage import (
    BeginningKind,
    ancestors,
    beginning,
    begins_after,
    descendants,
    heir,
    inherited_gates,
    is_through,
    plannable,
    relatives,
    waits_for,
)
from tests.fakes.cohort_log import CohortLog

EARLIEST, LATEST, POSITIONS = StartKind.EARLIEST, StartKind.LATEST, StartKind.POSITIONS


def test_a_cohort_at_the_earliest_rows_begins_at_0_everywhere() -> None:
    log = CohortLog(partitions=1)
    log.split_done(log.active[0])
    cohort = log.cohort(log.create())
    kinds = {beginning(cohort, part) for part in log.now.layout.partitions}
    assert {(place.kind, place.offset) for place in kinds} == {(BeginningKind.AT, 0)}


def test_a_cohort_at_the_latest_rows_is_through_what_was_sealed_and_waits_for_what_is_active() -> None:
    log = CohortLog(partitions=1)
    first = log.active[0]
    one, _ = log.split_done(first)
    number = log.create(start=LATEST)
    newer = log.split_done(log.part(one.partition))
    cohort = log.cohort(number)
    kinds = {part.partition: beginning(cohort, part).kind for part in log.now.layout.partitions}
    assert kinds[first.partition] is BeginningKind.FINISHED, "sealed at that version: it is through it"
    assert kinds[one.partition] is BeginningKind.NOT_BEGUN, "ACTIVE at that version, though sealed since"
    assert [kinds[part.partition] for part in newer] == [BeginningKind.AT] * 2, "every row of a new child"
    assert begins_after(cohort, log.part(first.partition))
    assert not begins_after(cohort, log.part(one.partition))


def test_positions_begin_as_named_their_ancestors_are_finished_and_their_descendants_begin_at_0() -> None:
    log = CohortLog(partitions=2)
    first, other = log.active
    one, two = log.split_done(first)
    number = log.create()
    log.must(log.seek(number, POSITIONS, {one.partition: 40}, rest=LATEST))
    child, _ = log.split_done(log.part(one.partition))
    cohort = log.cohort(number)
    found = {part.partition: beginning(cohort, part) for part in log.now.layout.partitions}
    assert found[one.partition][:2] == (BeginningKind.AT, 40)
    assert found[first.partition].kind is BeginningKind.FINISHED
    assert found[child.partition][:2] == (BeginningKind.AT, 0)
    assert found[other.partition].kind is found[two.partition].kind is BeginningKind.NOT_BEGUN


def test_a_child_waits_for_all_its_parents() -> None:
    log = CohortLog(partitions=2)
    one, other = log.active
    number = log.create()
    child = log.merge_done(one, other)
    parts = log.now.layout.by_id()

    def waiting() -> tuple[int, ...]:
        return tuple(waits_for(log.state, log.cohort(number), parts, log.part(child.partition)))

    assert waiting() == (one.partition, other.partition)
    log.must(log.drained(number, one.partition))
    assert waiting() == (other.partition,)
    log.must(log.drained(number, other.partition))
    assert waiting() == ()
    assert is_through(log.state, log.cohort(number), log.part(one.partition))
    assert not plannable(log.state, log.cohort(number), log.part(one.partition))
    assert plannable(log.state, log.cohort(number), log.part(child.partition))


def test_relatives_are_ancestors_and_descendants_and_no_siblings() -> None:
    log = CohortLog(partitions=2)
    first, other = log.active
    one, two = log.split_done(first)
    child = log.merge_done(log.part(two.partition), other)
    parts = log.now.layout.by_id()
    assert ancestors(parts, [child.partition]) == {first.partition, two.partition, other.partition}
    assert descendants(parts, [first.partition]) == {one.partition, two.partition, child.partition}
    assert relatives(parts, [one.partition]) == {first.partition, one.partition}
    assert relatives(parts, [two.partition]) == {first.partition, two.partition, child.partition}
    assert relatives(parts, [PartitionId(7)]) == frozenset()


@pytest.mark.parametrize("seed", range(60))
def test_each_gate_is_in_one_log_that_of_its_heir_whatever_the_changes(seed: int) -> None:
    """What a source has, its own gate and those that it inherited, goes on by lowest slots."""
    draw = random.Random(seed)
    layout = Layout(1, (Partition(PartitionId(1), SlotRange(0, 63), 1),))
    gates = {1: {1}}
    for _ in range(12):
        active = layout.active()
        first = draw.randrange(len(active))
        sources = active[first : first + draw.randrange(1, 4)]
        lo, hi = sources[0].slots.lo, sources[-1].slots.hi
        cuts = sorted({lo, *(draw.randrange(lo, hi + 1) for _ in range(draw.randrange(3)))})
        new = 1 + max(part.partition for part in layout.partitions)
        children = [
            (PartitionId(new + place), SlotRange(begin, (*cuts[1:], hi + 1)[place] - 1))
            for place, begin in enumerate(cuts)
        ]
        inherited = {gate for source in sources for gate in gates.pop(source.partition)}
        layout = layout.replaced([source.partition for source in sources], children)
        parts = layout.by_id()
        for child, slots in children:
            gates[child] = {
                gate for gate in inherited if slots.lo <= parts[PartitionId(gate)].slots.lo <= slots.hi
            }
            gates[child].add(child)
    places = {gate: log for log, known in gates.items() for gate in known}
    assert sum(map(len, gates.values())) == len(layout.partitions) == len(places)
    assert places == {number: heir(layout.by_id(), number) for number in layout.by_id()}


def test_only_the_present_incarnation_counts() -> None:
    log = CohortLog(partitions=1)
    number = log.create(mode=CohortMode.STREAM)
    source = log.active[0].partition
    log.split_done(log.active[0])
    log.must(log.drained(number, source))
    assert is_through(log.state, log.cohort(number), log.part(source))
    log.must(log.seek(number))
    assert not is_through(log.state, log.cohort(number), log.part(source))


def test_each_child_takes_the_gates_of_partitions_whose_lowest_slot_it_has() -> None:
    def part(number: int, lo: int, hi: int, sealed: int = 0, children: tuple[int, ...] = ()) -> Partition:
        following = tuple(map(PartitionId, children))
        return Partition(PartitionId(number), SlotRange(lo, hi), 1, sealed, children=following)

    # 1 and 2 were merged into 3, which is split at 50; 2 begins at 60. 9 has nothing to do with it.
    parts = {
        one.partition: one
        for one in (part(1, 0, 59, 2, (3,)), part(2, 60, 99, 2, (3,)), part(3, 0, 99), part(9, 100, 199))
    }
    source = PartitionId(3)
    assert inherited_gates(parts, source, SlotRange(0, 49)) == (1, 3)
    assert inherited_gates(parts, source, SlotRange(50, 99)) == (2,)
    assert inherited_gates(parts, source, SlotRange(0, 199)) is None, "all that its log has"
    assert inherited_gates(parts, PartitionId(9), SlotRange(0, 99)) == ()
    # It is sealed by now: a child that inherits late takes the same.
    parts |= {part(3, 0, 99, 3).partition: part(3, 0, 99, 3, (4, 5))}
    parts |= {one.partition: one for one in (part(4, 0, 49), part(5, 50, 99))}
    assert inherited_gates(parts, source, SlotRange(0, 49)) == (1, 3)
    assert inherited_gates(parts, source, SlotRange(50, 99)) == (2,)

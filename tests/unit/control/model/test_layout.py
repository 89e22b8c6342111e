"""The next layout: which partitions are sealed, made, related; and what is pruned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Layout, Partition, joined, overlaps
from ringfence.control.model.ranges import SlotRange, gap, tile


def layout(*ranges: SlotRange) -> Layout:
    parts = (Partition(PartitionId(1 + place), slots, 1) for place, slots in enumerate(ranges))
    return Layout(version=1, partitions=tuple(parts))


def ids(*numbers: int) -> list[PartitionId]:
    return [PartitionId(number) for number in numbers]


@settings(max_examples=100, deadline=None)
@given(before=st.integers(1, 9), after=st.integers(1, 9))
def test_edges_are_the_overlaps_and_few(before: int, after: int) -> None:
    first, made = (
        layout(*tile(before)),
        [(PartitionId(100 + n), slots) for n, slots in enumerate(tile(after))],
    )
    second = first.replaced([part.partition for part in first.partitions], made)
    assert (second.version, gap([part.slots for part in second.active()])) == (2, None)
    parts = second.by_id()
    edges = 0
    for child, slots in made:
        for source in first.partitions:
            touch = source.slots.lo <= slots.hi and slots.lo <= source.slots.hi
            assert (child in parts[source.partition].children) == touch
            assert (source.partition in parts[child].parents) == touch
            edges += touch
    assert edges <= before + after - 1
    assert all(parts[part.partition].sealed_version == 2 for part in first.partitions)


def test_a_late_commit_of_an_earlier_change_keeps_the_order_of_ids() -> None:
    one, two, three = tile(3)
    first = layout(one, two, three)
    halves = [(PartitionId(70), SlotRange(0, 9)), (PartitionId(71), SlotRange(10, one.hi))]
    late = [(PartitionId(50), SlotRange(two.lo, three.hi))]
    after = first.replaced(ids(1), halves).replaced(ids(2, 3), late)
    assert [int(part.partition) for part in after.partitions] == [1, 2, 3, 50, 70, 71]
    assert after.version == 3


def test_sources_that_are_not_active_and_children_that_do_not_tile_are_defects() -> None:
    one, two = tile(2)
    first = layout(one, two)
    second = first.replaced(
        ids(1), [(PartitionId(5), SlotRange(0, 9)), (PartitionId(6), SlotRange(10, one.hi))]
    )
    with pytest.raises(AssertionError, match="I3"):
        second.replaced(ids(1), [(PartitionId(7), one)])
    with pytest.raises(AssertionError, match="I3"):
        second.replaced(ids(9), [(PartitionId(7), one)])
    with pytest.raises(AssertionError, match="I1"):
        first.replaced(ids(1), [(PartitionId(7), SlotRange(0, 9))])
    with pytest.raises(AssertionError, match="I3"):
        second.pruned(ids(2))
    third = second.replaced(ids(5), [(PartitionId(8), SlotRange(0, 4)), (PartitionId(9), SlotRange(5, 9))])
    with pytest.raises(AssertionError, match="L8"):
        third.pruned(ids(5))
    left = third.pruned(ids(1))
    assert (left.version, left.by_id()[PartitionId(5)].parents) == (third.version, ())


def test_joined_ranges_and_overlaps() -> None:
    ranges = [SlotRange(0, 3), SlotRange(4, 4), SlotRange(9, 12)]
    assert joined(ranges) == [SlotRange(0, 4), SlotRange(9, 12)]
    assert joined([SlotRange(0, 3), SlotRange(3, 4)]) == [SlotRange(0, 3), SlotRange(3, 4)]
    assert overlaps([SlotRange(0, 3), SlotRange(4, 12)], ranges) == [[0], [1, 2]]
    assert overlaps(ranges, [SlotRange(3, 9)]) == [[0], [0], [0]]
    assert overlaps(ranges, []) == [[], [], []]

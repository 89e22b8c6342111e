"""Judge where a cohort stands in the lineage of its topic: where it begins, what it is through, what waits.

A gate without an entry in its log is at the cohort's beginning, which the metadata alone tells (CD7):

    made after the incarnation's layout version       offset 0
    named by the seek                                 as named
    EARLIEST                                          offset 0: the log start
    LATEST, SEALED at that version                    finished: the cohort is through it, without a mark
    LATEST, ACTIVE at that version                    not begun: its owner writes where its log ended
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from ringfence.control.model.cohorts import Cohort, CohortId, Member, StartKind
from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.state import MetadataState


class BeginningKind(Enum):
    # At the offset.
    AT = auto()
    # The cohort does not read the partition in this incarnation.
    FINISHED = auto()
    # The owner writes the beginning into the log before it serves a member.
    NOT_BEGUN = auto()


class Beginning(NamedTuple):
    """Where a cohort begins in a partition. `epoch` is that of the row below the offset; 0: not known."""

    kind: BeginningKind
    offset: int = 0
    epoch: Epoch = Epoch(0)


_FIRST: Final = Beginning(BeginningKind.AT)
_FINISHED: Final = Beginning(BeginningKind.FINISHED)
_NOT_BEGUN: Final = Beginning(BeginningKind.NOT_BEGUN)


def beginning(cohort: Cohort, part: Partition) -> Beginning:
    """Where the cohort begins in a partition of its topic."""
    if part.created_version > cohort.layout_version:
        return _FIRST
    start = cohort.start
    if has_partition(start.finished, part.partition):
        return _FINISHED
    place = bisect_left(start.positions, (part.partition,))
    if place < len(start.positions) and start.positions[place].partition == part.partition:
        return Beginning(BeginningKind.AT, start.positions[place].offset, start.positions[place].epoch)
    if start.kind is not StartKind.LATEST:
        return _FIRST
    return _FINISHED if 0 < part.sealed_version <= cohort.layout_version else _NOT_BEGUN


def begins_after(cohort: Cohort, part: Partition) -> bool:
    """Whether the cohort does not read the partition in this incarnation."""
    return beginning(cohort, part).kind is BeginningKind.FINISHED


def has_partition(ascending: tuple[PartitionId, ...], partition: PartitionId) -> bool:
    place = bisect_left(ascending, partition)
    return place < len(ascending) and ascending[place] == partition


def has_mark(state: MetadataState, cohort: CohortId, partition: PartitionId) -> bool:
    """Whether the cohort drained the partition in its present incarnation."""
    marks = state.drained_marks.get(cohort, ())
    place = bisect_left(marks, (partition,))
    return place < len(marks) and marks[place].partition == partition


def was_read(state: MetadataState, cohort: CohortId, partition: PartitionId) -> bool:
    """Whether members settled rows of a drained partition."""
    marks = state.drained_marks.get(cohort, ())
    place = bisect_left(marks, (partition,))
    return place < len(marks) and marks[place].partition == partition and marks[place].read


def is_through(state: MetadataState, cohort: Cohort, part: Partition) -> bool:
    """Whether the cohort is through a partition: it was drained, or the cohort begins after it."""
    return has_mark(state, cohort.cohort, part.partition) or begins_after(cohort, part)


def waits_for(
    state: MetadataState, cohort: Cohort, parts: Mapping[PartitionId, Partition], part: Partition
) -> tuple[PartitionId, ...]:
    """Direct parents that the cohort is not through. A pruned parent is not in the layout, and counts as
    drained; what was missed with it is in `state.pruned_notes`.
    """
    return tuple(
        parent for parent in part.parents if parent in parts and not is_through(state, cohort, parts[parent])
    )


def plannable(state: MetadataState, cohort: Cohort, part: Partition) -> bool:
    """Whether the partition may be in a member's slice."""
    return part.is_active or not is_through(state, cohort, part)


def relatives(
    parts: Mapping[PartitionId, Partition], numbers: Iterable[PartitionId]
) -> frozenset[PartitionId]:
    """These partitions with all their ancestors and descendants in the layout."""
    return _closure(parts, numbers, up=True) | _closure(parts, numbers, up=False)


def ancestors(
    parts: Mapping[PartitionId, Partition], numbers: Iterable[PartitionId]
) -> frozenset[PartitionId]:
    """Ancestors of the partitions, without those that are none of another."""
    return _closure(parts, _next_of(parts, numbers, up=True), up=True)


def descendants(
    parts: Mapping[PartitionId, Partition], numbers: Iterable[PartitionId]
) -> frozenset[PartitionId]:
    return _closure(parts, _next_of(parts, numbers, up=False), up=False)


def _next_of(
    parts: Mapping[PartitionId, Partition], numbers: Iterable[PartitionId], *, up: bool
) -> list[PartitionId]:
    return [
        near
        for number in numbers
        if number in parts
        for near in (parts[number].parents if up else parts[number].children)
    ]


def _closure(
    parts: Mapping[PartitionId, Partition], numbers: Iterable[PartitionId], *, up: bool
) -> frozenset[PartitionId]:
    found, waiting = set[PartitionId](), [number for number in numbers if number in parts]
    while waiting:
        number = waiting.pop()
        if number in found or number not in parts:
            continue
        found.add(number)
        waiting += parts[number].parents if up else parts[number].children
    return frozenset(found)


def heir(parts: Mapping[PartitionId, Partition], number: PartitionId) -> PartitionId:
    """The ACTIVE partition whose log has the gates of this one: the descendant that has its lowest slot."""
    lo = parts[number].slots.lo
    while not parts[number].is_active:
        number = next(
            child for child in parts[number].children if parts[child].slots.lo <= lo <= parts[child].slots.hi
        )
    return number


def inherited_gates(
    parts: Mapping[PartitionId, Partition], source: PartitionId, slots: SlotRange
) -> tuple[PartitionId, ...] | None:
    """Partitions whose gates a child with these slots takes from the log of `source`; None: all of that log.

    They are the source and sealed partitions whose heir it is, each at the child that has its lowest slot.
    Gates of partitions that were pruned meanwhile go with None alone.
    """
    there = [number for number in parts if _is_through(parts, number, source)]
    found = tuple(sorted(number for number in there if slots.lo <= parts[number].slots.lo <= slots.hi))
    return None if len(found) == len(there) else found


def _is_through(parts: Mapping[PartitionId, Partition], number: PartitionId, source: PartitionId) -> bool:
    """Whether the gates of a partition are in the log of `source`, or were before it was sealed."""
    lo = parts[number].slots.lo
    while number != source and not parts[number].is_active:
        number = next(
            child for child in parts[number].children if parts[child].slots.lo <= lo <= parts[child].slots.hi
        )
    return number == source


def cohorts_of(state: MetadataState, topic: TopicId) -> tuple[Cohort, ...]:
    """The cohorts of a topic in the order of their names."""
    names = state.cohort_names.get(topic, {})
    return tuple(state.cohorts[names[name]] for name in sorted(names))


def members_of(state: MetadataState, cohort: CohortId) -> Mapping[str, Member]:
    """Registered members of a cohort by their names."""
    return state.cohort_members.get(cohort, {})

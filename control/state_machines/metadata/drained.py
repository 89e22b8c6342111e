"""Judge whether registered readers are through a SEALED partition.

A log is read by any client at any position. Readers that keep their positions themselves are unknown to the
cluster, and retention protects them as before: no row goes because of a layout change. So this module speaks
of registered readers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ringfence.control.model.cohorts import Cohort
from ringfence.control.model.ids import Index, PartitionId, TopicId, drawn_at
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata import cohort_lineage

# The topic property for the time that readers and staged rows hold a SEALED partition, in seconds.
HOLD_PROPERTY: Final = "sealed_hold_s"
HOLD_S: Final = 86_400
HOLD_S_MIN: Final = 3_600
HOLD_S_MAX: Final = 30 * 86_400


class RegisteredReader(Protocol):
    """A group of readers whose progress is in the metadata."""

    @property
    def name(self) -> str: ...

    @property
    def created(self) -> Index: ...

    def has_read(self, partition: PartitionId) -> bool:
        """Whether the reader is through the partition, or does not read it."""
        ...


@dataclass(frozen=True, slots=True)
class CohortReader:
    """A cohort as a registered reader: the partitions of its topic's layout, and those that it drained."""

    cohort: Cohort
    parts: Mapping[PartitionId, Partition]
    marks: frozenset[PartitionId]

    @property
    def name(self) -> str:
        return self.cohort.name

    @property
    def created(self) -> Index:
        return drawn_at(self.cohort.cohort)

    def has_read(self, partition: PartitionId) -> bool:
        """Whether the cohort drained the partition in its present incarnation, or begins after it.

        A partition that is not in the layout was pruned: it is not read.
        """
        if partition in self.marks:
            return True
        part = self.parts.get(partition)
        return part is None or cohort_lineage.begins_after(self.cohort, part)


def registered_readers(state: MetadataState, topic: TopicId) -> tuple[RegisteredReader, ...]:
    """The registered readers of a topic: its cohorts. Below level 3 there are none."""
    cohorts = cohort_lineage.cohorts_of(state, topic)
    parts = state.topics[topic].layout.by_id() if cohorts else {}
    return tuple(
        CohortReader(
            cohort, parts, frozenset(mark.partition for mark in state.drained_marks.get(cohort.cohort, ()))
        )
        for cohort in cohorts
    )


def members_of(state: MetadataState, topic: TopicId) -> tuple[str, ...]:
    """Registered members of a topic's cohorts, as `cohort/member`, sorted."""
    return tuple(
        sorted(
            f"{cohort.name}/{name}"
            for cohort in cohort_lineage.cohorts_of(state, topic)
            for name in cohort_lineage.members_of(state, cohort.cohort)
        )
    )


def hold_s(state: MetadataState, topic: TopicId) -> int:
    """Seconds after the seal during which readers and staged rows hold a partition of the topic."""
    text = state.topics[topic].properties.get(HOLD_PROPERTY, "")
    return int(text) if hold_fault(text) is None else HOLD_S


def hold_fault(text: str) -> str | None:
    """The fault of a value of the property; None if it is sound."""
    if text.isascii() and text.isdigit() and len(text) < 10 and HOLD_S_MIN <= int(text) <= HOLD_S_MAX:
        return None
    return f"property {HOLD_PROPERTY}={text[:80]!r}: {HOLD_S_MIN} to {HOLD_S_MAX} seconds"


def is_overdue(state: MetadataState, topic: TopicId, partition: PartitionId) -> bool:
    """Whether readers and staged rows hold the SEALED partition no longer: one that never returns would keep
    its whole lineage.
    """
    seal = state.topics[topic].seal(partition)
    return seal is not None and state.time_ms - seal.sealed_ms >= hold_s(state, topic) * 1_000


def holders(
    state: MetadataState,
    topic: TopicId,
    partition: PartitionId,
    born_by: Index | None = None,
    readers: Sequence[RegisteredReader] | None = None,
) -> tuple[str, ...]:
    """Registered readers that are not through the partition, sorted; overdue or not.

    With `born_by` only those that were created at or before that entry count. `readers` are the topic's, of a
    caller that asks for many partitions.
    """
    readers = registered_readers(state, topic) if readers is None else readers
    return tuple(
        sorted(
            reader.name
            for reader in readers
            if (born_by is None or reader.created <= born_by) and not reader.has_read(partition)
        )
    )


def is_drained(
    state: MetadataState,
    topic: TopicId,
    partition: PartitionId,
    born_by: Index | None = None,
    readers: Sequence[RegisteredReader] | None = None,
) -> bool:
    """Whether each registered reader that counts is through the partition, or the partition is overdue."""
    return is_overdue(state, topic, partition) or not holders(state, topic, partition, born_by, readers)


def kept_rows(state: MetadataState, topic: TopicId) -> tuple[tuple[PartitionId, int], ...]:
    """SEALED partitions of the topic whose rows stay beyond its retention (CR2), ascending.

    Each with the time at which that ends at the latest, so the state's time does not matter. That stands
    still while nothing is proposed.
    """
    seals = state.topics[topic].seals
    readers = registered_readers(state, topic) if seals else ()
    if not seals or not readers:
        return ()
    hold_ms = hold_s(state, topic) * 1_000
    return tuple(
        (partition, seals[partition].sealed_ms + hold_ms)
        for partition in sorted(seals)
        if not all(reader.has_read(partition) for reader in readers)
    )


def is_transition_drained(state: MetadataState, transition: Transition) -> bool:
    """Whether all sources are drained. Readers that came after the COMMIT do not hold the transition: they
    might come without end.
    """
    readers = registered_readers(state, transition.topic)
    if not readers:
        return True
    return all(
        is_drained(state, transition.topic, source, transition.adoption_generation, readers)
        for source in transition.sources
    )


def lagging_partitions(state: MetadataState) -> frozenset[PartitionId]:
    """ACTIVE partitions with a SEALED parent that a registered reader has not read: one more layout change
    would make its way longer.
    """
    found = set[PartitionId]()
    for number, topic in state.topics.items():
        held = {part for part, until_ms in kept_rows(state, number) if state.time_ms < until_ms}
        if held:
            found |= {part.partition for part in topic.layout.active() if held.intersection(part.parents)}
    return frozenset(found)

"""Effects of entries on cohorts, shared by their commands, prunes and deletions of topics.

Rules:

- A generation rises by one with each entry that changes slices of a cohort, and with a seek; never else.
- All parts of a value are tuples in ascending order: a snapshot and the log give equal bytes.
- A map of a cohort (members, marks, notes) that is empty is left out.
- A prune notes at the children what a cohort had not drained (CR3). The note goes with the child's mark, a
seek, and the cohort.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from ringfence.control.model.cohorts import (
    NOTES_MAX,
    Cohort,
    CohortId,
    CohortMode,
    CohortStart,
    DrainedMark,
    Member,
    NoteKind,
    PrunedNote,
    PrunedNotes,
)
from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.results import MissedRows
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.cohort_lineage import (
    begins_after,
    cohorts_of,
    has_mark,
    members_of,
    was_read,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


def with_cohort(state: MetadataState, cohort: Cohort) -> MetadataState:
    return replace(state, cohorts={**state.cohorts, cohort.cohort: cohort})


def with_members(state: MetadataState, cohort: CohortId, members: Mapping[str, Member]) -> MetadataState:
    """The state in which the cohort has exactly these members."""
    kept = {number: known for number, known in state.cohort_members.items() if number != cohort}
    return replace(state, cohort_members={**kept, cohort: dict(members)} if members else kept)


def with_marks(state: MetadataState, cohort: CohortId, marks: Iterable[DrainedMark]) -> MetadataState:
    return replace(state, drained_marks=_put(state.drained_marks, cohort, tuple(sorted(marks))))


def with_notes(
    state: MetadataState, cohort: CohortId, notes: Mapping[PartitionId, PrunedNotes]
) -> MetadataState:
    return replace(state, pruned_notes=_put(state.pruned_notes, cohort, dict(notes)))


def _put(values: dict[Key, Value], key: Key, value: Value) -> dict[Key, Value]:
    """The map with the value, or without the key if the value is empty."""
    kept = {known: old for known, old in values.items() if known != key}
    return {**kept, key: value} if value else kept


def without_cohort(state: MetadataState, cohort: Cohort) -> MetadataState:
    """The state without the cohort, its members, marks and notes."""
    number = cohort.cohort
    names = {
        name: known for name, known in state.cohort_names.get(cohort.topic, {}).items() if known != number
    }
    return replace(
        state,
        cohorts={known: value for known, value in state.cohorts.items() if known != number},
        cohort_names=_put(state.cohort_names, cohort.topic, names),
        cohort_members=_put(state.cohort_members, number, {}),
        drained_marks=_put(state.drained_marks, number, ()),
        pruned_notes=_put(state.pruned_notes, number, {}),
    )


def without_topic_cohorts(state: MetadataState, topic: TopicId) -> MetadataState:
    """The state without the cohorts of a deleted topic."""
    for cohort in cohorts_of(state, topic):
        state = without_cohort(state, cohort)
    return state


def is_idle_since(state: MetadataState, cohort: CohortId) -> int:
    """The value of `Cohort.idle_since_ms` for the members that the state has now."""
    return 0 if members_of(state, cohort) else max(state.time_ms, 1)


# ---- prunes -----------------------------------------------------------------------------------------


def without_partitions(
    state: MetadataState, topic: Topic, gone: Collection[PartitionId]
) -> tuple[MetadataState, tuple[MissedRows, ...]]:
    """The state whose cohorts do not know these SEALED partitions any more, and what they missed.

    `topic` has them still. Parents are pruned before their children, so the children of `gone` stay.
    """
    missed: list[MissedRows] = []
    parts = topic.layout.by_id()
    for cohort in cohorts_of(state, topic.topic):
        missed += [
            MissedRows(cohort.cohort, number)
            for number in sorted(gone)
            if has_missed(state, cohort, topic, parts[number])
        ]
        state = _without_partitions(state, cohort, topic, frozenset(gone))
    return state, tuple(missed)


def has_missed(state: MetadataState, cohort: Cohort, topic: Topic, part: Partition) -> bool:
    """Whether the cohort may not have rows of a partition that is pruned now. One that ended at offset 0
    never had any.
    """
    seal = topic.seal(part.partition)
    assert seal is not None, f"I3: partition {part.partition} is SEALED and has no end"
    is_through = has_mark(state, cohort.cohort, part.partition) or begins_after(cohort, part)
    return seal.end.offset > 0 and not is_through


def _without_partitions(
    state: MetadataState, cohort: Cohort, topic: Topic, gone: frozenset[PartitionId]
) -> MetadataState:
    number = cohort.cohort
    notes = _notes_after(state, cohort, topic, gone)
    members = members_of(state, number)
    sliced = {name: member for name, member in members.items() if not gone.isdisjoint(member.slice)}
    start = cohort.start
    changed = replace(
        cohort,
        generation=cohort.generation + (1 if sliced else 0),
        resetting=_left(cohort.resetting, gone),
        start=CohortStart(
            kind=start.kind,
            positions=tuple(position for position in start.positions if position.partition not in gone),
            finished=_left(start.finished, gone),
        ),
    )
    if sliced:
        shorter = {name: replace(member, slice=_left(member.slice, gone)) for name, member in sliced.items()}
        state = with_members(state, number, {**members, **shorter})
    marks = state.drained_marks.get(number, ())
    if any(mark.partition in gone for mark in marks):
        state = with_marks(state, number, (mark for mark in marks if mark.partition not in gone))
    if notes != state.pruned_notes.get(number, {}):
        state = with_notes(state, number, notes)
    return state if changed == cohort else with_cohort(state, changed)


def _notes_after(
    state: MetadataState, cohort: Cohort, topic: Topic, gone: frozenset[PartitionId]
) -> dict[PartitionId, PrunedNotes]:
    """The notes of a cohort after a prune: those of a pruned partition go on to its children (CR3)."""
    before = state.pruned_notes.get(cohort.cohort, {})
    after = {number: notes for number, notes in before.items() if number not in gone}
    if not cohort.mode.is_ordered:
        return after
    parts = topic.layout.by_id()
    for number in sorted(gone):
        added = _with_notes(before.get(number), _own_notes(state, cohort, topic, parts[number]))
        if added is None:
            continue
        for child in parts[number].children:
            if child in parts and child not in gone and not has_mark(state, cohort.cohort, child):
                after[child] = _joined(after.get(child), added)
    return after


def _own_notes(state: MetadataState, cohort: Cohort, topic: Topic, part: Partition) -> tuple[PrunedNote, ...]:
    seal = topic.seal(part.partition)
    assert seal is not None, f"I3: partition {part.partition} is SEALED and has no end"
    if has_missed(state, cohort, topic, part):
        return (PrunedNote(part.partition, seal.end.offset, NoteKind.MISSED),)
    is_told = cohort.mode is CohortMode.CHECKPOINT and was_read(state, cohort.cohort, part.partition)
    return (PrunedNote(part.partition, seal.end.offset, NoteKind.READ),) if is_told else ()


def _with_notes(known: PrunedNotes | None, own: tuple[PrunedNote, ...]) -> PrunedNotes | None:
    if not own:
        return known
    made = PrunedNotes(own, has_missed=own[0].kind is NoteKind.MISSED)
    return made if known is None else _joined(known, made)


def _joined(one: PrunedNotes | None, other: PrunedNotes) -> PrunedNotes:
    """The notes of both, each partition once, the missed ones first if there are too many."""
    if one is None:
        return other
    notes = sorted({*one.notes, *other.notes}, key=lambda note: (note.kind is not NoteKind.MISSED, note))
    kept = tuple(sorted(notes[:NOTES_MAX]))
    more = one.more + other.more + len(notes) - len(kept)
    return PrunedNotes(kept, more, one.has_missed or other.has_missed)


def _left(numbers: tuple[PartitionId, ...], gone: frozenset[PartitionId]) -> tuple[PartitionId, ...]:
    return tuple(number for number in numbers if number not in gone)

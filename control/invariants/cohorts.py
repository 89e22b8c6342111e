"""Invariants of cohorts in one state, and of each step of them.

The rules are those of docs/design/cohorts.md, as far as the metadata shows them: slices are disjoint, a
generation rises with its content only (CG6), a mark comes after those of the parents (CD3) and stays for
its incarnation, what was pruned undrained is noted (CR3).
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.model.cohorts import (
    COHORT_LEVEL,
    INSTANCE_BYTES,
    NOTES_MAX,
    REPLACED_MAX,
    Cohort,
    CohortId,
    Member,
    NoteKind,
    StartKind,
    label_fault,
)
from ringfence.control.model.ids import PartitionId, drawn_at
from ringfence.control.model.layout import Partition
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.cohort_lineage import (
    begins_after,
    has_mark,
    is_through,
    waits_for,
)

Parts = dict[PartitionId, Partition]


def check(state: MetadataState, index: int) -> None:
    """AssertionError names the first rule that `state`, after the entry at `index`, breaks."""
    if state.level < COHORT_LEVEL:
        assert not state.cohorts, f"a cohort at level {state.level}"
    names: dict[int, dict[str, CohortId]] = {}
    for cohort in state.cohorts.values():
        names.setdefault(cohort.topic, {})[cohort.name] = cohort.cohort
    assert state.cohort_names == names, "cohorts and their names differ"
    for what, values in (
        ("members", state.cohort_members),
        ("drained marks", state.drained_marks),
        ("notes", state.pruned_notes),
    ):
        assert {*values} <= {*state.cohorts}, f"{what} of a cohort that does not exist"
        assert all(values.values()), f"a cohort has an empty list of {what}"
    sessions = [member.session for members in state.cohort_members.values() for member in members.values()]
    assert len({*sessions}) == len(sessions), "two members have one session"
    layouts: dict[int, Parts] = {}
    for number, cohort in state.cohorts.items():
        assert number == cohort.cohort, f"cohort {cohort.cohort} is stored under {number}"
        assert cohort.topic in state.topics, f"cohort {number} is of a topic that does not exist"
        if cohort.topic not in layouts:
            layouts[cohort.topic] = state.topics[cohort.topic].layout.by_id()
        parts = layouts[cohort.topic]
        _check_cohort(state, cohort, parts, index)
        _check_members(state, cohort, parts, index)
        _check_marks(state, cohort, parts)
        _check_notes(state, cohort, parts)


def _check_cohort(state: MetadataState, cohort: Cohort, parts: Parts, index: int) -> None:
    number, start = cohort.cohort, cohort.start
    assert label_fault(cohort.name, "") is None, f"cohort {number} has the name {cohort.name!r}"
    assert drawn_at(number) <= drawn_at(cohort.incarnation) <= index, f"cohort {number} is of a later entry"
    assert drawn_at(number) <= cohort.changed <= index, f"cohort {number} changed at another entry"
    assert 1 <= cohort.layout_version <= state.topics[cohort.topic].layout.version, (
        f"cohort {number} begins at a version that is not made yet"
    )
    assert _is_ascending(cohort.resetting), f"cohort {number}: `resetting` is out of order"
    assert {*cohort.resetting} <= {*parts}, f"cohort {number} waits for a partition that does not exist"
    assert start.kind is not StartKind.POSITIONS, f"cohort {number} has a start that is not resolved"
    named = [position.partition for position in start.positions]
    assert _is_ascending(named), f"cohort {number}: positions are out of order"
    assert _is_ascending(start.finished), f"cohort {number}: finished partitions are out of order"
    for partition in (*named, *start.finished):
        assert partition in parts, f"cohort {number} begins in a partition that does not exist"
        assert parts[partition].created_version <= cohort.layout_version, (
            f"CD7: cohort {number} names partition {partition}, which was made later"
        )


def _check_members(state: MetadataState, cohort: Cohort, parts: Parts, index: int) -> None:
    members = state.cohort_members.get(cohort.cohort, {})
    assert (cohort.idle_since_ms == 0) == bool(members), f"cohort {cohort.cohort}: idle with members"
    holders: dict[PartitionId, str] = {}
    for name, member in members.items():
        assert label_fault(name, "") is None, f"a member has the name {name!r}"
        assert len(member.instance) == INSTANCE_BYTES, f"member {name!r} has no sound instance"
        assert drawn_at(member.session) <= index, f"member {name!r} has a session of a later entry"
        assert len(member.replaced) <= REPLACED_MAX, f"member {name!r} replaced too many"
        assert member.instance not in member.replaced, f"member {name!r} was replaced by itself"
        assert _is_ascending(member.slice), f"the slice of member {name!r} is out of order"
        assert cohort.mode.is_ordered or not member.slice, f"a slice in QUEUE cohort {cohort.cohort}"
        for partition in member.slice:
            assert partition not in holders, (
                f"partition {partition} is with {holders[partition]!r} and {name!r}"
            )
            assert partition in parts, f"member {name!r} has partition {partition}, which does not exist"
            holders[partition] = name


def _check_marks(state: MetadataState, cohort: Cohort, parts: Parts) -> None:
    marks = [mark.partition for mark in state.drained_marks.get(cohort.cohort, ())]
    assert _is_ascending(marks), f"marks of cohort {cohort.cohort} are out of order"
    for partition in marks:
        part = parts.get(partition)
        assert part is not None, f"a mark of partition {partition}, which does not exist"
        assert not part.is_active, f"CD1: partition {partition} is ACTIVE, and drained"
        assert not begins_after(cohort, part), f"CD7: a mark of partition {partition}, which is not read"
        waits = waits_for(state, cohort, parts, part)
        assert not waits, f"CD3: partition {partition} is drained before its parents {waits}"


def _check_notes(state: MetadataState, cohort: Cohort, parts: Parts) -> None:
    for child, notes in state.pruned_notes.get(cohort.cohort, {}).items():
        assert cohort.mode.is_ordered, f"CR3: a note of QUEUE cohort {cohort.cohort}"
        assert child in parts, f"CR3: a note at partition {child}, which does not exist"
        assert not has_mark(state, cohort.cohort, child), (
            f"CR3: a note at partition {child}, which is drained"
        )
        assert 0 < len(notes.notes) <= NOTES_MAX, f"CR3: {len(notes.notes)} notes at partition {child}"
        assert list(notes.notes) == sorted({*notes.notes}), f"CR3: notes at {child} are out of order"
        assert not any(note.partition in parts for note in notes.notes), "CR3: a note of what is not pruned"
        is_named = any(note.kind is NoteKind.MISSED for note in notes.notes)
        assert is_named == notes.has_missed, f"CR3: the notes at {child} do not say whether rows were missed"


def _is_ascending(values: Sequence[int]) -> bool:
    return list(values) == sorted({*values})


# ---- steps ------------------------------------------------------------------------------------------


def check_step(before: MetadataState, after: MetadataState, index: int) -> None:
    """AssertionError names the first rule that the step to `index` breaks."""
    check(after, index)
    for number, cohort in after.cohorts.items():
        old = before.cohorts.get(number)
        if old is None:
            assert drawn_at(number) == index, f"I2: cohort {number} appeared at entry {index}"
            continue
        assert (old.topic, old.name, old.mode) == (cohort.topic, cohort.name, cohort.mode), (
            f"cohort {number} became another"
        )
        assert old.settings == cohort.settings or cohort.changed == index, (
            f"cohort {number} changed its settings without a new version"
        )
        _check_generation(before, after, old, cohort)
        _check_sessions(before, after, number, index)
        if old.incarnation == cohort.incarnation:
            _check_same_incarnation(before, after, old, cohort)
        else:
            _check_seek(after, old, cohort, index)
    for number in {*before.cohorts} - {*after.cohorts}:
        assert number not in after.cohort_members, f"cohort {number} is gone, and has members"


def _slices(state: MetadataState, cohort: CohortId) -> dict[str, tuple[PartitionId, ...]]:
    members: dict[str, Member] = state.cohort_members.get(cohort, {})
    return {name: member.slice for name, member in members.items() if member.slice}


def _check_generation(before: MetadataState, after: MetadataState, old: Cohort, new: Cohort) -> None:
    is_sought = old.incarnation != new.incarnation
    is_moved = _slices(before, old.cohort) != _slices(after, new.cohort)
    rise = new.generation - old.generation
    assert rise == (1 if is_moved or is_sought else 0), (
        f"CG6: cohort {new.cohort} rose by {rise} generations, slices "
        f"{'changed' if is_moved else 'are the same'}"
    )


def _check_sessions(before: MetadataState, after: MetadataState, number: CohortId, index: int) -> None:
    old = before.cohort_members.get(number, {})
    for name, member in after.cohort_members.get(number, {}).items():
        known = old.get(name)
        if known is None or known.session != member.session:
            assert drawn_at(member.session) == index, f"member {name!r} has a session of another entry"
        if known is not None and known.session != member.session:
            assert known.session < member.session, f"the session of member {name!r} went back"
            assert known.instance in member.replaced, f"member {name!r} forgot whom it replaced"
            assert known.slice == member.slice, f"member {name!r} lost its slice to its own name"


def _check_same_incarnation(before: MetadataState, after: MetadataState, old: Cohort, new: Cohort) -> None:
    number, parts = new.cohort, after.topics[new.topic].layout.by_id()
    earlier = before.topics[new.topic].layout.by_id()
    assert {*new.resetting} <= {*old.resetting}, f"CD6: cohort {number} waits for more than it did"
    for mark in before.drained_marks.get(number, ()):
        assert mark.partition not in parts or has_mark(after, number, mark.partition), (
            f"CD3: the mark of partition {mark.partition} is gone"
        )
    notes = after.pruned_notes.get(number, {})
    for child, known in before.pruned_notes.get(number, {}).items():
        assert child not in parts or child in notes or has_mark(after, number, child), (
            f"CR3: the note at partition {child} is gone"
        )
        if child not in parts:
            _check_noted(after, new, earlier[child], {note.partition for note in known.notes}, parts)
    if new.mode.is_ordered:
        for partition in {*earlier} - {*parts}:
            seal = before.topics[new.topic].seal(partition)
            if seal is not None and seal.end.offset and not is_through(before, old, earlier[partition]):
                _check_noted(after, new, earlier[partition], {partition}, parts)


def _check_noted(
    after: MetadataState, cohort: Cohort, gone: Partition, missed: set[PartitionId], parts: Parts
) -> None:
    for child in gone.children:
        notes = after.pruned_notes.get(cohort.cohort, {}).get(child)
        if child not in parts or has_mark(after, cohort.cohort, child):
            continue
        named = set() if notes is None else {note.partition for note in notes.notes}
        assert missed <= named or (notes is not None and notes.more > 0), (
            f"CR3: cohort {cohort.cohort} missed {sorted(missed - named)}, partition {child} does not say so"
        )


def _check_seek(after: MetadataState, old: Cohort, new: Cohort, index: int) -> None:
    number = new.cohort
    assert old.incarnation < new.incarnation, f"CD3: the incarnation of cohort {number} went back"
    assert drawn_at(new.incarnation) == index, f"cohort {number} has an incarnation of another entry"
    assert number not in after.drained_marks, f"CD3: marks of cohort {number} outlived a seek"
    assert number not in after.pruned_notes, f"CR3: notes of cohort {number} outlived a seek"
    waiting = {part.partition for part in after.topics[new.topic].layout.active()} | {*old.resetting}
    assert waiting <= {*new.resetting}, f"CD6: cohort {number} does not wait for {waiting - {*new.resetting}}"

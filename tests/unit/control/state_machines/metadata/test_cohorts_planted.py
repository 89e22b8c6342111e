"""Bugs planted into the commands of cohorts: the walks find each of them.

A bug that is never found would mean that the rule it breaks is not checked. Names are those of the design
where it has one. Bugs of the leader and of gates: `tests/component/control/test_cohorts.py`; of the order of
seeks, splits and prunes: `tests/search/test_cohorts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohorts import DrainedMark
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.metadata import (
    cohort_checks,
    cohort_lineage,
    cohort_rules,
    cohort_starts,
    cohorts,
    topics,
)
from tests.fakes.cohort_walk import walk

# Walks that a bug may take; most need fewer than five.
WALKS_MAX = 60
Patch = pytest.MonkeyPatch


def passing(name: str, words: str) -> Callable[[Patch], None]:
    """The check `name` lets pass what it refuses with these words."""

    def plant(patch: Patch) -> None:
        check = getattr(cohort_checks, name)

        def without(*arguments: Any) -> Refused | None:
            refusal: Refused | None = check(*arguments)
            return None if refusal is not None and words in refusal.message else refusal

        patch.setattr(cohort_checks, name, without)

    return plant


# ---- members and plans ----------------------------------------------------------------------------------


def join_without_compare(patch: Patch) -> None:
    """A process takes a name whatever session has it: a late JOIN of a dead one fences its successor."""
    fault = cohorts.registration_fault

    def planted(state: Any, item: Any, members: Any, total: int) -> Any:
        known = members.get(item.name)
        after = 0 if known is None else known.session
        return fault(state, item._replace(after=after), members, total)

    patch.setattr(cohorts, "registration_fault", planted)


def same_instance_is_new(patch: Patch) -> None:
    """The same process gets another session when it asks again."""
    fault = cohorts.registration_fault

    def planted(state: Any, item: Any, members: Any, total: int) -> Any:
        why = fault(state, item, members, total)
        return None if why is not None and why.name == "SAME" else why

    patch.setattr(cohorts, "registration_fault", planted)


def slice_is_the_process(patch: Patch) -> None:
    """A process that replaces another one under its name loses the slice."""
    made = cohorts._registered
    patch.setattr(cohorts, "_registered", lambda *given: replace(made(*given), slice=()))


def evicts_by_name(patch: Patch) -> None:
    """PB11: a removal is not compared with the session."""
    remove = cohorts.remove

    def planted(state: Any, command: Any) -> Any:
        items = tuple(
            item._replace(session=known.session)
            if (known := cohort_lineage.members_of(state, item.cohort).get(item.name)) is not None
            else item
            for item in command.members
        )
        return remove(state, replace(command, members=items))

    patch.setattr(cohorts, "remove", planted)


def removal_keeps_generation(patch: Patch) -> None:
    """Partitions are with nobody, and owners do not hear of it."""
    after_remove, remove = cohorts._with_next_generation, cohorts.remove

    def planted(state: Any, command: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(cohorts, "_with_next_generation", lambda given, _: given)
            return remove(state, command)

    assert after_remove is cohorts._with_next_generation
    patch.setattr(cohorts, "remove", planted)


def generation_always(patch: Patch) -> None:
    """A registration raises the generation of its cohort."""
    register = cohorts.register

    def planted(state: Any, command: Any, index: Any) -> Any:
        after, result = register(state, command, index)
        if after is not state:
            after = cohorts._with_next_generation(after, after.cohorts[command.members[0].cohort])
        return after, result

    patch.setattr(cohorts, "register", planted)


def generation_compared_upward(patch: Patch) -> None:
    """A plan that was made on older slices is taken."""
    fault = cohort_checks.plan_fault

    def planted(state: Any, command: Any) -> Any:
        cohort = state.cohorts.get(command.cohort)
        if cohort is not None and command.generation < cohort.generation:
            command = replace(command, generation=cohort.generation)
        return fault(state, command)

    patch.setattr(cohort_checks, "plan_fault", planted)


# ---- marks ----------------------------------------------------------------------------------------------


def mark_due(change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Callable[[Patch], None]:
    """`is_mark_due` is asked with another cohort or item."""

    def plant(patch: Patch) -> None:
        due = cohorts.is_mark_due

        def planted(state: Any, cohort: Any, parts: Any, item: Any) -> Any:
            other, said = change(state, cohort, item)
            return due(state, other, parts, said)

        patch.setattr(cohorts, "is_mark_due", planted)

    return plant


marks_without_incarnation = mark_due(
    lambda _, cohort, item: (cohort, item._replace(incarnation=cohort.incarnation))
)


def empty_is_drained(patch: Patch) -> None:
    """CD3: a mark is taken before those of the parents."""
    patch.setattr(cohorts, "waits_for", lambda *_: ())


def marks_only(patch: Patch) -> None:
    """What is through without a mark holds up its descendants."""

    def planted(state: Any, cohort: Any, parts: Any, part: Any) -> Any:
        return tuple(
            parent
            for parent in part.parents
            if parent in parts and not cohort_lineage.has_mark(state, cohort.cohort, parent)
        )

    patch.setattr(cohorts, "waits_for", planted)


def latest_sealed_waits(patch: Patch) -> None:
    """A partition that was sealed at the latest rows is not through before a mark says so."""
    begin = cohort_lineage.beginning

    def planted(cohort: Any, part: Any) -> Any:
        made = begin(cohort, part)
        is_named = cohort_lineage.has_partition(cohort.start.finished, part.partition)
        is_finished = made.kind is cohort_lineage.BeginningKind.FINISHED
        return cohort_lineage._NOT_BEGUN if is_finished and not is_named else made

    patch.setattr(cohort_lineage, "beginning", planted)


def active_counts(patch: Patch) -> None:
    """A partition that still takes rows is drained."""
    due = cohorts.is_mark_due

    def planted(state: Any, cohort: Any, parts: Any, item: Any) -> Any:
        part = parts.get(item.partition)
        if part is not None and part.is_active and item.incarnation == cohort.incarnation:
            return not cohort_lineage.has_mark(state, cohort.cohort, item.partition)
        return due(state, cohort, parts, item)

    patch.setattr(cohorts, "is_mark_due", planted)


def marks_unsorted(patch: Patch) -> None:
    """PB42: marks stand in the order in which they came."""

    def planted(state: Any, cohort: Any, marks: Any) -> Any:
        return replace(
            state, drained_marks=cohort_rules._put(state.drained_marks, cohort, tuple(dict.fromkeys(marks)))
        )

    patch.setattr(cohort_rules, "with_marks", planted)


def mark_raises_generation(patch: Patch) -> None:
    """PB43."""
    mark = cohorts._with_mark

    def planted(state: Any, cohort: Any, item: Any) -> Any:
        after = mark(state, cohort, item)
        return cohorts._with_next_generation(after, after.cohorts[cohort.cohort])

    patch.setattr(cohorts, "_with_mark", planted)


def mark_keeps_note(patch: Patch) -> None:
    """What was pruned in front of a drained partition is told permanently."""
    mark = cohorts._with_mark

    def planted(state: Any, cohort: Any, item: Any) -> Any:
        return replace(mark(state, cohort, item), pruned_notes=state.pruned_notes)

    patch.setattr(cohorts, "_with_mark", planted)


# ---- seeks and beginnings ---------------------------------------------------------------------------------


def after_seek(change: Callable[[Any, Any, Any], Any]) -> Callable[[Patch], None]:
    """The state after a seek is changed: (before, after, cohort)."""

    def plant(patch: Patch) -> None:
        seek = cohorts.seek

        def planted(state: Any, command: Any, index: Any) -> Any:
            after, result = seek(state, command, index)
            return change(state, after, after.cohorts[command.cohort]), result

        patch.setattr(cohorts, "seek", planted)

    return plant


def _with(state: Any, cohort: Any, **fields: Any) -> Any:
    return cohort_rules.with_cohort(state, replace(cohort, **fields))


def _active_only(before: Any, after: Any, cohort: Any) -> Any:
    del before
    active = {part.partition for part in after.topics[cohort.topic].layout.active()}
    return _with(after, cohort, resetting=tuple(part for part in cohort.resetting if part in active))


def _restarts(before: Any, after: Any, cohort: Any) -> Any:
    old = before.cohorts[cohort.cohort]
    topic = before.topics[cohort.topic]
    waiting = {
        part.partition
        for part in topic.layout.partitions
        if part.is_active or not cohort_lineage.is_through(before, old, part)
    }
    return _with(after, cohort, resetting=tuple(sorted(waiting)))


seek_keeps_drained = after_seek(lambda before, after, _: replace(after, drained_marks=before.drained_marks))
note_survives_seek = after_seek(lambda before, after, _: replace(after, pruned_notes=before.pruned_notes))
seek_keeps_generation = after_seek(
    lambda _, after, cohort: _with(after, cohort, generation=cohort.generation - 1)
)
active_only = after_seek(_active_only)
resetting_restarts = after_seek(_restarts)


def seek_unresolved(patch: Patch) -> None:
    """Ancestors of a named partition are read again."""
    resolved = cohort_starts.resolved
    patch.setattr(cohort_starts, "resolved", lambda *given: replace(resolved(*given), finished=()))


def begun_of_replaced(patch: Patch) -> None:
    """`begun` is taken from an owner that was replaced."""
    due = cohorts.is_begun_due

    def planted(state: Any, cohort: Any, item: Any) -> Any:
        topic = state.topics[cohort.topic]
        if item.partition not in topic.layout.by_id():
            return False
        log = cohort_lineage.heir(topic.layout.by_id(), item.partition)
        return due(state, cohort, item._replace(epoch=topic.assignments[log].epoch))

    patch.setattr(cohorts, "is_begun_due", planted)


def heir_of_highest_slot(patch: Patch) -> None:
    """PB19."""

    def planted(parts: Any, number: Any) -> Any:
        hi = parts[number].slots.hi
        while not parts[number].is_active:
            number = next(
                child
                for child in parts[number].children
                if parts[child].slots.lo <= hi <= parts[child].slots.hi
            )
        return number

    patch.setattr(cohorts, "heir", planted)


# ---- prunes and deletions ---------------------------------------------------------------------------------


def no_note(patch: Patch) -> None:
    patch.setattr(cohort_rules, "_own_notes", lambda *_: ())


def note_stays_behind(patch: Patch) -> None:
    """The notes of a partition go with it when it is pruned itself."""
    joined = cohort_rules._with_notes
    patch.setattr(cohort_rules, "_with_notes", lambda _, own: joined(None, own))


def noted_at_latest(patch: Patch) -> None:
    """A cohort that began after the partition is told that it missed it."""

    def planted(state: Any, cohort: Any, topic: Any, part: Any) -> Any:
        del topic
        return not cohort_lineage.has_mark(state, cohort.cohort, part.partition)

    patch.setattr(cohort_rules, "has_missed", planted)


def prune_keeps_marks(patch: Patch) -> None:
    without = cohort_rules._without_partitions

    def planted(state: Any, cohort: Any, *rest: Any) -> Any:
        return replace(without(state, cohort, *rest), drained_marks=state.drained_marks)

    patch.setattr(cohort_rules, "_without_partitions", planted)


def prune_keeps_slices(patch: Patch) -> None:
    without = cohort_rules.without_partitions

    def planted(state: Any, topic: Any, gone: Any) -> Any:
        after, missed = without(state, topic, gone)
        return replace(after, cohort_members=state.cohort_members), missed

    patch.setattr(cohort_rules, "without_partitions", planted)


def delete_keeps_cohorts(patch: Patch) -> None:
    patch.setattr(topics, "without_topic_cohorts", lambda state, _: state)


def cohort_keeps_marks(patch: Patch) -> None:
    """A cohort that is deleted leaves its marks."""
    without = cohort_rules.without_cohort

    def planted(state: Any, cohort: Any) -> Any:
        marks = {**state.drained_marks, cohort.cohort: (DrainedMark(7, True),)}  # type: ignore[arg-type]
        return replace(without(state, cohort), drained_marks=marks)

    patch.setattr(cohort_rules, "without_cohort", planted)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "join_without_compare": join_without_compare,
    "same_instance_is_new": same_instance_is_new,
    "slice_is_the_process": slice_is_the_process,
    "evicts_by_name": evicts_by_name,
    "removal_keeps_generation": removal_keeps_generation,
    "generation_always": generation_always,
    "generation_compared_upward": generation_compared_upward,
    "two_members": passing("_additions_fault", "would be with"),
    "drained_is_planned": passing("_additions_fault", "is through it"),
    "equal_plan": passing("_changes_fault", "changes nothing"),
    "takes_what_it_has_not": passing("_removals_fault", "does not have"),
    "queue_is_planned": passing("plan_fault", "which is not planned"),
    "marks_without_incarnation": marks_without_incarnation,
    "empty_is_drained": empty_is_drained,
    "marks_only": marks_only,
    "latest_sealed_waits": latest_sealed_waits,
    "active_counts": active_counts,
    "marks_unsorted": marks_unsorted,
    "mark_raises_generation": mark_raises_generation,
    "mark_keeps_note": mark_keeps_note,
    "seek_keeps_drained": seek_keeps_drained,
    "note_survives_seek": note_survives_seek,
    "seek_keeps_generation": seek_keeps_generation,
    "active_only": active_only,
    "resetting_restarts": resetting_restarts,
    "seek_unresolved": seek_unresolved,
    "begun_of_replaced": begun_of_replaced,
    "heir_of_highest_slot": heir_of_highest_slot,
    "no_note": no_note,
    "note_stays_behind": note_stays_behind,
    "noted_at_latest": noted_at_latest,
    "prune_keeps_marks": prune_keeps_marks,
    "prune_keeps_slices": prune_keeps_slices,
    "delete_keeps_cohorts": delete_keeps_cohorts,
    "cohort_keeps_marks": cohort_keeps_marks,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_walks_find_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(WALKS_MAX):
        try:
            walk(seed)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{bug} was not found in {WALKS_MAX} walks")

"""Every order of splits, seeks, prunes and beginnings of one cohort; planted bugs by their shortest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohorts import StartKind
from ringfence.control.state_machines.cohorts import gates
from ringfence.control.state_machines.metadata import cohort_lineage, cohort_rules, cohorts
from tests.search.cohorts import CohortWorld
from tests.search.explore import exhaust

EARLIEST, LATEST, POSITIONS = StartKind.EARLIEST, StartKind.LATEST, StartKind.POSITIONS
ALL = (EARLIEST, LATEST, POSITIONS)

WORLDS: dict[str, Callable[[], CohortWorld]] = {
    "a seek to each target": lambda: CohortWorld((1, 1), targets=ALL, seeks=1),
    "at the latest rows, a seek": lambda: CohortWorld((1, 1), start=(LATEST, 0), targets=ALL, seeks=1),
    "two seeks": lambda: CohortWorld((1, 1), start=(EARLIEST, 1), targets=(EARLIEST, LATEST), seeks=2),
    "a seek, owners are replaced": lambda: CohortWorld(
        (1, 1), start=(EARLIEST, 1), targets=(EARLIEST,), seeks=1, replacements=1
    ),
    "an empty middle": lambda: CohortWorld((1, 0, 1), start=(EARLIEST, 2)),
    "made at the latest rows of the middle": lambda: CohortWorld((1, 1, 1), start=(LATEST, 1)),
    "pruned before it was read": lambda: CohortWorld((1, 1), prunes=1, kills=1),
    "pruned, a seek": lambda: CohortWorld((1, 1), targets=(EARLIEST,), seeks=1, prunes=1, kills=1),
    "two are pruned, the middle is empty": lambda: CohortWorld((1, 0, 1), start=(EARLIEST, 2), prunes=2),
    "pruned before the beginning": lambda: CohortWorld((1, 0, 1), start=(LATEST, 1), prunes=1),
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_order_breaks_a_rule_and_an_end_can_be_reached(world: str) -> None:
    found = exhaust(WORLDS[world]())
    assert found.wrong is None, str(found)
    assert found.ends >= 1
    assert found.states > 30


# ---- planted bugs -------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def absent_is_old(patch: Patch) -> None:
    """A child that is made after the incarnation has not begun: it waits for a record that nobody writes."""
    begin = cohort_lineage.beginning

    def planted(cohort: Any, part: Any) -> Any:
        is_newer = part.created_version > cohort.layout_version
        return cohort_lineage._FINISHED if is_newer else begin(cohort, part)

    _patch_beginning(patch, planted)


def child_at_latest(patch: Patch) -> None:
    """PB7: a child of a later split begins at its latest rows, too."""
    begin = cohort_lineage.beginning

    def planted(cohort: Any, part: Any) -> Any:
        is_newer = part.created_version > cohort.layout_version
        is_latest = cohort.start.kind is LATEST
        return cohort_lineage._NOT_BEGUN if is_newer and is_latest else begin(cohort, part)

    _patch_beginning(patch, planted)


def latest_sealed_waits(patch: Patch) -> None:
    """A partition that was sealed at the latest rows is read from where it ended, by a record."""
    begin = cohort_lineage.beginning

    def planted(cohort: Any, part: Any) -> Any:
        made = begin(cohort, part)
        return cohort_lineage._NOT_BEGUN if made.kind is cohort_lineage.BeginningKind.FINISHED else made

    _patch_beginning(patch, planted)


def finished_is_read(patch: Patch) -> None:
    """A partition that was sealed at the latest rows is read from 0."""
    begin = cohort_lineage.beginning

    def planted(cohort: Any, part: Any) -> Any:
        made = begin(cohort, part)
        return cohort_lineage._FIRST if made.kind is cohort_lineage.BeginningKind.FINISHED else made

    _patch_beginning(patch, planted)


def _patch_beginning(patch: Patch, planted: Callable[[Any, Any], Any]) -> None:
    for module in (cohort_lineage, gates):
        patch.setattr(module, "beginning", planted)


def no_barrier(patch: Patch) -> None:
    """Each partition opens as soon as its own owner has applied the seek."""
    patch.setattr(gates, "barrier_of", lambda *_: frozenset())


def barrier_of_named(patch: Patch) -> None:
    """What is not in `resetting` does not wait for relatives that are."""
    patch.setattr(gates, "barrier_of", lambda cohort, _: frozenset(cohort.resetting))


def seek_keeps_drained(patch: Patch) -> None:
    _patch_seek(patch, lambda before, after, _: replace(after, drained_marks=before.drained_marks))


def note_survives_seek(patch: Patch) -> None:
    _patch_seek(patch, lambda before, after, _: replace(after, pruned_notes=before.pruned_notes))


def active_only(patch: Patch) -> None:
    """`resetting` names ACTIVE partitions only."""

    def change(_: Any, after: Any, cohort: Any) -> Any:
        active = {part.partition for part in after.topics[cohort.topic].layout.active()}
        left = tuple(part for part in cohort.resetting if part in active)
        return cohort_rules.with_cohort(after, replace(cohort, resetting=left))

    _patch_seek(patch, change)


def resetting_restarts(patch: Patch) -> None:
    """A second seek forgets what the first one waited for, if the metadata says that it is drained."""

    def change(before: Any, after: Any, cohort: Any) -> Any:
        old, topic = before.cohorts[cohort.cohort], before.topics[cohort.topic]
        waiting = {
            part.partition
            for part in topic.layout.partitions
            if part.is_active or not cohort_lineage.is_through(before, old, part)
        }
        left = tuple(part for part in cohort.resetting if part in waiting)
        return cohort_rules.with_cohort(after, replace(cohort, resetting=left))

    _patch_seek(patch, change)


def _patch_seek(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    seek = cohorts.seek

    def planted(state: Any, command: Any, index: Any) -> Any:
        after, result = seek(state, command, index)
        return change(state, after, after.cohorts[command.cohort]), result

    patch.setattr(cohorts, "seek", planted)


def marks_without_incarnation(patch: Patch) -> None:
    due = cohorts.is_mark_due
    patch.setattr(
        cohorts,
        "is_mark_due",
        lambda state, cohort, parts, item: due(
            state, cohort, parts, item._replace(incarnation=cohort.incarnation)
        ),
    )


def begun_of_replaced(patch: Patch) -> None:
    """`begun` is taken from an owner that was replaced: without a record its successor does not know."""
    due = cohorts.is_begun_due

    def planted(state: Any, cohort: Any, item: Any) -> Any:
        topic = state.topics[cohort.topic]
        log = cohort_lineage.heir(topic.layout.by_id(), item.partition)
        return due(state, cohort, item._replace(epoch=topic.assignments[log].epoch))

    patch.setattr(cohorts, "is_begun_due", planted)


def begun_before_reset(patch: Patch) -> None:
    """The latest rows: an ACTIVE partition is told to have begun before that is in its log."""
    patch.setattr(gates, "_has_place", lambda _: True)


def soft_is_permanent(patch: Patch) -> None:
    """What a parent's owner said before a seek counts after it."""
    patch.setattr(
        gates.DrainedWords,
        "is_drained",
        lambda words, _, cohort, partition: (cohort.cohort, partition) in words._words,
    )


def empty_is_drained(patch: Patch) -> None:
    """CD2: an empty sealed partition is drained before its parents."""
    drained = gates.is_drained

    def planted(rule: Any, gate: Any, **given: Any) -> bool:
        return drained(rule._replace(waits_for=()) if rule.end == 0 else rule, gate, **given)

    patch.setattr(gates, "is_drained", planted)
    patch.setattr(cohorts, "waits_for", lambda *_: ())


def marks_only(patch: Patch) -> None:
    """The machine takes a mark only after marks: what is through without one holds up its descendants."""

    def planted(state: Any, cohort: Any, parts: Any, part: Any) -> Any:
        return tuple(
            parent
            for parent in part.parents
            if parent in parts and not cohort_lineage.has_mark(state, cohort.cohort, parent)
        )

    patch.setattr(cohorts, "waits_for", planted)


def opens_early(patch: Patch) -> None:
    """CG15: a new owner opens gates under metadata of before the entry that made it one."""
    patch.setattr(CohortWorld, "views", lambda _, s: list(s.path))


def no_note(patch: Patch) -> None:
    patch.setattr(cohort_rules, "_own_notes", lambda *_: ())


def note_stays_behind(patch: Patch) -> None:
    joined = cohort_rules._with_notes
    patch.setattr(cohort_rules, "_with_notes", lambda _, own: joined(None, own))


def noted_at_latest(patch: Patch) -> None:
    patch.setattr(
        cohort_rules,
        "has_missed",
        lambda state, cohort, _, part: not cohort_lineage.has_mark(state, cohort.cohort, part.partition),
    )


def empty_child_drains(patch: Patch) -> None:
    """An empty child of what was missed is drained without a reader, and its mark takes the note away."""
    drained = gates.is_drained

    def planted(rule: Any, gate: Any, **given: Any) -> bool:
        return drained(rule._replace(notes=None), gate, **given)

    patch.setattr(gates, "is_drained", planted)


# The bug, and the world that shows it.
PLANTED: dict[str, tuple[Callable[[Patch], None], str]] = {
    "absent_is_old": (absent_is_old, "a seek to each target"),
    "child_at_latest": (child_at_latest, "at the latest rows, a seek"),
    "latest_sealed_waits": (latest_sealed_waits, "made at the latest rows of the middle"),
    "finished_is_read": (finished_is_read, "made at the latest rows of the middle"),
    "no_barrier": (no_barrier, "a seek to each target"),
    "barrier_of_named": (barrier_of_named, "a seek to each target"),
    "seek_keeps_drained": (seek_keeps_drained, "a seek to each target"),
    "active_only": (active_only, "a seek to each target"),
    "resetting_restarts": (resetting_restarts, "two seeks"),
    "marks_without_incarnation": (marks_without_incarnation, "a seek to each target"),
    "begun_of_replaced": (begun_of_replaced, "a seek, owners are replaced"),
    "begun_before_reset": (begun_before_reset, "at the latest rows, a seek"),
    "soft_is_permanent": (soft_is_permanent, "a seek to each target"),
    "empty_is_drained": (empty_is_drained, "an empty middle"),
    "marks_only": (marks_only, "made at the latest rows of the middle"),
    "opens_early": (opens_early, "a seek, owners are replaced"),
    "no_note": (no_note, "pruned before it was read"),
    "note_survives_seek": (note_survives_seek, "pruned, a seek"),
    "note_stays_behind": (note_stays_behind, "two are pruned, the middle is empty"),
    "noted_at_latest": (noted_at_latest, "pruned before the beginning"),
    "empty_child_drains": (empty_child_drains, "two are pruned, the middle is empty"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_search_finds_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, world = PLANTED[bug]
    plant(monkeypatch)
    try:
        found = exhaust(WORLDS[world]())
    except AssertionError:
        return  # an invariant of the metadata
    assert found.wrong is not None, f"{bug} was not found: {found}"

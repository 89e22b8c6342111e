"""Decide when a cohort is planned, and make the entries of its plan.

    PlanSchedule.observe(state, now_ms)   note which cohorts changed
    PlanSchedule.due(now_ms)              cohorts to plan now
    next_entry(state, cohort, connected)  the next entry of a cohort's plan, None if it is published

A cohort is planned again when a member came or went, the layout changed, a partition was drained, or it was
sought; when a member came back from grace, or went into it while a partition is unassigned. A plan waits for
more changes: 100 ms in a cohort without slices, else 200 ms, doubled up to 3.2 s while changes keep coming.
Ten thousand joins within 10 s are eight plans at most. A member that leaves is waited for 100 ms only.

A large plan is several entries. Each gives and takes the same partitions, so it is a plan fit to be obeyed.
The planner keeps what is placed, so after each entry the rest of the plan is what it would have been.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringfence.control.model.cohort_commands import PublishPlan, SliceChange
from ringfence.control.model.cohorts import Cohort, CohortId, DrainedMark, Incarnation
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.cohorts.planner import plan
from ringfence.control.state_machines.metadata.cohort_checks import PLAN_PARTITIONS_MAX, holders_of
from ringfence.control.state_machines.metadata.cohort_lineage import members_of, plannable

FIRST_DELAY_MS: Final = 100
DELAY_MS: Final = 200
DELAY_MS_MAX: Final = 3_200
QUIET_MS: Final = 10_000
# Partitions and members from which on a plan takes tens of ms: it is made outside of the event loop, on the
# frozen state. Its entry is refused if the state moved on.
LARGE_PLAN: Final = 16_384


class _Seen(NamedTuple):
    """What a plan of a cohort depends on. Objects of the state are compared by identity."""

    incarnation: Incarnation
    layout: object
    marks: tuple[DrainedMark, ...]
    members: object
    names: tuple[str, ...]
    has_slices: bool


@dataclass(slots=True)
class _Waiting:
    """The delay of a cohort's plans; `due_ms` None: nothing is waiting."""

    delay_ms: int
    changed_ms: int
    due_ms: int | None = None


class PlanSchedule:
    """When each cohort is planned. Times are in ms of one monotonic clock; the class reads no clock."""

    def __init__(self) -> None:
        self._seen: dict[CohortId, _Seen] = {}
        self._waiting: dict[CohortId, _Waiting] = {}
        self._maps: tuple[object, ...] = ()

    def observe(self, state: MetadataState, now_ms: int) -> None:
        """Note the cohorts that changed since the last call. A new leader finds all changed."""
        maps = (state.cohorts, state.cohort_members, state.drained_marks, state.topics)
        if len(maps) == len(self._maps) and all(map(_is, maps, self._maps)):
            return
        self._maps = maps
        self._seen = {number: seen for number, seen in self._seen.items() if number in state.cohorts}
        self._waiting = {number: one for number, one in self._waiting.items() if number in state.cohorts}
        for number, cohort in state.cohorts.items():
            if not cohort.mode.is_ordered:
                continue
            before = self._seen.get(number)
            if before is not None and _is_untouched(state, cohort, before):
                continue
            seen = self._seen[number] = _look(state, cohort)
            if before is None or not _is_same(before, seen):
                self.change(number, now_ms, is_first=not seen.has_slices)

    def change(self, cohort: CohortId, now_ms: int, *, is_first: bool = False) -> None:
        """Something that the plan of a cohort depends on has changed."""
        first = FIRST_DELAY_MS if is_first else DELAY_MS
        waiting = self._waiting.get(cohort)
        if waiting is None or now_ms - waiting.changed_ms >= QUIET_MS:
            waiting = self._waiting[cohort] = _Waiting(first, now_ms, waiting.due_ms if waiting else None)
        elif waiting.due_ms is None:
            waiting.delay_ms = min(max(2 * waiting.delay_ms, DELAY_MS), DELAY_MS_MAX)
        waiting.changed_ms = now_ms
        if waiting.due_ms is None:
            waiting.due_ms = now_ms + waiting.delay_ms

    def leave(self, cohort: CohortId, now_ms: int) -> None:
        """A member said that it leaves: its partitions wait for 100 ms at most."""
        if cohort in self._seen:
            self.change(cohort, now_ms)
            waiting = self._waiting[cohort]
            assert waiting.due_ms is not None, "just set"
            waiting.due_ms = min(waiting.due_ms, now_ms + FIRST_DELAY_MS)

    def plan_at(self, cohort: CohortId, at_ms: int) -> None:
        """Plan a cohort at this time or before: its last plan was cut, refused, or has no answer."""
        waiting = self._waiting.setdefault(cohort, _Waiting(DELAY_MS, at_ms))
        waiting.due_ms = at_ms if waiting.due_ms is None else min(at_ms, waiting.due_ms)

    def due(self, now_ms: int) -> tuple[CohortId, ...]:
        """Cohorts to plan now; each is told once."""
        due = sorted(
            number
            for number, waiting in self._waiting.items()
            if waiting.due_ms is not None and waiting.due_ms <= now_ms
        )
        for number in due:
            self._waiting[number].due_ms = None
        return tuple(due)


def _is(one: object, other: object) -> bool:
    return one is other


def _look(state: MetadataState, cohort: Cohort) -> _Seen:
    members = members_of(state, cohort.cohort)
    return _Seen(
        cohort.incarnation,
        state.topics[cohort.topic].layout,
        state.drained_marks.get(cohort.cohort, ()),
        members,
        tuple(sorted(members)),
        any(member.slice for member in members.values()),
    )


def _is_untouched(state: MetadataState, cohort: Cohort, seen: _Seen) -> bool:
    """Whether all objects are those of the last look: names need not be sorted again."""
    return (
        seen.members is members_of(state, cohort.cohort)
        and seen.layout is state.topics[cohort.topic].layout
        and seen.marks is state.drained_marks.get(cohort.cohort, ())
        and seen.incarnation == cohort.incarnation
    )


def _is_same(one: _Seen, other: _Seen) -> bool:
    return (
        one.incarnation == other.incarnation
        and one.layout is other.layout
        and one.marks is other.marks
        and one.names == other.names
    )


# ---- entries ----------------------------------------------------------------------------------------


class Move(NamedTuple):
    """A partition that changes its member; None: unassigned."""

    partition: PartitionId
    source: str | None
    target: str | None


def moves(state: MetadataState, cohort: Cohort, connected: Collection[str] | None = None) -> tuple[Move, ...]:
    """Partitions that the plan moves, in the order of their slots."""
    members = members_of(state, cohort.cohort)
    held = holders_of(members)
    parts = state.topics[cohort.topic].layout.partitions
    order = sorted((part.slots.lo, part.partition) for part in parts if plannable(state, cohort, part))
    parents = {part.partition: part.parents for part in parts if part.parents}
    planned = plan(order, members, held, connected, parents)
    changed = [
        Move(number, held.get(number), planned.get(number))
        for _, number in order
        if held.get(number) != planned.get(number)
    ]
    left = sorted(held.keys() - {number for _, number in order})
    return (*(Move(number, held[number], None) for number in left), *changed)


class PlanEntry(NamedTuple):
    """The next entry of a plan; `is_whole`: the plan is published with it."""

    command: PublishPlan
    is_whole: bool


def next_entry(
    state: MetadataState,
    cohort: Cohort,
    connected: Collection[str] | None = None,
    most: int = PLAN_PARTITIONS_MAX,
) -> PlanEntry | None:
    """The next entry of a cohort's plan; None if it is published."""
    return entry_of(cohort, moves(state, cohort, connected), most) if cohort.mode.is_ordered else None


def entry_of(cohort: Cohort, moved: tuple[Move, ...], most: int = PLAN_PARTITIONS_MAX) -> PlanEntry | None:
    """The entry of the first moves, as many as one entry takes."""
    changes: dict[str, tuple[list[PartitionId], list[PartitionId]]] = {}
    count, is_whole = 0, True
    for number, source, target in moved:
        count += (source is not None) + (target is not None)
        if count > most:
            is_whole = False
            break
        if target is not None:
            changes.setdefault(target, ([], []))[0].append(number)
        if source is not None:
            changes.setdefault(source, ([], []))[1].append(number)
    if not changes:
        return None
    command = PublishPlan(
        cohort=cohort.cohort,
        generation=cohort.generation,
        changes=tuple(
            SliceChange(name, tuple(sorted(add)), tuple(sorted(remove)))
            for name, (add, remove) in sorted(changes.items())
        ),
    )
    return PlanEntry(command, is_whole)


def unassigned(state: MetadataState, cohort: Cohort) -> int:
    """The number of partitions that should be read and are in no slice."""
    if not cohort.mode.is_ordered:
        return 0
    held: Mapping[PartitionId, str] = holders_of(members_of(state, cohort.cohort))
    parts = state.topics[cohort.topic].layout.partitions
    return sum(part.partition not in held and plannable(state, cohort, part) for part in parts)


def is_large(state: MetadataState, cohort: Cohort) -> bool:
    """Whether a plan is made outside of the event loop."""
    parts = len(state.topics[cohort.topic].layout.partitions)
    return parts + len(members_of(state, cohort.cohort)) > LARGE_PLAN

"""Derive events of cohorts from two successive states: cohorts, members, plans, and rows that were missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringfence.control.model.cohorts import Cohort, NoteKind
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.cohort_lineage import members_of

Event = tuple[str, dict[str, Any]]


def cohort_differences(before: MetadataState, after: MetadataState) -> Iterator[Event]:
    """Kind and values of each event. A map that is the same object in both states did not change."""
    if before.cohorts is not after.cohorts:
        yield from _cohorts(before, after)
    if before.cohort_members is not after.cohort_members:
        yield from _members(before, after)
    if before.pruned_notes is not after.pruned_notes:
        yield from _missed(before, after)


def _named(state: MetadataState, cohort: Cohort) -> dict[str, Any]:
    return {"topic": cohort.topic, "name": state.topics[cohort.topic].name, "cohort": cohort.name}


def _cohorts(before: MetadataState, after: MetadataState) -> Iterator[Event]:
    for number in sorted(before.cohorts.keys() - after.cohorts.keys()):
        yield "cohort deleted", _named(before, before.cohorts[number])
    for number, cohort in sorted(after.cohorts.items()):
        old, named = before.cohorts.get(number), _named(after, cohort)
        if old is None:
            yield "cohort created", named | {"mode": cohort.mode.lower()}
        elif old is cohort:
            continue
        elif old.incarnation != cohort.incarnation:
            values = {"to": cohort.start.kind.lower(), "incarnation": cohort.incarnation}
            yield "cohort sought", named | values
        elif old.generation != cohort.generation:
            yield "plan published", named | {"generation": cohort.generation}
        if old is not None and old.settings != cohort.settings:
            yield "cohort changed", named | {"version": cohort.changed}


def _members(before: MetadataState, after: MetadataState) -> Iterator[Event]:
    """Of a cohort that was deleted the members are named by its own event."""
    for number, cohort in sorted(after.cohorts.items()):
        old, members = members_of(before, number), members_of(after, number)
        if old is members:
            continue
        named = _named(after, cohort)
        for name in sorted(old.keys() - members.keys()):
            yield "member gone", named | {"member": name}
        for name, member in sorted(members.items()):
            known = old.get(name)
            if known is None:
                yield "member joined", named | {"member": name, "node": member.home}
            elif known.session != member.session:
                yield "member replaced", named | {"member": name, "node": member.home}


def _missed(before: MetadataState, after: MetadataState) -> Iterator[Event]:
    """Partitions that were pruned before the cohort had read them (CR3). Their notes may be new at several
    children; one event names them all.
    """
    for number, notes in sorted(after.pruned_notes.items()):
        old = before.pruned_notes.get(number, {})
        if notes is old:
            continue
        known = {note.partition for one in old.values() for note in one.notes}
        new = {
            note.partition: note.offset
            for one in notes.values()
            for note in one.notes
            if note.kind is NoteKind.MISSED and note.partition not in known
        }
        if new:
            missed = [{"partition": partition, "end_offset": end} for partition, end in sorted(new.items())]
            yield "cohort missed rows", _named(after, after.cohorts[number]) | {"missed": missed}

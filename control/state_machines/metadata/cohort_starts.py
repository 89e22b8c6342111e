"""Resolve the target of a seek for the partitions of the layout at its entry.

Of a partition the first line holds that fits:

    it is named                        it begins where the position says
    it is an ancestor of a named one   it is finished: its rows are older than the positions
    it is a descendant of a named one  it begins at offset 0: its rows are newer
    neither                            it begins at `rest`; without `rest` the seek is refused

A named partition that was pruned counts at its end: its children are descendants of it.
"""

from __future__ import annotations

from msgspec import UNSET

from ringfence.control.model.cohort_commands import SeekCohort
from ringfence.control.model.cohorts import CohortPosition, CohortStart, StartKind
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.results import Refused
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.cohort_lineage import ancestors, descendants
from ringfence.control.state_machines.metadata.refusals import invalid

# Partitions that a message names.
NAMED = 8


def unrelated_fault(topic: Topic, command: SeekCohort) -> Refused | None:
    """The refusal of positions that leave partitions open without a `rest`."""
    if command.to is not StartKind.POSITIONS or command.rest is not None:
        return None
    named, older, newer = _lines(topic, command)
    left = [
        part.partition
        for part in topic.layout.partitions
        if part.partition not in named and part.partition not in older and part.partition not in newer
    ]
    if not left:
        return None
    return invalid(
        f"partitions {listed(left, NAMED)} have nothing to do with the positions; name them, or say where "
        "the rest begins (EARLIEST, LATEST)"
    )


def resolved(topic: Topic, command: SeekCohort) -> CohortStart:
    """Where the incarnation begins."""
    if command.to is not StartKind.POSITIONS:
        return CohortStart(kind=command.to)
    named, older, newer = _lines(topic, command)
    kind = command.rest or StartKind.EARLIEST
    positions = {
        position.partition: position for position in command.positions if position.partition in named
    }
    if kind is StartKind.LATEST:
        for number in newer - named - older:
            positions[number] = CohortPosition(number, 0, Epoch(0))
    return CohortStart(
        kind=kind,
        positions=tuple(positions[number] for number in sorted(positions)),
        finished=tuple(sorted(older - named)),
    )


def _lines(
    topic: Topic, command: SeekCohort
) -> tuple[frozenset[PartitionId], frozenset[PartitionId], frozenset[PartitionId]]:
    """Partitions of the layout that are named, their ancestors, and their descendants."""
    parts = topic.layout.by_id()
    numbers = [position.partition for position in command.positions]
    named = frozenset(number for number in numbers if number in parts)
    pruned = {number for number in numbers if number not in parts}
    gone = {} if topic.gone is UNSET else topic.gone
    born = frozenset(
        child
        for child, parents in gone.items()
        if child in parts and any(parent.partition in pruned for parent in parents)
    )
    newer = descendants(parts, named) | born | descendants(parts, born)
    return named, ancestors(parts, named), newer

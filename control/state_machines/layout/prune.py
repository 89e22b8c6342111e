"""Choose sealed partitions that may leave the layout: what the metadata forbids, and what owners tell.

An owner tells of a sealed partition that retention has emptied it, and that no open stage is in it. Both
stay so: a sealed log takes neither rows nor stages. Parents go before their children (L8), so the lineage
shortens from its old end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.layout_commands import PrunePartitions
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.drained import is_overdue, registered_readers
from ringfence.control.state_machines.metadata.prune_checks import PRUNES_MAX, open_sources, part_fault

# Time between two rounds of a leader.
PRUNE_INTERVAL_MS: Final = 10_000


class SealedFigures(NamedTuple):
    """What the owner of a sealed partition tells of its log."""

    start_offset: int
    end_offset: int
    stages: int


class Candidate(NamedTuple):
    """A sealed partition that the metadata allows to prune, and the owner to ask."""

    topic: TopicId
    partition: PartitionId
    owner: Replica


def candidates(state: MetadataState, time_ms: int) -> Iterator[Candidate]:
    """Sealed partitions whose owners are asked; `time_ms` is the time that a proposal would have now."""
    state = replace(state, time_ms=max(state.time_ms, time_ms))
    busy = open_sources(state)
    for number, topic in state.topics.items():
        if topic.seals is UNSET:
            continue
        readers = registered_readers(state, number)
        for part in topic.layout.partitions:
            may_go = not part.is_active and not part.parents
            if may_go and part_fault(state, topic, part, busy, readers) is None:
                yield Candidate(number, part.partition, topic.assignments[part.partition].owner)


def due(
    state: MetadataState, figures: Mapping[PartitionId, SealedFigures], time_ms: int
) -> tuple[PrunePartitions, ...]:
    """The entries for candidates whose owners have told that nothing is left in them."""
    timed = replace(state, time_ms=max(state.time_ms, time_ms))
    by_topic: dict[TopicId, list[PartitionId]] = {}
    for topic, partition, _ in candidates(state, time_ms):
        told = figures.get(partition)
        if told is None or told.start_offset < told.end_offset:
            continue
        if told.stages and not is_overdue(timed, topic, partition):
            continue  # a writer may still move these rows to the children
        by_topic.setdefault(topic, []).append(partition)
    return tuple(
        PrunePartitions(topic=topic, partitions=tuple(sorted(parts)[:PRUNES_MAX]))
        for topic, parts in sorted(by_topic.items())
    )

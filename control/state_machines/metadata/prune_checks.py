"""Check that SEALED partitions may leave the layout.

Parents go first (L8): a reader that begins with the newest layout sees a partition and its descendants, and
needs every generation in between to know their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_commands import PrunePartitions
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata import drained
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.layout_checks import waiting_scope
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, unknown_topic
from ringfence.native.wire import Code

# Partitions of one PrunePartitions.
PRUNES_MAX: Final = 1_024


def prune_fault(state: MetadataState, command: PrunePartitions) -> Refused | None:
    """Check what the metadata knows. That the log is empty, and without open stages, its owner has told: both
    are so for good.
    """
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    count = len(command.partitions)
    if not 0 < count <= PRUNES_MAX or len({*command.partitions}) != count:
        return invalid(f"{count} partitions to prune: 1 to {PRUNES_MAX}, each once")
    parts = topic.layout.by_id()
    busy, readers = open_sources(state), drained.registered_readers(state, command.topic)
    for number in command.partitions:
        part = parts.get(number)
        if part is None:
            message = f"topic {topic.name!r} has no partition {number}; it may have been pruned before"
            return Refused(code=Code.UNKNOWN_PARTITION, message=message)
        fault = part_fault(state, topic, part, busy, readers)
        if fault is not None:
            return fault
    return None


def open_sources(state: MetadataState) -> set[PartitionId]:
    """Sources of all transitions that are not finalized."""
    return {source for transition in state.transitions.values() for source in transition.sources}


def part_fault(
    state: MetadataState,
    topic: Topic,
    part: Partition,
    busy: set[PartitionId],
    readers: Sequence[drained.RegisteredReader],
) -> Refused | None:
    """The refusal to prune one partition; `busy` are the `open_sources`, `readers` those of the topic."""
    number, seal = part.partition, topic.seal(part.partition)
    if part.is_active or seal is None:
        return invalid(f"partition {number} is ACTIVE; only SEALED ones are pruned")
    if part.parents:
        return conflict(f"partition {number}: its parents {listed(part.parents, 8)} are pruned before it")
    if number in busy:
        return conflict(f"partition {number} is a source of a layout change that is not finalized")
    if number in state.changes or state.leftovers.get(number):
        return conflict(f"partition {number} is in an open change, or a store has a step of one left")
    keep_ms, age_ms = limit(state, "resolve_keep_s") * 1_000, state.time_ms - seal.sealed_ms
    if age_ms < keep_ms:
        return conflict(
            f"partition {number} was sealed {age_ms} ms ago; clients may ask for outcomes for {keep_ms} ms "
            "(`resolve_keep_s`)"
        )
    if not drained.is_drained(state, topic.topic, number, readers=readers):
        names = listed(drained.holders(state, topic.topic, number, readers=readers), 8)
        return conflict(f"partition {number}: registered readers {names} are not through it")
    scope = waiting_scope(state, {number})
    if scope is not None:
        return conflict(
            f"partition {number}: rows that scope {scope!r} has committed wait for their publish there"
        )
    return None

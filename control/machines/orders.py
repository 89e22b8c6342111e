"""What a node has to do after the metadata changed. Pure: two states in, orders out.

    InstallTopic -> OpenPartition, TruncatePartition -> InstallTable     a topic that is new, or changed
    RemoveTopic -> DropPartition -> (the runtime proposes ConfirmDropped) a topic that was deleted

Phases run one after the other, the orders of one phase at once. A table comes last: who reads it finds its
partitions open. Only a tombstone that names this store gives a DropPartition (I16).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Tombstone, Topic


class InstallTopic(msgspec.Struct, frozen=True):
    topic: Topic

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Indexes of the key's columns.

        Later schemas only add columns behind, so the first one's indexes hold.
        """
        places = {column.name: place for place, column in enumerate(self.topic.schemas[0].columns)}
        return tuple(places[name] for name in self.topic.key)


class OpenPartition(msgspec.Struct, frozen=True):
    topic: TopicId
    partition: PartitionId
    slots: SlotRange
    epoch: Epoch


class TruncatePartition(msgspec.Struct, frozen=True):
    topic: TopicId
    partition: PartitionId
    before_offset: int


class InstallTable(msgspec.Struct, frozen=True):
    topic: Topic


class RemoveTopic(msgspec.Struct, frozen=True):
    topic: TopicId


class DropPartition(msgspec.Struct, frozen=True):
    topic: TopicId
    partition: PartitionId


Order = InstallTopic | OpenPartition | TruncatePartition | InstallTable | RemoveTopic | DropPartition
Phases = tuple[tuple[Order, ...], ...]


def between(before: MetadataState, after: MetadataState, here: Replica) -> Phases:
    """The orders that bring the node at `here` from `before` to `after`; empty phases are left out."""
    if before is after:
        return ()
    moved = before.nodes != after.nodes  # tables name the nodes' addresses
    phases: list[list[Order]] = [[], [], []]
    for number, topic in after.topics.items():
        old = before.topics.get(number)
        if old is not topic or moved:
            _topic_orders(old, topic, here, phases)
    for number, tombstone in after.tombstones.items():
        if before.tombstones.get(number) is not tombstone and here.store in tombstone.holders:
            if number in before.topics:
                phases[0].append(RemoveTopic(topic=number))
            phases[1] += _drops(tombstone)
    return tuple(tuple(phase) for phase in phases if phase)


def dropped_topics(phases: Phases) -> frozenset[TopicId]:
    """The deleted topics that the phases give back the space of."""
    return frozenset(order.topic for phase in phases for order in phase if isinstance(order, DropPartition))


def _topic_orders(old: Topic | None, topic: Topic, here: Replica, phases: list[list[Order]]) -> None:
    if old is None or old.schemas != topic.schemas:
        phases[0].append(InstallTopic(topic=topic))
    for partition in topic.layout.active():
        assignment = topic.assignments[partition.partition]
        known = None if old is None else old.assignments.get(partition.partition)
        if assignment.owner == here and (known is None or known.epoch != assignment.epoch):
            order = OpenPartition(
                topic=topic.topic,
                partition=partition.partition,
                slots=partition.slots,
                epoch=assignment.epoch,
            )
            phases[1].append(order)
    phases[2] += _truncations(old, topic, here)
    phases[2].append(InstallTable(topic=topic))


def _truncations(old: Topic | None, topic: Topic, here: Replica) -> Iterator[Order]:
    for partition, start in sorted(topic.starts.items()):
        raised = old is None or old.starts.get(partition, 0) < start
        if raised and topic.assignments[partition].owner == here:
            yield TruncatePartition(topic=topic.topic, partition=partition, before_offset=start)


def _drops(tombstone: Tombstone) -> Iterator[Order]:
    for partition in tombstone.partitions:
        yield DropPartition(topic=tombstone.topic, partition=partition)

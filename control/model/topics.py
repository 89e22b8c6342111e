"""A topic, and the tombstone that it leaves."""

from __future__ import annotations

import msgspec

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, ProducerId, TopicId
from ringfence.control.model.layout import Layout
from ringfence.control.model.schemas import SchemaVersion


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """A place of a partition.

    The store is named beside the node: with another disk it holds nothing of it.
    """

    node: NodeId
    store: bytes


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a partition. The owner is one of the replicas; `epoch` is the index that made it owner."""

    owner: Replica
    epoch: Epoch
    replicas: tuple[Replica, ...]


class Topic(msgspec.Struct, frozen=True):
    """One topic. `starts` are log starts that were ordered: offsets below them are gone for readers.

    `start_epochs` are the owner epochs that they were ordered under. After a choice without a majority, rows
    of later epochs may have the same offsets: a start is not about them. `forced` has the newest owner epoch
    of each partition that was such a choice.
    """

    topic: TopicId
    name: str
    key: tuple[str, ...]
    schemas: tuple[SchemaVersion, ...]
    layout: Layout
    assignments: dict[PartitionId, Assignment]
    replication: int
    retention_bytes: int | None
    retention_ms: int | None
    properties: dict[str, str]
    starts: dict[PartitionId, int]
    changed: Index
    start_epochs: dict[PartitionId, Epoch] | msgspec.UnsetType = msgspec.UNSET
    forced: dict[PartitionId, Epoch] | msgspec.UnsetType = msgspec.UNSET

    def start_epoch(self, partition: PartitionId) -> Epoch:
        """0 where the start is from a time before epochs were kept: it is about rows of every epoch."""
        known = self.start_epochs
        return Epoch(0) if known is msgspec.UNSET else known.get(partition, Epoch(0))

    def forced_epoch(self, partition: PartitionId) -> Epoch:
        """0 where no choice without a majority is known; choices below level 1 are not kept."""
        return Epoch(0) if self.forced is msgspec.UNSET else self.forced.get(partition, Epoch(0))


class NamedProducer(msgspec.Struct, frozen=True, array_like=True):
    """The id stays with the name; each open draws a higher epoch, which fences the one before."""

    producer: ProducerId
    epoch: Epoch


class Tombstone(msgspec.Struct, frozen=True):
    """A deleted topic.

    Only partitions named here may be dropped, and only by stores that are still listed.
    """

    topic: TopicId
    name: str
    partitions: tuple[PartitionId, ...]
    holders: tuple[bytes, ...]
    deleted: Index

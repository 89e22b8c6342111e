"""Topics, and the tombstones of deleted ones."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, ProducerId, TopicId
from ringfence.control.model.layout import Layout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.schemas import SchemaVersion


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """A place of a partition: a node and its store. The node with another store holds no rows of it."""

    node: NodeId
    store: bytes


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """The replicas of a partition. The owner is one of them; `epoch` is the index that made it the owner."""

    owner: Replica
    epoch: Epoch
    replicas: tuple[Replica, ...]


class Seal(msgspec.Struct, frozen=True, array_like=True):
    """The end of a SEALED partition: it has exactly these records, permanently (I3).

    `sealed_ms` is the cluster's time at the COMMIT. `lowered` is the index of the newest entry by which an
    operator accepted a smaller end; 0: there is none.
    """

    end: LogEnd
    sealed_ms: int
    lowered: Index = Index(0)


class PrunedParent(msgspec.Struct, frozen=True, array_like=True):
    """A parent that was pruned, and the offset at which it ended: a reader that had finished it knows so."""

    partition: PartitionId
    offset: int


class Topic(msgspec.Struct, frozen=True):
    """One topic. `starts` are log starts that were ordered: offsets below them are gone for readers.

    `start_epochs` are the owner epochs that they were ordered under. After a choice without a majority,
    rows of later epochs may have the same offsets: a start does not apply to them. `forced` has the newest
    owner epoch of each partition that was such a choice. `seals` are those of the SEALED partitions, `gone`
    the pruned parents of each partition; both come with the first layout change.
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
    seals: dict[PartitionId, Seal] | msgspec.UnsetType = msgspec.UNSET
    gone: dict[PartitionId, tuple[PrunedParent, ...]] | msgspec.UnsetType = msgspec.UNSET

    def start_epoch(self, partition: PartitionId) -> Epoch:
        """The epoch of a log start. 0: the start was ordered before epochs were kept, and applies to rows of
        every epoch.
        """
        epochs = self.start_epochs
        return Epoch(0) if epochs is msgspec.UNSET else epochs.get(partition, Epoch(0))

    def forced_epoch(self, partition: PartitionId) -> Epoch:
        """The newest forced epoch; 0: none is known. Choices below level 1 are not recorded."""
        return Epoch(0) if self.forced is msgspec.UNSET else self.forced.get(partition, Epoch(0))

    def seal(self, partition: PartitionId) -> Seal | None:
        """The seal of a SEALED partition; None of an ACTIVE one."""
        return None if self.seals is msgspec.UNSET else self.seals.get(partition)

    def pruned_parents(self, partition: PartitionId) -> tuple[PrunedParent, ...]:
        """Parents of the partition that are not in the layout any more."""
        return () if self.gone is msgspec.UNSET else self.gone.get(partition, ())


class NamedProducer(msgspec.Struct, frozen=True, array_like=True):
    """The id stays with the name; each open draws a higher epoch, which fences the one before."""

    producer: ProducerId
    epoch: Epoch


class ProducerRule(IntEnum):
    """How sends of a named producer choose partitions in a topic without key.

    The entry that creates the name draws it, from the level of layout changes on. NONE: the topic has a key,
    or the name is older.
    """

    NONE = 0
    LINE = 1
    SPREAD = 2


class Tombstone(msgspec.Struct, frozen=True):
    """A deleted topic. Only partitions named here may be dropped, and only by the stores in `holders`."""

    topic: TopicId
    name: str
    partitions: tuple[PartitionId, ...]
    holders: tuple[bytes, ...]
    deleted: Index

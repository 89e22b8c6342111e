"""The layout of a topic: the immutable DAG of its partitions."""

from __future__ import annotations

import msgspec

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.ranges import SlotRange


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """A slot range of one topic. SEALED once `sealed_version` is not 0, and then for ever (I3)."""

    partition: PartitionId
    slots: SlotRange
    created_version: int
    sealed_version: int = 0
    parents: tuple[PartitionId, ...] = ()
    children: tuple[PartitionId, ...] = ()

    @property
    def is_active(self) -> bool:
        return self.sealed_version == 0

    @property
    def name(self) -> str:
        return f"{self.slots.lo:04x}-{self.slots.hi:04x}-{self.partition}"


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """`version` counts changes of the ACTIVE set. Partitions are ordered by their ids."""

    version: int
    partitions: tuple[Partition, ...]

    def active(self) -> tuple[Partition, ...]:
        """The ACTIVE partitions in the order of their slots; they tile all slots (I1)."""
        return tuple(sorted((p for p in self.partitions if p.is_active), key=lambda p: p.slots.lo))

    def find(self, partition: int) -> Partition | None:
        return next((p for p in self.partitions if p.partition == partition), None)

"""The layout of a topic: the immutable DAG of its partitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

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

    def by_id(self) -> dict[PartitionId, Partition]:
        """The partitions by their ids, for callers that look for many."""
        return {part.partition: part for part in self.partitions}

    def replaced(
        self, sources: Collection[PartitionId], children: Sequence[tuple[PartitionId, SlotRange]]
    ) -> Layout:
        """The next version: the sources are SEALED, the children ACTIVE (I2).

        Parents of a child are the sources that have slots of it.
        """
        version, named = self.version + 1, {*sources}
        sealed = sorted(
            (part for part in self.partitions if part.partition in named), key=lambda part: part.slots
        )
        assert len(sealed) == len(sources), f"I3: sources {sorted(sources)} are not all in the layout"
        assert all(part.is_active for part in sealed), f"I3: one of {sorted(sources)} is already SEALED"
        made = sorted(children, key=lambda child: child[1])
        heirs = overlaps([part.slots for part in sealed], [slots for _, slots in made])
        parents = overlaps([slots for _, slots in made], [part.slots for part in sealed])
        assert joined([part.slots for part in sealed]) == joined([slots for _, slots in made]), (
            f"I1: children do not tile the slots of {sorted(sources)}"
        )
        changed = {
            part.partition: replace(
                part, sealed_version=version, children=tuple(made[place][0] for place in places)
            )
            for part, places in zip(sealed, heirs, strict=True)
        }
        added = [
            Partition(
                partition=number,
                slots=slots,
                created_version=version,
                parents=tuple(sealed[place].partition for place in places),
            )
            for (number, slots), places in zip(made, parents, strict=True)
        ]
        kept = (changed.get(part.partition, part) for part in self.partitions)
        # Changes are prepared in one order and may be committed in another.
        partitions = sorted((*kept, *added), key=attrgetter("partition"))
        return Layout(version=version, partitions=tuple(partitions))

    def pruned(self, gone: Collection[PartitionId]) -> Layout:
        """The same version without these SEALED partitions, whose own parents are gone (L8)."""
        kept = []
        for part in self.partitions:
            if part.partition not in gone:
                parents = tuple(parent for parent in part.parents if parent not in gone)
                kept.append(part if parents == part.parents else replace(part, parents=parents))
            else:
                assert not part.is_active, f"I3: partition {part.partition} is ACTIVE, it cannot be pruned"
                assert not part.parents, f"L8: parents of partition {part.partition} are not pruned"
        return Layout(version=self.version, partitions=tuple(kept))


def joined(ranges: Sequence[SlotRange]) -> list[SlotRange]:
    """Ranges in their order, with each one that begins where the one before ends joined to it."""
    found: list[SlotRange] = []
    for lo, hi in ranges:
        if found and found[-1].hi + 1 == lo:
            found[-1] = SlotRange(found[-1].lo, hi)
        else:
            found.append(SlotRange(lo, hi))
    return found


def overlaps(ranges: Sequence[SlotRange], others: Sequence[SlotRange]) -> list[list[int]]:
    """For each of the ranges the places of the others with a slot of it. Both ascend and are disjoint."""
    found: list[list[int]] = []
    first = 0
    for lo, hi in ranges:
        while first < len(others) and others[first].hi < lo:
            first += 1
        place, places = first, list[int]()
        while place < len(others) and others[place].lo <= hi:
            places.append(place)
            place += 1
        found.append(places)
    return found

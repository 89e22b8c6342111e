"""The slots of a topic's partitions in one routing table, as the queues of a producer need them. Pure.

Two partitions of one topic are related exactly if their slots overlap and they are not both ACTIVE: then the
one that is not ACTIVE is an ancestor. So slots decide what waits for what, and no list of parents is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.native.wire import SLOT_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ringfence.common.routing import Layout

Slots = tuple[int, int]
"""First and last slot."""
ALL_SLOTS: Slots = (0, SLOT_COUNT - 1)


def overlap(one: Slots, other: Slots) -> bool:
    """Whether two ranges of slots have a slot in common."""
    return one[0] <= other[1] and other[0] <= one[1]


@dataclass(frozen=True, slots=True)
class Routes:
    """Partitions of one table with their slots. A partition that was pruned is in neither map."""

    version: int = 0
    active: Mapping[int, Slots] = field(default_factory=dict)
    sealed: Mapping[int, Slots] = field(default_factory=dict)

    def slots_of(self, partition: int) -> Slots:
        """The slots of a partition; all of them if the table does not name it."""
        return self.active.get(partition) or self.sealed.get(partition, ALL_SLOTS)

    def heirs(self, slots: Slots) -> Iterator[int]:
        """ACTIVE partitions that have some of these slots."""
        return (partition for partition, own in self.active.items() if overlap(own, slots))


def routes_of(layout: Layout) -> Routes:
    """The slots of a layout's partitions."""
    active = {entry.partition: (entry.lo, entry.hi) for entry in layout.active}
    sealed = {
        entry.partition: (entry.lo, entry.hi)
        for entry in layout.partitions.values()
        if entry.partition not in active
    }
    return Routes(layout.version, active, sealed)

"""Find partitions whose load is one slot's: the sketch of an owner shows that a split does not help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.ranges import SlotRange
from ringfence.control.state_machines.layout.plan import BUCKETS, cut_slots, weight_of

# Share of the weight on the better side of a cut from which on one bucket is heavy, in percent.
HEAVY_PERCENT: Final = 80


class Sketch(NamedTuple):
    """What the owner of a partition answers: weights of equal parts of its slots. Empty: it has none."""

    weights: tuple[int, ...] = ()


class HotKey(NamedTuple):
    """One slot that takes `percent` of the rows of a partition."""

    partition: PartitionId
    slot: int
    percent: int

    def __str__(self) -> str:
        share = f"slot {self.slot:#06x} takes {self.percent} % of partition {self.partition}"
        return f"{share}: splitting does not help"


def hot_key(partition: PartitionId, slots: SlotRange, weights: Sequence[int]) -> HotKey | None:
    """The slot that makes a split useless; None if a split helps, or narrows the range around a heavy bucket.

    Of a range of at most 1,024 slots a bucket is one slot. A partition of one slot cannot be split at all.
    """
    size = slots.hi - slots.lo + 1
    if size == 1:
        return HotKey(partition, slots.lo, 100)
    total = sum(weights)
    if not total or size > min(len(weights), BUCKETS):
        return None
    [cut] = cut_slots(slots, 2, weights)
    left = weight_of(slots, SlotRange(slots.lo, cut - 1), weights)
    if max(left, total - left) * 100 <= HEAVY_PERCENT * total:
        return None
    heavy = max(range(len(weights)), key=lambda bucket: (weights[bucket], -bucket))
    return HotKey(partition, slots.lo - (-heavy * size // len(weights)), weights[heavy] * 100 // total)

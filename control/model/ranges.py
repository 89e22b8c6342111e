"""Inclusive slot ranges, and how they tile the slots (I1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ringfence.native.wire import SLOT_COUNT

SLOT_LAST: Final = SLOT_COUNT - 1


class SlotRange(NamedTuple):
    """Slots `lo` to `hi`, both included."""

    lo: int
    hi: int


def tile(count: int) -> tuple[SlotRange, ...]:
    """`count` ranges that differ by one slot at most and tile all slots. ValueError unless 1..65536."""
    if not 1 <= count <= SLOT_COUNT:
        raise ValueError(f"{count} partitions: 1 to {SLOT_COUNT}")
    bounds = [part * SLOT_COUNT // count for part in range(count + 1)]
    return tuple(SlotRange(lo, end - 1) for lo, end in pairwise(bounds))


def gap(ranges: Sequence[tuple[int, int]]) -> str | None:
    """The reason that ranges, in their order, do not tile 0..65535 exactly; None if they do."""
    expected = 0
    for lo, hi in ranges:
        if lo != expected or hi < lo:
            return f"range {lo}..{hi} stands where slot {expected} must begin"
        expected = hi + 1
    return None if expected == SLOT_COUNT else f"slots {expected}..{SLOT_LAST} are in no range"


class SlotCover:
    """A set of slots that grows by ranges, which may overlap."""

    def __init__(self) -> None:
        # Disjoint, ascending, and no two of them adjacent.
        self._ranges: list[SlotRange] = []

    def add(self, ranges: Iterable[SlotRange]) -> None:
        whole: list[SlotRange] = []
        for lo, hi in sorted((*self._ranges, *ranges)):
            if whole and lo <= whole[-1].hi + 1:
                whole[-1] = SlotRange(whole[-1].lo, max(hi, whole[-1].hi))
            else:
                whole.append(SlotRange(lo, hi))
        self._ranges = whole

    def has(self, slots: SlotRange) -> bool:
        """Whether all of these slots are in the set."""
        place = bisect_right(self._ranges, SlotRange(slots.lo, SLOT_LAST)) - 1
        return place >= 0 and self._ranges[place].lo <= slots.lo and slots.hi <= self._ranges[place].hi

    def missing(self, slots: SlotRange) -> list[SlotRange]:
        """The parts of these slots that are not in the set, ascending."""
        found, lo = [], slots.lo
        for first, last in self._ranges:
            if first > slots.hi:
                break
            if lo < first:
                found.append(SlotRange(lo, first - 1))
            lo = max(lo, last + 1)
        if lo <= slots.hi:
            found.append(SlotRange(lo, slots.hi))
        return found

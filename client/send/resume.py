"""Where the predecessor of a producer's name ended: its resume points, by slot. Pure.

A point says that of the slots `lo` to `hi` everything up to its `send` is stored: batches of a name are
stored in the order of their numbers in each slot, and nothing is stored after a send that is not.

A topic without a key has no slots of rows, so a send has a slot (docs/design/producer_cuts.md, K1 to K10):
    line     that of the name: all sends are in one partition, in order
    spread   that of the number: any process puts the n-th send into the same slot
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import UnsetType

from ringfence.native.slots import xxh64
from ringfence.native.wire import SLOT_COUNT, SLOT_SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from ringfence.common.routes import Slots
    from ringfence.native.messages import ResumePoint

SLOT_SHIFT: Final = 48
# 2^64 divided by the golden ratio: successive numbers are far apart.
MULTIPLIER: Final = 0x9E37_79B9_7F4A_7C15
MASK: Final = (1 << 64) - 1
# Numbers that are looked at together.
STEP: Final = 4096


class Rule(IntEnum):
    """How sends of a name choose partitions in a topic without a key.

    NONE: the topic has a key, or the name is older than the rules, and its sends choose as those without a
    name.
    """

    NONE = 0
    LINE = 1
    SPREAD = 2


class ResumeFrom(NamedTuple):
    """Everything up to this send is stored. `note`: that of the send."""

    send: int
    note: bytes | None


def send_slot(number: int) -> int:
    """The slot of a send of a spread name."""
    return (number * MULTIPLIER & MASK) >> SLOT_SHIFT


def name_slot(name: str) -> int:
    """The slot of all sends of a line name: that of a text key with the value of the name."""
    return xxh64(name.encode(), SLOT_SEED) >> SLOT_SHIFT


def slot_of_send(rule: Rule, name: str | None) -> Callable[[int], int] | None:
    """The slot of a send by its number; None: rows, or nothing, choose the partition."""
    if rule is Rule.SPREAD:
        return send_slot
    if rule is Rule.LINE and name is not None:
        slot = name_slot(name)
        return lambda _: slot
    return None


class ResumePoints:
    """The points of one open. `points`: each with its slots, in the order of slots."""

    def __init__(self, points: Iterable[ResumePoint], slots_of: Callable[[int], Slots]) -> None:
        """`slots_of`: the slots of a partition, for points without slots."""
        ranged = [(_slots(point, slots_of), point) for point in points]
        ranged.sort(key=lambda one: one[0])
        self.points = tuple(ranged)
        self.sends: NDArray[np.uint64] = np.zeros(SLOT_COUNT, np.uint64)
        for (lo, hi), point in ranged:
            self.sends[lo : hi + 1] = point.send
        self.greatest = max((point.send for _, point in ranged), default=0)

    @property
    def by_partition(self) -> Mapping[int, ResumePoint]:
        """Partition -> its point; of several ranges the one with the least send."""
        found: dict[int, ResumePoint] = {}
        for _, point in self.points:
            known = found.get(point.partition)
            if known is None or point.send < known.send:
                found[point.partition] = point
        return found

    def point_of(self, slot: int) -> ResumePoint | None:
        """The point that has the slot."""
        return next((point for (lo, hi), point in self.points if lo <= slot <= hi), None)

    def has_stored(self, number: int, slot: int) -> bool:
        """K8: whether the rows of this send with this slot are stored."""
        return number <= int(self.sends[slot])

    def has_everywhere(self, number: int) -> bool:
        """Whether a send is stored, whichever slots have its rows."""
        return number <= int(self.sends.min())

    @property
    def is_even(self) -> bool:
        """Whether all slots have one point, so that nothing after it is stored."""
        return int(self.sends.min()) == self.greatest

    def least(self) -> ResumePoint | None:
        """The point with the least send; None if a slot has no point."""
        if not self.points or int(self.sends.min()) == 0:
            return None
        return min((point for _, point in self.points), key=lambda point: point.send)

    def spread_end(self) -> int:
        """K9: the greatest number up to which every send of a spread name is stored."""
        end = int(self.sends.min())
        while True:
            numbers = np.arange(end + 1, end + 1 + STEP, dtype=np.uint64)
            slots = (numbers * np.uint64(MULTIPLIER)) >> np.uint64(SLOT_SHIFT)
            missing = np.flatnonzero(numbers > self.sends[slots])
            if len(missing):
                return end + int(missing[0])
            end += STEP

    def resume_from(self, rule: Rule, name: str | None, *, has_key: bool) -> ResumeFrom | None:
        """K9: the last send up to which everything is stored; None: not known, or nothing is stored."""
        point: ResumePoint | None = None
        if rule is Rule.LINE and name is not None:
            point = self.point_of(name_slot(name))
        elif rule is Rule.SPREAD:
            end = self.spread_end()
            whole = [one for _, one in self.points if one.send <= end]
            point = max(whole, key=lambda one: one.send, default=None)
        elif has_key or self.is_even:
            point = self.least()
        return None if point is None else ResumeFrom(point.send, point.note)


def _slots(point: ResumePoint, slots_of: Callable[[int], Slots]) -> Slots:
    lo, hi = slots_of(point.partition)
    return _bound(point.lo, lo), _bound(point.hi, hi)


def _bound(given: int | UnsetType, otherwise: int) -> int:
    return otherwise if isinstance(given, UnsetType) else given

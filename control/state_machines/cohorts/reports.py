"""Tell again what a receiver does not have yet: level-triggered, without a poll and without a flood.

A node derives from its own log and its gates what is true and not in the metadata yet. `ProgressReports`
says which of it to send now: what is new after 100 ms, so that it goes in few messages, then after a second,
then every 5 s, until it is not missing any more. What is lost, or meets a leader that ends, comes again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

GATHER_MS: Final = 100
AGAIN_MS: Final = 1_000
INTERVAL_MS: Final = 5_000

Item = TypeVar("Item", bound=Hashable)


class ProgressReports(Generic[Item]):
    """Items that a node tells. Times are in ms of one monotonic clock; the class reads no clock."""

    def __init__(self) -> None:
        # For each item the time of its next report and the number of reports.
        self._next: dict[Item, tuple[int, int]] = {}

    def due(self, missing: Iterable[Item], now_ms: int) -> tuple[Item, ...]:
        """The items to send now, of all that the metadata does not have, in their order."""
        after: dict[Item, tuple[int, int]] = {}
        sent: list[Item] = []
        for item in missing:
            at_ms, count = self._next.get(item, (now_ms + GATHER_MS, 0))
            if at_ms <= now_ms:
                sent.append(item)
                at_ms, count = now_ms + (AGAIN_MS if count == 0 else INTERVAL_MS), count + 1
            after[item] = (at_ms, count)
        self._next = after
        return tuple(sent)

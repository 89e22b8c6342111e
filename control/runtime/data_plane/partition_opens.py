"""Remember the epochs under which partitions are open, and wake those who wait for an opening."""

from __future__ import annotations

import asyncio
import math
import time

from ringfence.control.model.ids import Epoch, PartitionId, TopicId

Key = tuple[TopicId, PartitionId]


class PartitionOpens:
    """Openings of one process, from the ends of its orders. All methods run on the loop's thread."""

    def __init__(self) -> None:
        # One entry for each partition that this process has opened and not dropped since.
        self._epochs: dict[Key, Epoch] = {}
        self._changed = asyncio.Event()
        # Monotonic time of the last opening, in seconds.
        self.last_s = -math.inf

    def opened(self, key: Key, epoch: Epoch) -> None:
        self._epochs[key], self.last_s = epoch, time.monotonic()
        # Those who wait take the old event; the next ones wait for the next opening.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def dropped(self, key: Key) -> None:
        self._epochs.pop(key, None)

    def epoch(self, key: Key) -> Epoch:
        """The epoch of the last opening; 0 without one."""
        return self._epochs.get(key, Epoch(0))

    async def until_opened(self, timeout_s: float) -> None:
        """Wait for the next opening of any partition, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

"""Timers of the I/O thread, and the decision to let small messages collect before a turn."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ringfence.network.peer import Peer

# Unanswered requests from which the thread waits to collect more. With fewer, a caller may be blocked on the
# next answer.
MODERATE_FROM = 16
# Average size of such requests. Larger ones keep both sides busy with their bytes.
MODERATE_BYTES_MAX = 65536
# A quarter of the time that a window of 64 takes at 15,000 sends a second.
MODERATE_S = 0.002


class Scheduler:
    """Functions to call at a time of `time.monotonic`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()  # keeps functions of one time in order

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, function: Callable[[], object]) -> None:
        """Call a function at a time."""
        heapq.heappush(self._heap, (when, next(self._numbers), function))

    @property
    def next_at(self) -> float:
        """Time of the next function; there must be one."""
        return self._heap[0][0]

    def due(self, now: float) -> Iterator[Callable[[], object]]:
        """Take the functions whose time has come, one by one, including those that they add."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]

    def take_all(self) -> list[Callable[[], object]]:
        """Take all functions that are there now, in no particular order."""
        taken, self._heap = self._heap, []
        return [function for _, _, function in taken]

    def clear(self) -> None:
        """Drop all functions."""
        self._heap.clear()


def should_collect(peers: Iterable[Peer]) -> bool:
    """Whether many small answers are expected, so that a short pause saves turns."""
    connections = [peer.connection for peer in peers if peer.connection is not None]
    unanswered = sum(map(len, connections))
    if unanswered < MODERATE_FROM:
        return False
    return sum(one.unanswered_bytes for one in connections) <= unanswered * MODERATE_BYTES_MAX

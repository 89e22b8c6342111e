"""Estimate the cluster's time from its nodes' wall clocks, so that one wrong clock misleads no node. Pure.

    record_clock(node, clock_ms, now_ms)    the leader has received a node's clock
    estimate(clock_ms, live, now_ms)        the leader's estimate, which it sends to all nodes
    record_estimate(time_ms, now_ms)        another node has received the leader's estimate
    window(floor_ms, now_ms)                bounds for the times of records and proposals

`now_ms` is monotonic. The estimate is the lower median of the clocks of live nodes: with three or more nodes
one wrong clock does not move it. With two nodes the earlier clock counts, so time never runs ahead. A node
alone has only its own clock.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ringfence.control.model.ids import NodeId

# Largest distance of a time from the estimate, in ms. Clocks under NTP differ by milliseconds.
OFFSET_MS_MAX: Final = 300_000
# Age at which a received clock is ignored, in ms: its node may have been stopped since. It is three times the
# longest interval of heartbeats.
CLOCK_AGE_MS_MAX: Final = 180_000
# A larger jump ahead of a node's own clock is believed only after `JUMP_HOLD_MS`; both as in
# `core/node/src/runtime/clock.rs`.
JUMP_MS_MAX: Final = 3_600_000
JUMP_HOLD_MS: Final = 600_000


class WallClock:
    """One node's wall clock, without jumps of more than an hour ahead that last less than ten minutes."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None  # wall and monotonic time of the last believed reading
        self._ahead_since_ms: int | None = None

    def read(self, clock_ms: int, now_ms: int) -> int:
        """The believed time, given a reading of both clocks."""
        expected_ms = clock_ms if self._last is None else self._last[0] + now_ms - self._last[1]
        if clock_ms > expected_ms + JUMP_MS_MAX:
            if self._ahead_since_ms is None:
                self._ahead_since_ms = now_ms
            if now_ms - self._ahead_since_ms < JUMP_HOLD_MS:
                return expected_ms
        self._last, self._ahead_since_ms = (clock_ms, now_ms), None
        return clock_ms


class ClusterTime:
    """One node's knowledge of the cluster's time."""

    def __init__(self, here: NodeId) -> None:
        self._here = here
        # Wall clock that a node reported, and the monotonic time of its arrival.
        self._clocks: dict[NodeId, tuple[int, int]] = {}
        # The newest estimate, and the monotonic time of its arrival.
        self._estimate: tuple[int, int] | None = None

    def record_clock(self, node: NodeId, clock_ms: int, now_ms: int) -> None:
        self._clocks[node] = clock_ms, now_ms

    def record_estimate(self, time_ms: int, now_ms: int) -> None:
        self._estimate = time_ms, now_ms

    def estimate(self, clock_ms: int, live: Collection[NodeId], now_ms: int) -> int | None:
        """The leader's estimate from the clocks of most live nodes. Without these the last one continues."""
        live = {*live, self._here}
        self._clocks = {
            node: (reported_ms, at_ms)
            for node, (reported_ms, at_ms) in self._clocks.items()
            if node in live and node != self._here and now_ms - at_ms <= CLOCK_AGE_MS_MAX
        }
        clocks = sorted([clock_ms, *(reported + now_ms - at for reported, at in self._clocks.values())])
        if 2 * len(clocks) > len(live):
            self._estimate = clocks[(len(clocks) - 1) // 2], now_ms
        return self.at(now_ms)

    def at(self, now_ms: int) -> int | None:
        """The cluster's time as far as this node knows it; None before the first estimate."""
        return None if self._estimate is None else self._estimate[0] + now_ms - self._estimate[1]

    def window(self, floor_ms: int, now_ms: int) -> tuple[int, int] | None:
        """Earliest and latest time for a record or proposal; None before the first estimate.

        `floor_ms` is the time of the metadata, which never goes back. It is always allowed: after a start
        with clocks that are years behind, records would otherwise get times that retention counts as old.
        """
        time_ms = self.at(now_ms)
        if time_ms is None:
            return None
        return max(0, time_ms - OFFSET_MS_MAX), max(time_ms + OFFSET_MS_MAX, floor_ms)

    def bounded(self, clock_ms: int, floor_ms: int, now_ms: int) -> int:
        """`clock_ms`, moved into the window; `floor_ms` before the first estimate."""
        window = self.window(floor_ms, now_ms)
        return floor_ms if window is None else max(window[0], min(clock_ms, window[1]))

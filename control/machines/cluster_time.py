"""What time it is by most of the nodes' clocks, so that one wrong clock leads nobody astray. Pure.

    hear(node, clock_ms, now_ms)   a member told its wall clock (the leader hears all)
    lead(...)                      the leader's reckoning, which it tells to all
    told(time_ms, now_ms)          the leader told its reckoning
    stamp(clock_ms, ...)           what this node puts into its proposals
    ahead_ms(clock_ms, now_ms)     how far this node's clock is ahead; below 0: behind

`now_ms` is monotonic. The reckoning is the lower middle one of the clocks: of three or more nodes one wrong
clock does not move it, of two the earlier one counts, and a node alone has its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ringfence.control.model.ids import NodeId

AHEAD_MS_MAX: Final = 300_000
"""How far a stamp may be above the reckoning, as in `core/node/src/cluster_time.rs`."""
HEARD_MS: Final = 60_000
"""An older word of a member's clock does not count: its process may have been stopped since."""


class ClusterTime:
    """One node's."""

    def __init__(self, here: NodeId) -> None:
        self._here = here
        self._clocks: dict[NodeId, tuple[int, int]] = {}
        self._reckoned: tuple[int, int] | None = None

    def hear(self, node: NodeId, clock_ms: int, now_ms: int) -> None:
        self._clocks[node] = clock_ms, now_ms

    def told(self, time_ms: int, now_ms: int) -> None:
        self._reckoned = time_ms, now_ms

    def lead(self, clock_ms: int, members: Collection[NodeId], now_ms: int) -> int | None:
        """The cluster's time, once most members were heard; before that it goes on from what is known."""
        self._clocks = {
            node: (told_ms, at_ms)
            for node, (told_ms, at_ms) in self._clocks.items()
            if node in members and node != self._here and now_ms - at_ms <= HEARD_MS
        }
        clocks = sorted([clock_ms, *(told + now_ms - at for told, at in self._clocks.values())])
        if 2 * len(clocks) > len(members):
            self._reckoned = clocks[(len(clocks) - 1) // 2], now_ms
        return self.at(now_ms)

    def at(self, now_ms: int) -> int | None:
        """The cluster's time as far as it is known here; None before anything was told."""
        return None if self._reckoned is None else self._reckoned[0] + now_ms - self._reckoned[1]

    def stamp(self, clock_ms: int, floor_ms: int, now_ms: int) -> int:
        """This node's clock, capped; `floor_ms`, the state's time, where nothing was told yet."""
        known = self.at(now_ms)
        return floor_ms if known is None else min(clock_ms, max(known, floor_ms) + AHEAD_MS_MAX)

    def ahead_ms(self, clock_ms: int, now_ms: int) -> int:
        known = self.at(now_ms)
        return 0 if known is None else clock_ms - known

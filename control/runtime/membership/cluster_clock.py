"""Keep a node's time near the cluster's: exchange clocks by heartbeats, and bound times of records.

From level 1 on heartbeats carry clocks. The leader sends its estimate, other nodes send their wall clocks.
Each node gives its engine, and its own proposals, the bounds that follow from the estimate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.health import Health
from ringfence.control.state_machines.membership.cluster_time import OFFSET_MS_MAX, ClusterTime, WallClock

_LOG = structlog.get_logger("ringfence.members")
# Level from which heartbeats carry clocks, and times are bounded.
CLOCK_LEVEL: Final = 1
# Interval of the log line while a start waits for the cluster's time, in seconds.
WAIT_LOG_S: Final = 5.0


class Clocks(NamedTuple):
    """The node's wall clock, and the leader's estimate of the cluster's time; 0: none."""

    clock_ms: int
    time_ms: int


class ClusterClock:
    """One per node; its methods run on the loop."""

    def __init__(self, here: NodeId, health: Health, on_window: Callable[[int, int], None]) -> None:
        """`on_window` gets the earliest and the latest time for records, with each heartbeat."""
        self._here, self._health, self._on_window = here, health, on_window
        self._time, self._wall = ClusterTime(here), WallClock()
        self._known = asyncio.Event()

    def receive_clock(self, node: NodeId, clock_ms: int) -> None:
        """Process the wall clock in a heartbeat to the leader; 0 means unknown."""
        if clock_ms:
            self._time.record_clock(node, clock_ms, _now_ms())

    def receive_estimate(self, time_ms: int) -> None:
        """Process the estimate in a heartbeat from the leader; 0 means unknown."""
        if time_ms:
            self._time.record_estimate(time_ms, _now_ms())

    def update(self, state: MetadataState, *, leads: bool) -> Clocks | None:
        """Bound the engine's times, report a wrong clock; return the clocks for this node's next heartbeats.

        None below the level of clocks: heartbeats carry none.
        """
        if state.level < CLOCK_LEVEL:
            return None
        raw_ms, now_ms = _clock_ms(), _now_ms()
        clock_ms = self._wall.read(raw_ms, now_ms)
        if leads and self._here in state.nodes:
            live = {node for node, record in state.nodes.items() if record.life is Life.LIVE}
            self._time.estimate(clock_ms, live, now_ms)
        time_ms, window = self._time.at(now_ms), self._time.window(state.time_ms, now_ms)
        if time_ms is not None and window is not None:
            self._on_window(*window)
            self._known.set()
            self._report_offset(raw_ms - time_ms)
        return Clocks(clock_ms, (time_ms or 0) if leads else 0)

    def proposal_ms(self, state: MetadataState) -> int:
        """The time of a proposal of this node."""
        clock_ms, now_ms = _clock_ms(), _now_ms()
        if state.level < CLOCK_LEVEL:
            return clock_ms
        clock_ms = self._wall.read(clock_ms, now_ms)
        if len(state.nodes) <= 1:
            return clock_ms
        return self._time.bounded(clock_ms, state.time_ms, now_ms)

    async def until_known(self) -> None:
        """Wait, without a time limit, until the engine has bounds for the times of records."""
        while not self._known.is_set():
            try:
                async with asyncio.timeout(WAIT_LOG_S):
                    await self._known.wait()
            except TimeoutError:
                _LOG.warning("waiting for the cluster's time", why="no estimate from the leader yet")

    def _report_offset(self, offset_ms: int) -> None:
        if abs(offset_ms) <= OFFSET_MS_MAX:
            self._health.clear_reason("clock")
            return
        where = "ahead of" if offset_ms > 0 else "behind"
        self._health.set_reason(
            "clock",
            f"the clock of this node is more than {OFFSET_MS_MAX // 1_000} s {where} the cluster's time, the "
            "median of its nodes' clocks; set the clock, and keep it by NTP. Until then times of rows and "
            f"changes are at most {OFFSET_MS_MAX // 1_000} s off",
        )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000

"""Measure what a rebalance costs: rates and latencies of appends before, during and after each run. Pure.

    RunRates   at each node: counters in, windows of the newest runs out
    combine    the windows of all nodes as one set of figures

Like loads, the figures are soft state: they never enter the log (F35), and a node that starts again has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from ringfence.control.model.rebalances import Run
from ringfence.native.struct_types import prepare_types

# Length of the windows before and after a run.
WINDOW_MS: Final = 5_000
# Upper bounds of the native node's latency buckets; a last bucket has the batches above them.
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
# What a quantile in the last bucket shows.
LATER_MS: Final = 60_000
# Runs with windows: as many as the metadata keeps.
RUNS_MAX: Final = 32

BEFORE, DURING, AFTER = "before", "during", "after"
NAMES: Final = (BEFORE, DURING, AFTER)
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Window(msgspec.Struct, frozen=True, array_like=True):
    """Appends of one node in `ms`. `latencies` counts acknowledged batches by bucket, not cumulated."""

    ms: Number
    rows: Number
    bytes: Number
    batches: Number
    latencies: Annotated[tuple[Number, ...], Meta(max_length=64)]


# Windows of runs by the run's number, and by name; a window that has not begun is left out.
Windows = dict[int, dict[str, Window]]
prepare_types(Windows)


class _Totals(msgspec.Struct, frozen=True):
    """Counters at one time, by the meter's clock."""

    at_ms: int
    counts: tuple[int, int, int]
    latencies: tuple[int, ...]


class RunRates:
    """The windows of one node. `read` takes the counters every second, and when a run begins or ends."""

    def __init__(self) -> None:
        self.windows: Windows = {}
        self._recent: deque[_Totals] = deque()
        # The run whose window grows, the start of the window, and whether the run is over.
        self._run = 0
        self._since: _Totals | None = None
        self._is_over = False

    def read(self, counters: Mapping[str, int], run: Run, now_ms: int) -> None:
        """Add the counters at `now_ms`, of a monotonic clock, to the windows of `run`."""
        now = _totals(counters, now_ms)
        self._grow(now)
        while len(self._recent) > 1 and self._recent[1].at_ms <= now_ms - WINDOW_MS:
            self._recent.popleft()
        if run.is_active and run.run != self._run:
            self._begin(run.run, now)
        elif self._run and not self._is_over and not (run.is_active and run.run == self._run):
            self._since, self._is_over = now, True
        self._recent.append(now)

    def _grow(self, now: _Totals) -> None:
        if self._since is None:
            return
        self.windows[self._run][AFTER if self._is_over else DURING] = _between(self._since, now)
        if self._is_over and now.at_ms - self._since.at_ms >= WINDOW_MS:
            self._since = None

    def _begin(self, run: int, now: _Totals) -> None:
        self._run, self._since, self._is_over = run, now, False
        self.windows[run] = {BEFORE: _between(self._recent[0], now)} if self._recent else {}
        for old in sorted(self.windows)[:-RUNS_MAX]:
            del self.windows[old]


def encode_windows(windows: Windows) -> dict[str, Any]:
    """The windows as a JSON object."""
    return {str(run): dict(named) for run, named in windows.items()}


def decode_windows(value: dict[str, Any]) -> Windows:
    """The reverse of `encode_windows`. Raises msgspec.ValidationError."""
    windows = msgspec.convert(value, Windows, strict=False)
    sizes = {len(window.latencies) for named in windows.values() for window in named.values()}
    if sizes - {len(BOUNDS_MS) + 1}:
        raise msgspec.ValidationError(
            f"latency buckets: {sorted(sizes)}, this program knows {len(BOUNDS_MS) + 1}"
        )
    return windows


def combine(nodes: Iterable[Windows], run: int) -> dict[str, Any] | None:
    """The figures of a run over all nodes that measured it, as JSON values; None if no node did.

    Rates are sums over the nodes. A latency is an upper bound: that of the bucket with the quantile.
    """
    measured = [windows[run] for windows in nodes if windows.get(run)]
    if not measured:
        return None
    figures: dict[str, Any] = {"nodes": len(measured)}
    for name in NAMES:
        windows = [each[name] for each in measured if name in each and each[name].ms]
        figures[name] = _figures(windows) if windows else None
    return figures


def _figures(windows: list[Window]) -> dict[str, Any]:
    latencies = [sum(counts) for counts in zip(*(window.latencies for window in windows), strict=True)]
    return {
        "seconds": round(max(window.ms for window in windows) / 1_000, 1),
        "rows_s": round(sum(1_000 * window.rows / window.ms for window in windows)),
        "bytes_s": round(sum(1_000 * window.bytes / window.ms for window in windows)),
        "batches_s": round(sum(1_000 * window.batches / window.ms for window in windows), 1),
        "p50_ms": _quantile(latencies, 50),
        "p99_ms": _quantile(latencies, 99),
    }


def _quantile(latencies: list[int], percent: int) -> int | None:
    """The bound of the bucket with the quantile (nearest rank); None without batches."""
    total = sum(latencies)
    rank = -(-total * percent // 100)
    bounds = (*BOUNDS_MS, LATER_MS)
    reached = zip(bounds, accumulate(latencies), strict=True)
    return next((bound for bound, count in reached if count >= rank), LATER_MS) if total else None


def _totals(counters: Mapping[str, int], now_ms: int) -> _Totals:
    names = [*(f"acknowledged_{bound}_ms" for bound in BOUNDS_MS), "acknowledged_later"]
    rows, size, batches = (counters.get(name, 0) for name in ("rows", "bytes", "acknowledged"))
    return _Totals(now_ms, (rows, size, batches), tuple(counters.get(name, 0) for name in names))


def _between(one: _Totals, other: _Totals) -> Window:
    rows, size, batches = (after - before for before, after in zip(one.counts, other.counts, strict=True))
    latencies = zip(one.latencies, other.latencies, strict=True)
    return Window(
        other.at_ms - one.at_ms, rows, size, batches, tuple(after - before for before, after in latencies)
    )

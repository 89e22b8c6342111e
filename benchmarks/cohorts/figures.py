"""Receipts of members -> rates, pauses, latencies, redeliveries. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cohorts.receipts import Receipts

STREAM, SERIAL, SENT, RECEIVED, ROWS = range(5)


@dataclass(frozen=True)
class Span:
    """Moments of the monotonic clock, in ns."""

    begin_ns: int
    end_ns: int

    def of(self, receipts: Receipts) -> Receipts:
        """Those that were received in it."""
        times = receipts[:, RECEIVED]
        return receipts[(times >= self.begin_ns) & (times < self.end_ns)]


def rows_per_s(receipts: Receipts, span: Span) -> float:
    """Of the rows received in a span, from its begin to the last one."""
    seen = span.of(receipts)
    return float(seen[:, ROWS].sum() / (seen[:, RECEIVED].max() - span.begin_ns) * 1e9) if len(seen) else 0.0


def latency_ms(receipts: Receipts, span: Span) -> dict[str, float]:
    """From the call of `send` to the application, of what was received in a span."""
    seen = span.of(receipts)
    if not len(seen):
        return {}
    p50, p99 = np.quantile(seen[:, RECEIVED] - seen[:, SENT], [0.5, 0.99]) / 1e6
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}


def gaps_ms(receipts: Receipts, span: Span) -> dict[int, float]:
    """Stream -> the longest time in a span without a message of it."""
    seen = span.of(receipts)
    found = {}
    for stream in np.unique(receipts[:, STREAM]):
        times = np.sort(seen[seen[:, STREAM] == stream][:, RECEIVED])
        edges = np.r_[span.begin_ns, times, span.end_ns]
        found[int(stream)] = float(np.diff(edges).max() / 1e6)
    return found


def pauses_ms(members: Mapping[str, Receipts], span: Span, event_ns: int) -> dict[str, Any]:
    """Longest gap of streams that have the same members before and after an event, and of the others."""
    everything = np.concatenate(list(members.values()))
    gaps = gaps_ms(everything, span)
    before = _readers(members, Span(span.begin_ns - (span.end_ns - span.begin_ns), event_ns))
    after = _readers(members, Span((event_ns + span.end_ns) // 2, span.end_ns))
    kinds: dict[str, list[float]] = {"stays": [], "moves": []}
    for stream, gap in gaps.items():
        kinds["stays" if before.get(stream) == after.get(stream) else "moves"].append(gap)
    return {name: round(max(values), 1) for name, values in kinds.items() if values} | {
        "moved": len(kinds["moves"])
    }


def _readers(members: Mapping[str, Receipts], span: Span) -> dict[int, set[str]]:
    """Stream -> members that received of it."""
    found: dict[int, set[str]] = {}
    for name, receipts in members.items():
        for stream in np.unique(span.of(receipts)[:, STREAM]):
            found.setdefault(int(stream), set()).add(name)
    return found


def received_rows(receipts: Receipts) -> dict[tuple[int, int], int]:
    """(stream, serial) -> rows that were received of it."""
    if not len(receipts):
        return {}
    named, at = np.unique(receipts[:, :2], axis=0, return_inverse=True)
    rows = np.bincount(at.ravel(), receipts[:, ROWS])
    return {
        (int(stream), int(serial)): int(count) for (stream, serial), count in zip(named, rows, strict=True)
    }


def out_of_order(receipts: Receipts) -> int:
    """Messages of a stream that a member received behind a later one, first receipts alone."""
    found = 0
    for stream in np.unique(receipts[:, STREAM]):
        serials = receipts[receipts[:, STREAM] == stream][:, SERIAL]
        first = serials[np.sort(np.unique(serials, return_index=True)[1])]
        found += int((np.diff(first) < 0).sum())
    return found

"""Metadata commits on three local members, fsync included."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.cluster.members import Members
from benchmarks.paths import work_directory

SERIAL_COUNT = 500
PAUSE_S = 0.01
"""Between two commands that come one at a time: the cluster is idle when one comes."""
WINDOW = 64
SECONDS = 5.0
LIMITS = {"p50_ms": 3.0, "p99_ms": 10.0, "per_s": 2_000.0}


def measure(seconds: float = SECONDS, count: int = SERIAL_COUNT) -> dict[str, Any]:
    """Latencies of commands one at a time, and commands a second with a full window, by who proposes."""
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Members(Path(folder)) as members:
        result: dict[str, Any] = {"limits": LIMITS}
        for who in ("leader", "follower"):
            member = getattr(members, who)
            member.ask("serial", count=50, pause_s=0.0)
            took = member.ask("serial", count=count, pause_s=PAUSE_S)["took_ns"]
            cuts = quantiles([ns / 1e6 for ns in took], n=100)
            before = members.cpu_s()
            flow = member.ask("pipelined", window=WINDOW, seconds=seconds)
            used = [after - earlier for after, earlier in zip(members.cpu_s(), before, strict=True)]
            result[who] = {
                "p50_ms": round(cuts[49], 2),
                "p99_ms": round(cuts[98], 2),
                "max_ms": round(max(took) / 1e6, 2),
                "per_s": round(flow["commands"] / flow["seconds"]),
                "cpu_us_a_command": [round(1e6 * s / flow["commands"]) for s in used],
            }
        return result


def held(result: dict[str, Any]) -> bool:
    """Whether the figures are those that were asked for."""
    leader = result["leader"]
    return bool(
        leader["p50_ms"] <= LIMITS["p50_ms"]
        and leader["p99_ms"] <= LIMITS["p99_ms"]
        and leader["per_s"] >= LIMITS["per_s"]
    )

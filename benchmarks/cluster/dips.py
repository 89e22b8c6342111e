"""Full load while one of 24 partitions moves, throttled: rates and waits before, during and after (Z14)."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.cluster.loaded import THROTTLE_BYTES_PER_S, loaded
from benchmarks.cluster.rebalances import rebalanced

PARTITIONS = 24
"""One takes its share of about 1 GB/s: a copy at the throttle is three times as fast, and so it ends."""
RETENTION_BYTES = 192 << 20
"""Of each: 1.3 s of copying at the throttle, and all of it fits a small disk."""
MOVES = 4
PHASE_S = 10.0
REST_S = 1.0
LIMITS = {"dip": 0.20, "p99_ratio": 2.0}


def measure(moves: int = MOVES) -> dict[str, Any]:
    """One producer as fast as it may over all partitions; `moves` of them go to the next node."""
    with loaded(PARTITIONS, RETENTION_BYTES) as load:
        before = [_phase()]
        during, gaps, copied = [], [], 0
        for part in load.parts[:moves]:
            began = time.perf_counter()
            shown = rebalanced(load.control, action="move", moves=(load.move(part),))
            during.append((began, time.perf_counter()))
            gaps += [move["gap_us"] / 1e3 for move in shown["moves"] if move["gap_us"] is not None]
            copied += sum(move["bytes"] for move in shown["moves"])
            time.sleep(REST_S)
        after = [_phase()]
        time.sleep(REST_S)
        flows = {
            name: load.steady.flow(phases)
            for name, phases in (("before", before), ("during", during), ("after", after))
        }
    calm = (flows["before"]["mb_per_s"] + flows["after"]["mb_per_s"]) / 2
    p99 = (flows["before"]["p99_ms"] + flows["after"]["p99_ms"]) / 2
    return {
        "limits": LIMITS,
        "throttle_bytes_per_s": THROTTLE_BYTES_PER_S,
        "moves": len(during),
        "copied_mb": round(copied / 1e6),
        **flows,
        "gaps_ms": [round(gap, 1) for gap in gaps],
        "dip": round(1 - flows["during"]["mb_per_s"] / calm, 3),
        "p99_ratio": round(flows["during"]["p99_ms"] / p99, 2),
    }


def held(result: dict[str, Any]) -> bool:
    return bool(result["dip"] <= LIMITS["dip"] and result["p99_ratio"] <= LIMITS["p99_ratio"])


def _phase() -> tuple[float, float]:
    began = time.perf_counter()
    time.sleep(PHASE_S)
    return began, time.perf_counter()

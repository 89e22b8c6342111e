"""A partition moves while it is written as fast as the machine can: does its copy catch up?"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.cluster.loaded import loaded
from benchmarks.cluster.rebalances import ASK_S, shown
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.runtime.rpc import messages

PARTITIONS = (12, 6, 3)
"""Full load over so many: each takes its share."""
RETENTION_BYTES = 384 << 20
"""Of each: seconds of its load, so a copy that is slower is passed soon, and says so."""
PHASE_S = 4.0
PATIENCE_S = 20.0
LIMITS = {"load_mb_per_s": 100}
"""What moves at the first try at least: twice what one of 24 takes of a disk of 1 GB/s."""


def measure() -> dict[str, Any]:
    """One producer, full load; one partition of so many goes to the next node. MB/s are of bodies."""
    return {"limits": LIMITS, **{f"of_{count}": _chased(count) for count in PARTITIONS}}


def held(result: dict[str, Any]) -> bool:
    cases = [result[f"of_{count}"] for count in PARTITIONS]
    slow = [case for case in cases if case["load_mb_per_s"] <= LIMITS["load_mb_per_s"]]
    return all((case["state"], case["tries"]) == ("COMMITTED", 1) for case in slow)


def _chased(count: int) -> dict[str, Any]:
    with loaded(count, RETENTION_BYTES) as load:
        began = time.perf_counter()
        time.sleep(PHASE_S)
        before = load.steady.flow([(began, time.perf_counter())])
        moves = (load.move(load.parts[0]),)
        ask_values(
            load.control, messages.SteerRebalance(verb="start", action="move", node=0, moves=moves), ASK_S
        )
        began = time.perf_counter()
        while (told := shown(load.control))["state"] != "IDLE" and time.perf_counter() - began < PATIENCE_S:
            time.sleep(0.1)
        ended = time.perf_counter()
        if told["state"] != "IDLE":
            ask_values(load.control, messages.SteerRebalance(verb="cancel"), ASK_S)
        during = load.steady.flow([(began, ended)])
    last = told["moves"][0]
    return {
        "load_mb_per_s": round(before["mb_per_s"] / count, 1),
        "all_mb_per_s": before["mb_per_s"],
        "during_mb_per_s": during["mb_per_s"],
        "state": last["state"],
        "tries": last["attempts"],
        "seconds": round(ended - began, 1),
        "copied_mb_per_s": round(last["bytes"] / (ended - began) / 1e6),
        "gap_ms": None if last["gap_us"] is None else round(last["gap_us"] / 1e3, 1),
    }

"""Questions that are no race between engines. Each drives a real node and gives one result row.

`figures` of the row say what was seen; `python -m benchmarks --workloads NAME` runs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.engines.base import TurnError
from benchmarks.trials.busy import busy_thread
from benchmarks.trials.c_probe import c_limit
from benchmarks.trials.partitions import partitions
from benchmarks.trials.send_cost import send_cost
from benchmarks.trials.store import overload, recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workload import Workload

TRIALS: dict[str, Callable[..., dict[str, Any]]] = {
    "recovery": recovery,
    "overload": overload,
    "partitions": partitions,
    "send_cost": send_cost,
    "busy_thread": busy_thread,
    "c_limit": c_limit,
}


def run(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """One trial; its failure is in the row."""
    row: dict[str, Any] = {
        "engine": "ours",
        "workload": workload.name,
        "transport": "tcp",
        "durability": "fdatasync, O_DIRECT",
        "turns": 1,
        "failure": None,
        "figures": {},
    }
    try:
        return row | {"figures": TRIALS[workload.trial](workload, quick=quick)}
    except (TurnError, OSError, RuntimeError, ImportError, ValueError) as error:
        return row | {"failure": str(error), "turns": 0}

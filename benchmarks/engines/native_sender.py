"""Runs the native load generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.dataset import bodies_file
from benchmarks.engines.base import Turn, send
from benchmarks.native_build import programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.workload import Workload


def native_turn(
    workload: Workload, *, address: str, framing: str, pid: int, quick: bool, more: Sequence[str] = ()
) -> Turn:
    """One turn by `loadgen`; every row expected must have been acknowledged. Raises TurnError."""
    requests, warmup, rows_expected = workload.sizes(quick=quick)
    arguments = {
        "address": address,
        "bodies": str(bodies_file(workload)),
        "framing": framing,
        "window": str(workload.window),
        "requests": str(requests),
        "warmup": str(warmup),
        "server-pid": str(pid),
    }
    command = [
        programs()["loadgen"],
        *(word for name, value in arguments.items() for word in (f"--{name}", value)),
    ]
    turn = Turn.of(send([*command, *more]))
    assert turn.rows == rows_expected, f"{workload.name}: {turn.rows} rows acknowledged of {rows_expected}"
    return turn

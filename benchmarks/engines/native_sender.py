"""Runs the native load generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.dataset import bodies_file
from benchmarks.engines.base import Turn, TurnError, send
from benchmarks.native_build import programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.engines.base import Pace
    from benchmarks.workload import Workload


def native_turn(
    workload: Workload, *, address: str, framing: str, pid: int, pace: Pace, more: Sequence[str] = ()
) -> Turn:
    """One turn by `loadgen`. Raises TurnError, also when a row that was sent is not acknowledged."""
    requests, warmup, rows_expected = workload.sizes(quick=pace.quick)
    arguments = {
        "address": address,
        "bodies": str(bodies_file(workload)),
        "framing": framing,
        "window": str(workload.window),
        "requests": str(requests),
        "warmup": str(warmup),
        "server-pid": str(pid),
        "seconds-max": str(pace.seconds_max),
    }
    command = [
        programs()["loadgen"],
        *(word for name, value in arguments.items() for word in (f"--{name}", value)),
    ]
    turn = Turn.of(send([*command, *more]))
    # Every batch has as many rows; a turn that its time did not cut has all of them.
    expected = rows_expected if turn.requests == requests else turn.requests * workload.batch_rows
    if turn.rows != expected or turn.requests == 0:
        raise TurnError(f"{workload.name}: {turn.rows} rows acknowledged of {expected}")
    return turn

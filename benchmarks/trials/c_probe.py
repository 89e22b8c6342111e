"""Whether the limit loses anything to its language: the same probe in C, in turn with it, one sender."""

from __future__ import annotations

import itertools
import shutil
import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks.engines.base import Pace, TurnError, running
from benchmarks.engines.limit import FILE_BYTES, LIMIT
from benchmarks.engines.native_sender import native_turn
from benchmarks.native_build import c_probe
from benchmarks.peers.process import free_port
from benchmarks.trials.base import directory_of

if TYPE_CHECKING:
    from benchmarks.workload import Workload

TURNS, TURNS_QUICK = 9, 5
TURN_TIME_S_MAX = 3.0


def c_limit(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """Medians of both in MB/s, and the median of the ratios of neighbouring turns."""
    program = c_probe()
    if program is None:
        raise TurnError("there is no C compiler, or the machine is no x86-64")
    directory = directory_of(workload)
    pace = Pace(quick, TURN_TIME_S_MAX)
    rates: dict[str, list[float]] = {"rust": [], "c": []}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        rust = stack.enter_context(LIMIT.serve(workload, "tcp", directory))
        # The file that the Rust probe has made whole; each writes all of its own part of it anew.
        command = [str(program), str(free_port()), str(directory.parent / f"{LIMIT.name}.log")]
        command += [str(FILE_BYTES >> 20)]
        pid, ready = stack.enter_context(running(command, directory / "stderr-c"))
        for _ in range(TURNS_QUICK if quick else TURNS):
            rates["rust"].append(rust.turn(pace).bytes_per_s)
            turn = native_turn(workload, address=ready["address"], framing="probe", pid=pid, pace=pace)
            rates["c"].append(turn.bytes_per_s)
    pairs = itertools.starmap(lambda ours, theirs: ours / theirs, zip(rates["rust"], rates["c"], strict=True))
    return {
        "turns": len(rates["c"]),
        "limit_mb_per_s": round(statistics.median(rates["rust"]) / 1e6),
        "c_mb_per_s": round(statistics.median(rates["c"]) / 1e6),
        "limit_to_c": round(statistics.median(rates["rust"]) / statistics.median(rates["c"]), 3),
        "limit_to_c_by_pairs": round(statistics.median(pairs), 3),
    }

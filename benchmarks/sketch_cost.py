"""`python -m benchmarks.sketch_cost`: what the sketch of a partition's load costs a row.

Each batch goes through the whole engine, into a partition with a sketch and into one without, in turns of one
run. CPU time is that of the faster half of the turns; instructions are counted by callgrind. `status`: all
partitions of a node that has as many sketches as it may. A batch without a sketch is compared with another
commit by `benchmarks.resources --before MICRO`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.micro.native_step import material
from benchmarks.native_build import programs
from benchmarks.resources import instructions
from benchmarks.workload import Workload, load_all

if TYPE_CHECKING:
    from collections.abc import Sequence

# By workload: batches in a turn.
WORKLOADS = {"lineitem_100": 1_000, "lineitem_1000": 200}
# What is counted; under callgrind everything takes fifty times as long.
COUNTED, COUNTED_BATCHES = "lineitem_100", 500
STEPS = ("ingest_keys", "ingest_all_slots")
TURNS = 20
# As many as have a sketch at most, SKETCHES_MAX of core/node/src/maintenance/busiest.rs.
PARTITIONS = 256
STATUS_CALLS = 20


@dataclass(frozen=True)
class Cost:
    """Of one step and workload: without a sketch, and what a sketch adds."""

    workload: str
    step: str
    rows: int
    ns_row: float
    sketch_ns_row: float
    time_ratio: float


@dataclass(frozen=True)
class Counted:
    """As `Cost`, in instructions; None without valgrind."""

    workload: str
    step: str
    instructions_row: float | None
    sketch_instructions_row: float | None


@dataclass(frozen=True)
class StatusCost:
    """Of one call for all partitions: without sketches, and what a sketch of each of them adds."""

    partitions: int
    us: float
    sketches_us: float


class Program:
    """`micro` with one step, which runs as often as it is told."""

    def __init__(self, micro: str, step: str, workload: Workload, partitions: int = 1) -> None:
        self.command = [micro, "--step", step, "--partitions", str(partitions), *material(workload)]
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._line() != "ready":
            raise RuntimeError(f"{step} did not start, exit code {self._process.wait()}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, count: int) -> int:
        """Nanoseconds of CPU time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _faster_half(seconds: list[int]) -> float:
    return statistics.mean(sorted(seconds)[: max(1, len(seconds) // 2)])


def _in_turns(pair: Sequence[Program], count: int) -> tuple[float, float]:
    """Nanoseconds of one step of each of the two."""
    times: tuple[list[int], list[int]] = ([], [])
    for turn in range(TURNS):
        for place in (0, 1) if turn % 2 else (1, 0):
            times[place].append(pair[place].run(count))
    for program in pair:
        program.close()
    return _faster_half(times[0]) / count, _faster_half(times[1]) / count


def cost(micro: str, workload: Workload, step: str, batches: int) -> Cost:
    pair = [Program(micro, name, workload) for name in (step, f"{step}_sketch")]
    without, with_sketch = (ns / workload.batch_rows for ns in _in_turns(pair, batches))
    return Cost(
        workload=workload.name,
        step=step,
        rows=workload.batch_rows,
        ns_row=round(without, 3),
        sketch_ns_row=round(with_sketch - without, 3),
        time_ratio=round(with_sketch / without, 4),
    )


def count(micro: str, workload: Workload, step: str, batches: int) -> Counted:
    arguments = material(workload)
    counted = [
        instructions([micro, "--step", name, "--count", str(batches), *arguments], batches)
        for name in (step, f"{step}_sketch")
    ]
    without, with_sketch = (None if one is None else one / workload.batch_rows for one in counted)
    return Counted(
        workload=workload.name,
        step=step,
        instructions_row=without,
        sketch_instructions_row=(
            None if without is None or with_sketch is None else round(with_sketch - without, 3)
        ),
    )


def status(micro: str, workload: Workload) -> StatusCost:
    pair = [Program(micro, name, workload, PARTITIONS) for name in ("status", "status_sketch")]
    without, with_sketch = _in_turns(pair, STATUS_CALLS)
    return StatusCost(
        partitions=PARTITIONS,
        us=round(without / 1_000, 1),
        sketches_us=round((with_sketch - without) / 1_000, 1),
    )


def show(found: Cost | Counted | StatusCost) -> None:
    """One line each, when it is found: counting takes minutes."""
    print(json.dumps({type(found).__name__: asdict(found)}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    micro, workloads = programs()["micro"], load_all()
    for name, batches in WORKLOADS.items():
        for step in STEPS:
            show(cost(micro, workloads[name], step, batches))
    show(status(micro, workloads["lineitem_100"]))
    counted = workloads[COUNTED]
    for step in STEPS:
        show(count(micro, counted, step, COUNTED_BATCHES))


if __name__ == "__main__":
    main()

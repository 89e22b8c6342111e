"""`python -m benchmarks.resources [--before MICRO]`: counted resources, which do not vary from run to run.

Instructions of a batch through the engine (callgrind), calls and syncs of the log: with 1 and with 10,000
active partitions. Page faults and bytes written are counted by the big benchmark, in `Turn.server`.

`--before` names the program `micro` of another commit, built with `cargo build --release -p ringfence-bench
--bin micro` there: instructions of the steps of a batch are compared with it instead.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.dataset import bodies_file
from benchmarks.micro.native_step import material
from benchmarks.native_build import programs
from benchmarks.paths import work_directory
from benchmarks.workload import load_all

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCHES = 20_000  # two for each of 10,000 partitions
PARTITIONS = (1, 10_000)
# Only the step itself is counted, not its preparation, which opens the partitions.
COLLECT = ("--collect-atstart=no", "--toggle-collect=*steps::Step::run*")
TIMEOUT_S = 600
COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")
# By step: how often it is done when it is compared, and with how many partitions.
COMPARED = {
    "route_fence": (200_000, (1, 10_000)),
    "decode": (50_000, (1,)),
    "dedupe": (2_000, (1,)),
    "ingest": (2_000, (1,)),
}
BESIDE_MAX = 1.05
"""Of the commit before."""


@dataclass(frozen=True)
class Counted:
    """Of `BATCHES` batches of 100 rows through decode, fence, dedupe, check, append, commit and answer."""

    partitions: int
    instructions_per_batch: float | None  # None without valgrind
    writes_per_mib: float
    syncs_per_mib: float
    written_bytes_per_body_byte: float


@dataclass(frozen=True)
class Beside:
    """Instructions of one step, of this commit and of another; None without valgrind."""

    step: str
    partitions: int
    now: float | None
    before: float | None
    ratio: float | None


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)


def count(partitions: int) -> Counted:
    """Run the engine over storage that keeps nothing, once plainly and once under callgrind."""
    workload = load_all()["partitions_1"]
    command = [
        programs()["micro"],
        "--step",
        "ingest",
        "--count",
        str(BATCHES),
        "--partitions",
        str(partitions),
    ]
    command += material(workload)
    storage = json.loads(_run(command).stdout)
    body_bytes = (bodies_file(workload).stat().st_size / workload.distinct_batches - 16) * BATCHES
    return Counted(
        partitions=partitions,
        instructions_per_batch=instructions(command, BATCHES),
        writes_per_mib=round(storage["writes"] / body_bytes * 2**20, 4),
        syncs_per_mib=round(storage["syncs"] / body_bytes * 2**20, 4),
        written_bytes_per_body_byte=round(storage["bytes"] / body_bytes, 4),
    )


def instructions(command: Sequence[str], count: int) -> float | None:
    """Of one step of a `micro` that does it `count` times; None without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    out = work_directory() / "callgrind.out"
    done = _run([valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", *COLLECT, *command])
    collected = COLLECTED.search(done.stderr)
    if collected is None:
        raise ValueError(f"callgrind did not say what it collected: {done.stderr[-500:]}")
    return round(int(collected[1]) / count, 1)


def beside(before: str, step: str, partitions: int, count: int) -> Beside:
    """One step of this commit and of the one whose `micro` is given."""
    arguments = ["--step", step, "--count", str(count), "--partitions", str(partitions)]
    arguments += material(load_all()["partitions_1"])
    now, then = (instructions([micro, *arguments], count) for micro in (programs()["micro"], before))
    ratio = None if now is None or then is None else round(now / then, 4)
    return Beside(step=step, partitions=partitions, now=now, before=then, ratio=ratio)


def held(found: Sequence[Beside]) -> bool:
    return all(one.ratio is not None and one.ratio <= BESIDE_MAX for one in found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resources", description=__doc__)
    parser.add_argument("--before", metavar="MICRO", help="the program `micro` of the commit before")
    before = parser.parse_args(arguments).before
    if before is None:
        counted = [count(partitions) for partitions in PARTITIONS]
        json.dump([asdict(one) for one in counted], sys.stdout, indent=2)
        print()
        return 0
    compared = []
    for step, (times, widths) in COMPARED.items():
        for partitions in widths:
            compared.append(beside(before, step, partitions, times))
            print(json.dumps(asdict(compared[-1])), flush=True)
    return 0 if held(compared) else 1


if __name__ == "__main__":
    raise SystemExit(main())

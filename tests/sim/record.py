"""`python -m tests.sim.record --file F`: so many seeds at one revision, in as many runs as it takes.

Each seed is a line of JSON in a file outside of the repository. A run goes on with seeds that have no line
of the same code: the trees of CODE as they are committed. A change of anything else keeps what was run.
Exit 1 at a broken promise, 3 while seeds are left.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.sim import apart
from tests.sim.faults.plan import Plan

ROOT: Final = Path(__file__).resolve().parents[2]
CODE: Final = (
    "Cargo.lock",
    "client",
    "control",
    "core",
    "native",
    "tests/checker",
    "tests/fakes/layout_level.py",
    "tests/sim",
)
"""What a seed runs: the planes, the client's machines, the simulator and its checkers."""
TOLD_EACH: Final = 100


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One seed."""

    code: str
    revision: str
    seed: int
    seconds: int
    is_counted: bool
    events: int
    faults: int
    violation: str
    cpu_s: float


class CodeChangedError(Exception):
    """Files of CODE are not committed, so a result would be of no revision."""


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def revision() -> tuple[str, str]:
    """(hash of the code, revision).

    Raises:
        CodeChangedError: commit what is listed, or put it back.
    """
    if changed := _git("status", "--porcelain", "--", *CODE):
        raise CodeChangedError(f"not committed, so no revision has it; commit it first:\n{changed}")
    trees = "\n".join(_git("rev-parse", f"HEAD:{path}") for path in CODE)
    return hashlib.sha256(trees.encode()).hexdigest()[:16], _git("rev-parse", "--short", "HEAD")


def known(file: Path, code: str, seconds: int) -> dict[int, Line]:
    """Lines of this code and length, by seed. One that a killed run left torn is none."""
    found: dict[int, Line] = {}
    for text in file.read_bytes().splitlines() if file.exists() else ():
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.DecodeError:
            continue
        if (line.code, line.seconds) == (code, seconds):
            found[line.seed] = line
    return found


def _run(seeds: Iterable[int], seconds: int, jobs: int, code: str, name: str) -> Iterator[Line]:
    spent = _cpu_s()
    for plan, result in apart.each((Plan.mixed(seed, seconds) for seed in seeds), jobs):
        before, spent = spent, _cpu_s()
        yield Line(
            code=code,
            revision=name,
            seed=plan.seed,
            seconds=seconds,
            is_counted=result.is_counted,
            events=result.events,
            faults=result.faults,
            cpu_s=round(spent - before + result.cpu_s, 3),
            violation="" if result.violation is None else str(result.violation),
        )


def _cpu_s() -> float:
    """Of this process; each seed's own come with its result."""
    spent = os.times()
    return spent.user + spent.system


def go_on(
    file: Path, seeds: range, seconds: int, minutes: float | None = None, jobs: int = 1
) -> dict[int, Line]:
    """Run what is left, for so many minutes at most, in `jobs` processes; all lines of the seeds."""
    code, name = revision()
    found = known(file, code, seconds)
    left = (seed for seed in seeds if seed not in found)
    end = None if minutes is None else time.perf_counter() + 60 * minutes
    is_torn = file.exists() and not file.read_bytes().endswith(b"\n") and file.stat().st_size > 0
    with file.open("ab", buffering=0) as out:
        if is_torn:
            out.write(b"\n")
        for count, line in enumerate(_run(left, seconds, jobs, code, name), start=1):
            out.write(msgspec.json.encode(line) + b"\n")
            found[line.seed] = line
            if line.violation:
                print(f"seed {line.seed}: {line.violation}", flush=True)
            if count % TOLD_EACH == 0:
                print(f"{count} seeds in this run", file=sys.stderr, flush=True)
            if end is not None and time.perf_counter() >= end:
                break
    return {seed: line for seed, line in found.items() if seed in seeds}


def summary(lines: Iterable[Line], seeds: range) -> str:
    """A row as `benchmarks/record/simulated-cluster.md` has them, and what is left."""
    lines = list(lines)
    revisions = ", ".join(dict.fromkeys(line.revision for line in lines))
    broken = [f"{line.seed} ({line.violation[:80]})" for line in lines if line.violation]
    counted, events = sum(line.is_counted for line in lines), sum(line.events for line in lines)
    faults, cpu_s = sum(line.faults for line in lines), sum(line.cpu_s for line in lines)
    speed = 60 * len(lines) / cpu_s if cpu_s else 0.0
    verdict = f"{len(broken)}: {'; '.join(broken)}" if broken else "0"
    return (
        f"| {seeds[0]}..{seeds[-1]} | {revisions} | {counted:,} | {events:,} | {faults:,} | {verdict}; "
        f"{speed:.0f} seeds a minute of one core |\n{len(lines)} of {len(seeds)} seeds have run"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.record", description=__doc__)
    parser.add_argument(
        "--file", type=Path, required=True, help="lines of results, outside of the repository"
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--seconds", type=int, default=10, help="virtual seconds of faults")
    parser.add_argument("--minutes", type=float, help="stop after so long; the next run goes on")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    try:
        found = go_on(given.file, seeds, given.seconds, given.minutes, given.jobs)
    except CodeChangedError as error:
        print(error, file=sys.stderr)
        return 2
    print(summary(found.values(), seeds))
    if any(line.violation for line in found.values()):
        return 1
    return 0 if len(found) == len(seeds) else 3


if __name__ == "__main__":
    sys.exit(main())

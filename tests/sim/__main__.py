"""`python -m tests.sim --seed N | --seeds A..B | --minutes M`: clusters; exit 1 at a broken promise."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.sim import simulation
from tests.sim.mix import Plan


def _seeds(given: argparse.Namespace) -> Iterator[int]:
    if given.seed is not None:
        yield given.seed
        return
    first, _, last = given.seeds.partition("..")
    if given.minutes is None:
        yield from range(int(first), int(last or first) + 1)
        return
    end, seed = time.perf_counter() + given.minutes * 60, int(first)
    while time.perf_counter() < end:
        yield seed
        seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its story")
    parser.add_argument("--seeds", default="1..100", help="A..B, both included")
    parser.add_argument("--minutes", type=float, help="seeds from A on for so long")
    parser.add_argument("--seconds", type=int, default=10, help="virtual seconds of faults")
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--lines", type=int, default=60, help="of the story of a broken promise")
    given = parser.parse_args()
    began, events, violations, counted, run = time.process_time(), 0, 0, 0, 0
    counts = Counter[str]()
    for seed in _seeds(given):
        plan = Plan.drawn(seed, given.seconds, given.machines)
        result = simulation.run(plan, is_told=given.seed is not None)
        run += 1
        events += result.events
        counted += result.is_counted
        counts.update(result.counts)
        if result.violation is not None:
            violations += 1
            if not result.story:
                result = simulation.run(plan, is_told=True)
            print("\n".join(result.story[-given.lines :]))
            print(f"seed {seed}: {result.violation}")
            print(f"  replay: python -m tests.sim --seed {seed} --seconds {given.seconds}")
        elif given.seed is not None:
            print("\n".join(result.story))
            print(f"trace {result.trace}")
    took_s = time.process_time() - began  # of this core, whatever others do
    print(" ".join(f"{name}={count}" for name, count in sorted(counts.items())))
    print(
        f"{run} seeds ({counted} count), {events} events, {sum(counts.values())} faults, "
        f"{violations} violations, {run / took_s * 60:.0f} seeds a minute"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

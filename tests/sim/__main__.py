"""`python -m tests.sim --seed N | --seeds A..B | --minutes M`: clusters; exit 1 at a broken promise."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.sim import apart, shrink
from tests.sim.faults.plan import Plan, with_layouts
from tests.sim.simulation import Result

TOLD_EACH = 100


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


def _plan(seed: int, given: argparse.Namespace) -> Plan:
    plan = Plan.drawn(seed, given.seconds, given.machines)
    if given.layouts:
        plan = with_layouts(plan)
    elif given.mixed:
        plan = Plan.mixed(seed, given.seconds, given.machines)
    if given.calm:
        plan = shrink.calm(plan)
    if given.only is not None:
        plan = shrink.only(plan, [int(number) for number in given.only.split(",") if number])
    return plan


def _show(plan: Plan, result: Result, given: argparse.Namespace) -> None:
    """The story of a broken promise, and how to see it again."""
    command = f"python -m tests.sim --seed {plan.seed} --seconds {given.seconds} --machines {given.machines}"
    command += " --layouts" if plan.layouts else ""
    if given.shrink and result.violation is not None:
        broken = result.violation.invariant

        def fails(fewer: Plan) -> bool:
            again = apart.run(fewer).violation
            return again is not None and again.invariant == broken

        before = len(plan.strikes)
        smaller, runs = shrink.shrunk(plan, fails)
        print(f"{before} strikes shrunk to {len(smaller.strikes)} in {runs} runs")
        numbers = ",".join(str(each.number) for each in smaller.strikes)
        command += f" --only {numbers}" + (" --calm" if smaller == shrink.calm(smaller) else "")
        plan = smaller
    result = apart.run(plan, is_told=True)
    print("\n".join(result.story[-given.lines :] if given.lines else ()))
    print(f"seed {plan.seed}: {result.violation}\n  replay: {command}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its story")
    parser.add_argument("--seeds", default="1..100", help="A..B, both included")
    parser.add_argument("--minutes", type=float, help="seeds from A on for so long")
    parser.add_argument("--seconds", type=int, default=10, help="virtual seconds of faults")
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--layouts", action="store_true", help="each seed with splits and merges")
    parser.add_argument("--mixed", action="store_true", help="some seeds with splits and merges")
    parser.add_argument("--lines", type=int, default=60, help="of the story of a broken promise")
    parser.add_argument("--shrink", action="store_true", help="leave out strikes that do not matter")
    parser.add_argument("--only", help="numbers of the strikes that are carried out, as a shrink tells them")
    parser.add_argument("--calm", action="store_true", help="without lost, doubled and late messages")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at once")
    given = parser.parse_args()
    events, violations, counted, run = 0, 0, 0, 0
    counts = Counter[str]()
    for plan, result in apart.each((_plan(seed, given) for seed in _seeds(given)), given.jobs):
        run += 1
        events += result.events
        counted += result.is_counted
        counts.update(result.counts)
        if run % TOLD_EACH == 0:
            print(f"{run} seeds, {counted} count, {violations} violations", file=sys.stderr, flush=True)
        if result.violation is not None:
            violations += 1
            _show(plan, result, given)
        elif given.seed is not None:
            print("\n".join(apart.run(plan, is_told=True).story[-given.lines :]))
            print(f"trace {result.trace}")
    spent = os.times()  # of cores, whatever others do
    took_s = spent.user + spent.system + spent.children_user + spent.children_system
    print(" ".join(f"{name}={count}" for name, count in sorted(counts.items())))
    print(
        f"{run} seeds ({counted} count), {events} events, {sum(counts.values())} faults, "
        f"{violations} violations, {run / took_s * 60:.0f} seeds a minute of one core"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

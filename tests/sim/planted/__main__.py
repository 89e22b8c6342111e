"""`python -m tests.sim.planted`: how many seeds each planted bug needs to be found, and what names it.

Clusters first: bugs of the control plane, then faults of the engine. `--node` is the table of one node alone.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

from ringfence.native import _node
from tests.sim import birth, data_plane, simulation
from tests.sim.mix import Plan
from tests.sim.planted import control, native
from tests.sim.violation import ViolationError


def find(
    switch: Callable[[], AbstractContextManager[object]], seeds: range, *, is_native: bool = False
) -> tuple[int, ViolationError | None]:
    """The first seed that finds what is switched on in the block, and the invariant it broke; or the last."""
    for machines in (3, 4):  # in peace, before anything is switched on
        birth.born(machines)
    for seed in seeds:
        with switch() as module:
            result = simulation.run(Plan.drawn(seed), module if is_native else _node)  # type: ignore[arg-type]
        if result.violation is not None:
            return seed, result.violation
    return seeds[-1], None


def clusters(seeds: range, only: list[str]) -> None:
    print("| planted bug | seeds needed | named by |")
    print("|---|--:|---|")
    switches = {name: (lambda name=name: control.planted(name), False) for name in control.BUGS}
    wanted = [name for name in control.BUGS if not only or name in only]
    if not only or any(name not in control.BUGS for name in only):
        faults = [name for name in native.load().plantable() if not only or name in only]
        switches |= {name: (lambda name=name: native.planted(name), True) for name in faults}
        wanted += faults
    for name in wanted:
        switch, is_native = switches[name]
        seed, broken = find(switch, seeds, is_native=is_native)
        if broken is None:
            print(f"| {name} | not in {len(seeds)} | |", flush=True)
        else:
            text = str(broken).partition(": ")[2][:90].replace("|", "/")
            print(f"| {name} | {seed - seeds[0] + 1} | {broken.invariant}: {text} |", flush=True)


def one_node(seeds: int) -> None:
    print(f"| fault | first seed | found in, of {seeds} seeds | named by |")
    print("|---|--:|--:|---|")
    for name in native.load().plantable():
        found = Counter[str]()
        first = 0
        with native.planted(name) as module:
            for seed in range(1, seeds + 1):
                try:
                    data_plane.run(seed, module)
                except ViolationError as broken:
                    first = first or seed
                    found[broken.invariant] += 1
        named = ", ".join(f"{invariant} {count}" for invariant, count in found.most_common())
        print(f"| {name} | {first or '-'} | {found.total()} | {named} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--node", action="store_true", help="faults of the engine in single nodes")
    parser.add_argument("only", nargs="*", help="these bugs; all of them without")
    given = parser.parse_args()
    if given.node:
        one_node(given.seeds)
    else:
        clusters(range(given.first, given.first + given.seeds), given.only)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()

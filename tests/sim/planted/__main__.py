"""`python -m tests.sim.planted --seeds N`: how many seeds each fault of the data plane needs to be found."""

from __future__ import annotations

import argparse
from collections import Counter

from tests.sim.data_plane import run
from tests.sim.planted import native
from tests.sim.violation import ViolationError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    print(f"| fault | first seed | found in, of {seeds} seeds | named by |")
    print("|---|--:|--:|---|")
    for name in native.load().plantable():
        found = Counter[str]()
        first = 0
        with native.planted(name) as module:
            for seed in range(1, seeds + 1):
                try:
                    run(seed, module)
                except ViolationError as broken:
                    first = first or seed
                    found[broken.invariant] += 1
        named = ", ".join(f"{invariant} {count}" for invariant, count in found.most_common())
        print(f"| {name} | {first or '-'} | {found.total()} | {named} |", flush=True)


if __name__ == "__main__":
    main()

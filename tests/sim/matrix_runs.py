"""Run cells of a matrix one after the other: what the programs of all matrices share."""

from __future__ import annotations

import argparse
import datetime
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.sim.faults.struck import Cell
from tests.sim.simulation import Result


class RunCell(Protocol):
    """One cell's result, and how it ended; "" where it broke a promise."""

    def __call__(self, cell: Cell, seed: int, *, is_told: bool) -> tuple[Result, str]: ...


def played(
    run: RunCell, chosen: Sequence[Cell], seed: int, *, is_told: bool = False
) -> tuple[Counter[str], list[str]]:
    """How these cells ended, and what went wrong."""
    ends, wrong = Counter[str](), list[str]()
    for cell in chosen:
        result, end = run(cell, seed, is_told=is_told)
        ends[end or "wrong"] += 1
        if is_told:
            print("\n".join(result.story))
        if result.violation is not None:
            wrong.append(f"{cell} --seed {seed}: {result.violation}")
            print(wrong[-1], flush=True)
    return ends, wrong


def main(
    prog: str,
    doc: str | None,
    run: RunCell,
    born: Callable[[int], None],
    cells: Sequence[Cell],
    of_day: Callable[[int], list[Cell]] | None = None,
) -> int:
    """The first of `cells` strikes nothing. `born` prepares for a seed; `of_day`: what runs without --all."""
    parser = argparse.ArgumentParser(prog=prog, description=doc)
    parser.add_argument("--seed", type=int, default=1)
    if of_day is not None:
        parser.add_argument("--all", action="store_true", help="all cells; else those of the day")
    parser.add_argument("--only", default="", help="cells whose name holds this: step/victim/harm/span")
    parser.add_argument("--told", action="store_true", help="the story of each")
    given = parser.parse_args()
    born(given.seed)
    began = time.process_time()
    if of_day is not None and not given.all and not given.only:
        cells = [cells[0], *of_day(datetime.datetime.now(tz=datetime.UTC).date().toordinal())]
    chosen = [cell for cell in cells if given.only in str(cell)]
    ends, wrong = played(run, chosen, given.seed, is_told=given.told)
    took_s = time.process_time() - began
    told = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
    print(f"{len(chosen)} cells: {told}; {took_s:.0f} s of one core")
    return 1 if wrong else 0

"""`python -m tests.sim.planted`: how many seeds each planted bug needs to be found, and what names it.

Clusters first: bugs of the control plane, then faults of the engine. `--node` is the table of one node alone,
`--replicas` and `--scopes` have those that only replicas and only transactions show, `--starts` those of
truncates and of forced owners, `--layouts` those of splits and merges.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from ringfence.native import _node
from tests.sim import commits, data_plane, layout_matrix, matrix, simulation
from tests.sim.checks.violation import ViolationError
from tests.sim.faults.plan import NAMED, Plan
from tests.sim.faults.struck import Cell
from tests.sim.planted import control, layout_engine, layouts, native, replicas, scopes, starts
from tests.sim.planted.layout_engine import Seeds
from tests.sim.world import birth

Finding = tuple[str, ViolationError | None]
"""How many seeds were needed, as text, and what was broken; None: nothing was."""
PROGRAM_ERRORS = ("AttributeError", "TypeError", "NameError", "ImportError")
"""A build of another revision ends with them: they show no planted bug."""


def broken_by(violation: ViolationError | None) -> ViolationError | None:
    """What broke a promise. Raises: AssertionError: the program itself is broken, whatever is planted."""
    if violation is not None and violation.invariant == "defect":
        assert not any(error in str(violation) for error in PROGRAM_ERRORS), (
            f"no planted bug is looked for, the program fails ({violation}): build it again with make setup"
        )
    return violation


def _first_broken(
    plans: Iterable[Plan], switch: Callable[[], AbstractContextManager[object]], *, is_native: bool
) -> tuple[int, Plan | None, ViolationError | None]:
    """How many plans were run, the one that finds the planted bug, and what was broken."""
    tried = 0
    for tried, plan in enumerate(plans, 1):
        birth.born(plan.machines, plan.level, plan.newest)  # in peace, before anything is switched on
        with switch() as module:
            result = simulation.run(plan, module if is_native else _node)  # type: ignore[arg-type]
        broken = broken_by(result.violation)
        if broken is not None:
            return tried, plan, broken
    return tried, None, None


def find(
    switch: Callable[[], AbstractContextManager[object]], seeds: Sequence[int], *, is_native: bool = False
) -> tuple[int, ViolationError | None]:
    """The first seed that finds what is switched on in the block, and the invariant it broke; or the last."""
    _, plan, broken = _first_broken(map(Plan.drawn, seeds), switch, is_native=is_native)
    return seeds[-1] if plan is None else plan.seed, broken


def first_found(
    plans: Iterable[Plan], switch: Callable[[], AbstractContextManager[object]], *, is_native: bool = True
) -> Finding:
    """The number of the first plan that finds the planted bug; `is_native`: `switch` gives the engine."""
    tried, plan, broken = _first_broken(plans, switch, is_native=is_native)
    return f"not in {tried}" if plan is None else f"{tried} (seed {plan.seed})", broken


def find_in_replicas(
    switch: Callable[[], AbstractContextManager[object]], seeds: Sequence[int], *, is_native: bool = False
) -> Finding:
    """As `find`, with what moves: a quiet move first, then seeds in which partitions do."""
    plan = matrix.plan_of(1)
    birth.born(plan.machines, plan.level, plan.newest)
    with switch() as module:
        quiet, _ = matrix.run(matrix.QUIET, native=module if is_native else _node)  # type: ignore[arg-type]
    if broken_by(quiet.violation) is not None:
        return "a quiet move", quiet.violation
    return first_found((plan for plan in map(Plan.drawn, seeds) if plan.moves), switch, is_native=is_native)


def show(heading: str, names: Iterable[str], only: list[str], look: Callable[[str], Finding]) -> None:
    """A table with a row for each of `names`, or of those in `only`: what `look` finds."""
    print(f"| planted bug | {heading} | named by |")
    print("|---|--:|---|")
    for name in [name for name in names if not only or name in only]:
        needed, broken = look(name)
        text = "" if broken is None else str(broken)[:100].replace("|", "/")
        print(f"| {name} | {needed} | {text} |", flush=True)


def with_replicas(seeds: range, only: list[str]) -> None:
    switches = {name: (lambda name=name: replicas.planted(name), False) for name in replicas.BUGS}
    if not only or any(name not in replicas.BUGS for name in only):
        faults = native.load().plantable_replicas()
        switches |= {name: (lambda name=name: native.planted(name), True) for name in faults}

    def look(name: str) -> Finding:
        switch, is_native = switches[name]
        return find_in_replicas(switch, seeds, is_native=is_native)

    show("seeds with moves needed", switches, only, look)


def find_in_scopes(name: str, seeds: Sequence[int]) -> Finding:
    """As `find`, in seeds that have transactional writers; or in those of a cell that shows it."""
    cell = scopes.SHOWN_BY.get(name)
    if cell is not None:
        plan = commits.plan_of(1)
        birth.born(plan.machines, plan.level, plan.newest)
        for seed in seeds:
            with scopes.planted(name) as module:
                result, _ = matrix.run(cell, seed, module)
            if broken_by(result.violation) is not None:
                return f"{seed} of {cell}", result.violation
        return f"not in {len(seeds)} of {cell}", None
    plans = (plan for plan in map(Plan.drawn, seeds) if plan.writers)
    return first_found(plans, lambda: scopes.planted(name))


def with_scopes(seeds: range, only: list[str]) -> None:
    show("seeds with transactions needed", scopes.BUGS, only, lambda name: find_in_scopes(name, seeds))


def find_in_starts(name: str, seeds: Sequence[int]) -> Finding:
    """As `find`, in seeds with much of what shows it: truncates, or owners that an operator forces."""
    make = starts.SHOWN_BY[name]
    return first_found((make(Plan.drawn(seed)) for seed in seeds), lambda: native.planted(name))


def with_starts(seeds: range, only: list[str]) -> None:
    show("such seeds needed", starts.SHOWN_BY, only, lambda name: find_in_starts(name, seeds))


def find_in_layouts(name: str, seeds: Sequence[int]) -> Finding:
    """As `find`, in seeds with splits and merges, and with what the bug is in; or in those of a cell."""
    cell = layouts.CELLS.get(name)
    if cell is not None:
        return _find_in_cell(name, cell, [seed for seed in seeds if seed % NAMED == 0])
    is_native = name in layout_engine.FOUND
    shown_by = Seeds(layouts.SHOWN_BY.get(name, lambda _: True), layouts.STORIES.get(name))
    plans = layout_engine.FOUND.get(name, shown_by).plans(seeds)
    switch = partial(native.planted if is_native else layouts.planted, name)
    return first_found(plans, switch, is_native=is_native)


def _find_in_cell(name: str, cell: Cell, seeds: list[int]) -> Finding:
    plan = layout_matrix.plan_of(1)
    birth.born(plan.machines, plan.level, plan.newest)
    for tried, seed in enumerate(seeds, 1):
        with layouts.planted(name):
            result, _ = layout_matrix.run_cell(cell, seed)
        if broken_by(result.violation) is not None:
            return f"{tried} of {cell}", result.violation
    return f"not in {len(seeds)} of {cell}", None


def with_layout_changes(seeds: range, only: list[str]) -> None:
    names = [name for name in layouts.LAYOUT_BUGS if name not in layouts.ELSEWHERE] + [*layout_engine.FOUND]
    show("seeds with layout changes needed", names, only, lambda name: find_in_layouts(name, seeds))


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
    parser.add_argument("--replicas", action="store_true", help="bugs of changes and of replicas")
    parser.add_argument("--scopes", action="store_true", help="bugs of transactions")
    parser.add_argument("--starts", action="store_true", help="bugs of truncates and of forced owners")
    parser.add_argument("--layouts", action="store_true", help="bugs of splits and merges")
    parser.add_argument("only", nargs="*", help="these bugs; all of them without")
    given = parser.parse_args()
    if given.replicas:
        with_replicas(range(given.first, given.first + given.seeds), given.only)
    elif given.layouts:
        with_layout_changes(range(given.first, given.first + given.seeds), given.only)
    elif given.scopes:
        with_scopes(range(given.first, given.first + given.seeds), given.only)
    elif given.starts:
        with_starts(range(given.first, given.first + given.seeds), given.only)
    elif given.node:
        one_node(given.seeds)
    else:
        clusters(range(given.first, given.first + given.seeds), given.only)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()

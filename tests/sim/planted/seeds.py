"""How a bug that is planted into cohorts, or into transactions with a consumer, is looked for in seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TypeVar

import pytest

from ringfence.native import _node
from tests.sim.checks.violation import ViolationError
from tests.sim.cohorts import CohortPlan
from tests.sim.planted import native
from tests.sim.planted.__main__ import broken_by
from tests.sim.simulation import Result
from tests.sim.world import birth

Bugs = Mapping[str, Callable[[pytest.MonkeyPatch], None]]
"""Those that are patched in Python; all others are the engine's."""
AnyPlan = TypeVar("AnyPlan", bound=CohortPlan)


def seeds_of(known: int, more: int) -> list[int]:
    """The known seed first, then those below `more`: a change of what runs may change what it shows."""
    return [known, *(seed for seed in range(1, more) if seed != known)]


@contextmanager
def planted(name: str, bugs: Bugs) -> Iterator[ModuleType]:
    """In this block the program has the bug; the engine's module is given."""
    if name not in bugs:
        with native.planted(name) as module:
            yield module
        return
    with pytest.MonkeyPatch.context() as patch:
        bugs[name](patch)
        yield _node


def first_shown(
    name: str, bugs: Bugs, plans: Iterable[AnyPlan], play: Callable[[AnyPlan, ModuleType], Result]
) -> tuple[int, ViolationError | None]:
    """The first of these plans' seeds that shows the bug, and what broke; else the last one."""
    seed = 0
    for plan in plans:
        seed = plan.seed
        birth.born(plan.machines, plan.level, plan.newest)  # in peace
        with planted(name, bugs) as module:
            result = play(plan, module)
        broken = broken_by(result.violation)
        if broken is not None:
            return seed, broken
    return seed, None

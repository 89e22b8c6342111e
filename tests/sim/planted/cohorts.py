"""Bugs of cohorts that a whole cluster shows, one at a time: in the control plane, the consumer, the engine.

The gate of one owner and the member have bugs of their own, which their stories and walks find
(`core/node/src/cohorts/gate`, `core/node/src/cohorts/queue`, `tests/fakes/queue_planted.py`). Those here are
found by clusters as well: `python -m tests.sim.planted --cohorts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import pytest

from ringfence.consumer.giving import Giving
from ringfence.consumer.holding import Holding
from ringfence.consumer.values import Point
from ringfence.control.state_machines.cohorts import gates
from ringfence.native import _node
from tests.fakes import queue_planted
from tests.sim.checks.violation import ViolationError
from tests.sim.cohorts import run_seed, with_cohort
from tests.sim.planted import native
from tests.sim.planted.__main__ import broken_by
from tests.sim.world import birth

Patch = pytest.MonkeyPatch


def _children_at_once(patch: Patch) -> None:
    """The gate of a child waits for no parent (CD5)."""
    patch.setattr(gates, "waits_for", lambda *_: ())


def _reported_when_given(patch: Patch) -> None:
    """A CHECKPOINT's position is reported when its rows are given, before they are in the store."""
    give = Giving.give

    def giving(self: Giving, *arguments: Any) -> Any:
        place = give(self, *arguments)
        if place is not None:
            self.acknowledge(place, urgent=True)
        return place

    patch.setattr(Giving, "give", giving)


def _store_is_passed_over(patch: Patch) -> None:
    """A member of a CHECKPOINT begins a row after where its store is."""
    positioned = Holding.positioned

    def passing(self: Holding, partition: int, position: Point | None, *, tells: bool = False) -> None:
        if position is not None and position.offset:
            position = Point(position.offset + 1, 0)
        positioned(self, partition, position, tells=tells)

    patch.setattr(Holding, "positioned", passing)


def _of_member(name: str) -> Callable[[Patch], None]:
    return lambda patch: queue_planted.plant(patch, getattr(queue_planted, name))


BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    "children_at_once": _children_at_once,
    "reported_when_given": _reported_when_given,
    "store_is_passed_over": _store_is_passed_over,
} | {
    name: _of_member(name)
    for name in (
        "rows_over_their_lease_are_given",
        "acknowledged_when_given",
        "rows_of_before_a_seek_are_given",
        "tables_are_not_asked_for",
    )
}


@contextmanager
def planted(name: str) -> Iterator[ModuleType]:
    """In this block the program has the bug; the engine's module is given."""
    if name not in BUGS:
        with native.planted(name) as module:
            yield module
        return
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield _node


def find(name: str, mode: str, seeds: Sequence[int]) -> tuple[int, ViolationError | None]:
    """The first of these seeds that shows the bug, and what broke."""
    for seed in seeds:
        plan = with_cohort(seed, modes=(mode,))
        birth.born(plan.machines, plan.level, plan.newest)  # in peace
        with planted(name) as module:
            result = run_seed(plan, module)
        broken = broken_by(result.violation)
        if broken is not None:
            return seed, broken
    return seeds[-1], None

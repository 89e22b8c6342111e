"""Bugs of cohorts that a whole cluster shows, one at a time: in the control plane, the consumer, the engine.

The gate of one owner and the member have bugs of their own, which their stories and walks find
(`core/node/src/cohorts/gate`, `core/node/src/cohorts/queue`, `tests/fakes/queue_planted.py`). Those here are
found by clusters as well (`python -m tests.sim.planted.cohorts`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest

from ringfence.consumer.giving import Giving
from ringfence.consumer.holding import Holding
from ringfence.consumer.values import Point
from ringfence.control.runtime.layout.engine import NativeEngine
from ringfence.control.state_machines.cohorts import gates
from tests.fakes import queue_planted
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.queue_member import QueueProcess
from tests.sim.cohorts import run_seed, with_cohort
from tests.sim.planted import seeds as by_seeds

Patch = pytest.MonkeyPatch


def _children_at_once(patch: Patch) -> None:
    """The gate of a child waits for no parent (CD5)."""
    patch.setattr(gates, "waits_for", lambda *_: ())


def _reported_when_given(patch: Patch) -> None:
    """A CHECKPOINT's position is reported when its rows are given, before they are in the store."""
    give = Giving.give

    def giving(self: Giving, *arguments: Any, **how: Any) -> Any:
        place = give(self, *arguments, **how)
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


def _gates_of_the_base(patch: Patch) -> None:
    """A child takes the gates of its source as of before the HOLD, when their size was asked (PB20)."""
    gates_out = NativeEngine.gates_out
    known: dict[tuple[Any, ...], bytes] = {}

    async def before_hold(
        self: NativeEngine, place: Any, number: Any, records: int, partitions: Any
    ) -> bytes:
        key = place, number, tuple(partitions or ())
        gates = await gates_out(self, place, number, records, partitions)
        return known.setdefault(key, gates) if not records else known.get(key, gates)

    patch.setattr(NativeEngine, "gates_out", before_hold)


def _tables_are_not_asked_for(patch: Patch) -> None:
    """Neither for rows of an unknown partition, nor now and then."""
    queue_planted.plant(patch, queue_planted.tables_are_not_asked_for)
    patch.setattr(QueueProcess, "asks_tables", False)


def _of_member(name: str) -> Callable[[Patch], None]:
    return lambda patch: queue_planted.plant(patch, getattr(queue_planted, name))


BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    "children_at_once": _children_at_once,
    "gates_of_the_base": _gates_of_the_base,
    "reported_when_given": _reported_when_given,
    "store_is_passed_over": _store_is_passed_over,
    "acknowledged_when_given": _of_member("acknowledged_when_given"),
    "tables_are_not_asked_for": _tables_are_not_asked_for,
    "rows_over_their_lease_are_given": _of_member("rows_over_their_lease_are_given"),
    "rows_of_before_a_seek_are_given": _of_member("rows_of_before_a_seek_are_given"),
}
"""Of the control plane and of the consumer; others are the engine's."""


class Shown(NamedTuple):
    """A seed that showed the bug when it was last tried, and is sound without it. `rule` is what broke."""

    mode: str
    seed: int
    rule: str


SHOWN_BY: Final[dict[str, Shown]] = {
    # the control plane
    "children_at_once": Shown("stream", 2, "cohort early"),
    "gates_of_the_base": Shown("queue", 6, "queue again"),
    # the consumer of a CHECKPOINT
    "reported_when_given": Shown("checkpoint", 1, "checkpoint ahead"),
    "store_is_passed_over": Shown("checkpoint", 1, "checkpoint"),
    # the consumer of a QUEUE
    "acknowledged_when_given": Shown("queue", 2, "queue unsaid"),
    "tables_are_not_asked_for": Shown("queue", 30, "I13"),
    "rows_over_their_lease_are_given": Shown("queue", 3, "queue given after"),
    "rows_of_before_a_seek_are_given": Shown("queue", 2, "I13"),
    # the gates of a QUEUE in the engine
    "queue_forgotten": Shown("queue", 2, "queue again"),
    "queue_seek_unheard": Shown("queue", 2, "queue lost"),
    "heir_forgets_gates": Shown("queue", 3, "queue again"),
    # their machine
    "two_leases": Shown("queue", 3, "queue two leases"),
    "parked_in_memory": Shown("queue", 2, "queue again"),
    "answer_early": Shown("queue", 4, "queue again"),
    "ack_steals": Shown("queue", 32, "queue taken over"),
    "late_done_ignored": Shown("queue", 4, "queue again"),
    "no_limit": Shown("queue", 4, "queue over the limit"),
}


MORE: Final = 8
"""Seeds that are tried where the known one shows nothing: a change of what runs may change it."""


def seeds_of(name: str) -> list[int]:
    """The known seed first, then others."""
    return by_seeds.seeds_of(SHOWN_BY[name].seed, MORE)


def planted(name: str) -> AbstractContextManager[ModuleType]:
    """In this block the program has the bug; the engine's module is given."""
    return by_seeds.planted(name, BUGS)


def find(name: str, mode: str, seeds: Sequence[int]) -> tuple[int, ViolationError | None]:
    """The first of these seeds that shows the bug, and what broke."""
    return by_seeds.first_shown(name, BUGS, (with_cohort(seed, modes=(mode,)) for seed in seeds), run_seed)


def main() -> None:
    """A table of bugs with the first seed that shows each."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted.cohorts", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="bugs; by default all that clusters find")
    parser.add_argument("--seeds", type=int, default=20, help="how many are tried for each, from 1 on")
    given = parser.parse_args()
    print("| planted bug | mode | seed | named by |\n|---|---|--:|---|")
    for name in given.names or SHOWN_BY:
        mode = SHOWN_BY[name].mode if name in SHOWN_BY else "queue"
        seed, broken = find(name, mode, range(1, given.seeds + 1))
        found = f"not up to {seed}" if broken is None else str(seed)
        print(f"| {name} | {mode} | {found} | {str(broken or '')[:100]} |", flush=True)


if __name__ == "__main__":
    main()

"""Bugs of cohorts that a whole cluster shows, one at a time, in the control plane and in the consumer.

The gate of one owner has bugs of its own, which its stories and walks find (`core/node/src/cohorts/gate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from ringfence.consumer import bodies
from ringfence.consumer.beats import Beats
from ringfence.consumer.routes import Routes
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.cohorts import gates
from tests.sim.checks.violation import ViolationError
from tests.sim.cohorts import run_seed, with_cohort
from tests.sim.planted.__main__ import broken_by

Patch = pytest.MonkeyPatch


def _lease_is_not_looked_at(patch: Patch) -> None:
    """A member gives what it fetched however late it is (CG12)."""
    patch.setattr(Beats, "is_valid", lambda *_: True)


def _reopening_skips_a_row(patch: Patch) -> None:
    """A member that comes back to a partition goes on one row behind where the cohort stands."""
    original = bodies.fetched_of

    def fetched_of(call: Any, answer: Any) -> Any:
        reply = original(call, answer)
        is_behind = call.reopen and reply.sealed_end is None and 0 < reply.start < reply.end - 1
        return replace(reply, start=reply.start + 1) if is_behind else reply

    patch.setattr(bodies, "fetched_of", fetched_of)


def _children_at_once(patch: Patch) -> None:
    """The gate of a child waits for no parent (CD5)."""
    patch.setattr(gates, "waits_for", lambda *_: ())


def _no_barrier(patch: Patch) -> None:
    """After a seek a partition does not wait for its relatives (CD6)."""
    patch.setattr(gates, "barrier_of", lambda *_: frozenset())


def _members_change_no_rules(patch: Patch) -> None:
    """Rules are derived for cohorts whose own record changed, not for those whose plan did."""
    original = gates.cohorts_to_derive

    def changed(before: Any, after: Any) -> Any:
        members = {
            number
            for number in after.cohorts
            if before.cohort_members.get(number) is not after.cohort_members.get(number)
        }
        return tuple(one for one in original(before, after) if one not in members)

    patch.setattr(node_orders, "cohorts_to_derive", changed)


def _heir_has_the_highest_slot(patch: Patch) -> None:
    """The consumer looks for the gate of a sealed partition at another child than nodes do (PB19)."""

    def node_of(self: Any, partition: int) -> int | None:
        entry = None if self.layout is None else self.layout.partitions.get(partition)
        if entry is None:
            return None
        is_active = entry in self.layout.active
        return int(entry.owner if is_active else self.layout.active[-1].owner)

    patch.setattr(Routes, "node_of", node_of)


BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    "lease_is_not_looked_at": _lease_is_not_looked_at,
    "reopening_skips_a_row": _reopening_skips_a_row,
    "children_at_once": _children_at_once,
    "no_barrier": _no_barrier,
    "members_change_no_rules": _members_change_no_rules,
    "heir_has_the_highest_slot": _heir_has_the_highest_slot,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """In this block the program has the bug."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield


def find(name: str, seeds: Sequence[int]) -> tuple[int, ViolationError | None]:
    """The first of these seeds that shows the bug, and what broke."""
    for seed in seeds:
        with planted(name):
            result = run_seed(with_cohort(seed))
        broken = broken_by(result.violation)
        if broken is not None:
            return seed, broken
    return seeds[-1], None

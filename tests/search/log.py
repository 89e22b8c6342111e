"""The metadata log of a searched world: the product's own machine, its answers remembered.

States of the metadata, orders and answers get small numbers, so that a state of the world is a tuple of
integers and equal questions to the product's pure functions are asked once.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.results import Refused
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.reassignment.messages import (
    OrderVerdict,
    ReassignmentAnswer,
    ReassignmentOrder,
    evaluate_order,
)
from ringfence.control.state_machines.reassignment.move_phases import (
    Decision,
    Observed,
    advance,
    begin_phase,
    observe,
)
from tests.fakes.metadata_commands import entry

NOW_MS = 1_000
"""All time stands still: what has a time limit is aborted at any moment instead."""


class Numbers:
    """Values by small numbers, in the order in which they were met; 0 is None."""

    def __init__(self) -> None:
        self._values: list[Any] = [None]
        self._numbers: dict[Hashable, int] = {None: 0}

    def of(self, value: Hashable) -> int:
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self._values)
            self._values.append(value)
        return known

    def __getitem__(self, number: int) -> Any:
        return self._values[number]


class Log:
    """Prefixes of metadata logs, each a number: what was committed, in one order or another."""

    def __init__(self, state: MetadataState, index: int, partition: PartitionId) -> None:
        self.partition = partition
        self.states, self.indexes, self.parents = [state], [index], [-1]
        self._after: dict[tuple[int, Command], int | None] = {}
        self.propose = cache(self._propose)
        self.path = cache(self._path)
        self.carried = cache(self._carried)
        self.standing = cache(self._standing)
        self.advance = cache(self._advance)

    def _propose(self, at: int, command: Command) -> int | None:
        """The log with one entry more; None if it is refused: that changes nothing."""
        index = self.indexes[at] + 1
        after, result = apply(self.states[at], entry(index, command))
        if isinstance(result, Refused) or after is self.states[at]:
            return None
        invariants.check_step(self.states[at], after, index)
        self.states.append(after)
        self.indexes.append(index)
        self.parents.append(at)
        return len(self.states) - 1

    def _path(self, at: int) -> tuple[int, ...]:
        return () if at < 0 else (*self._path(self.parents[at]), at)

    def next_of(self, applied: int, at: int) -> int | None:
        """The prefix behind `applied` on the way to `at`."""
        path = self.path(at)
        place = path.index(applied) + 1
        return path[place] if place < len(path) else None

    def _carried(self, before: int, after: int, here: Replica) -> tuple[Any, ...]:
        """What the node at `here` does when it goes from one prefix to another; -1 is the empty state."""
        old, new = EMPTY if before < 0 else self.states[before], self.states[after]
        return tuple(order for phase in node_orders.between(old, new, here) for order in phase)

    def _standing(self, applied: int, order: ReassignmentOrder, here: Replica) -> OrderVerdict:
        return evaluate_order(self.states[applied], self.indexes[applied], order, here)

    def _advance(self, at: int, observed: Observed | None) -> tuple[Observed | None, Decision]:
        change = self.states[at].changes.get(self.partition)
        if change is None:
            return None, Decision()
        current = begin_phase(change, NOW_MS, observed)
        return current, advance(self.states[at], change, current, NOW_MS)

    @staticmethod
    def observe(
        observed: Observed | None, order: ReassignmentOrder, answer: ReassignmentAnswer
    ) -> Observed | None:
        return None if observed is None else observe(observed, order, answer)

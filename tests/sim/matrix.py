"""`python -m tests.sim.matrix`: every step of a move x who is struck x how; exit 1 where one ends wrongly.

Then the same of a transaction's commit (commits.py). Of moves:
Four nodes, one partition with three replicas (with one, where the seed is even) and rows on their way; it
moves from its owner to the node that has nothing of it. When a step has become durable for the first time,
one strike hits one of those concerned; half of the strikes last longer than the time-out of failures. Then
peace: the move is committed or rolled back, all chains are equal, nothing of a copy or of a change is left,
every acknowledged row is there once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any, Final

from ringfence.native import _node
from tests.sim import commits, matrix_runs, simulation
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.faults.plan import Plan, level_without_layouts
from tests.sim.faults.struck import Cell, Struck, cells_of
from tests.sim.simulation import TOPIC, Result
from tests.sim.world import birth
from tests.sim.world.machine import Machine

MACHINES: Final = 4
SECONDS: Final = 7
BEGIN_US: Final = 400_000
ENTRIES: Final = ("prepared", "held", "committed", "opened", "gone")
"""Of the metadata, when the first node has applied them."""
ORDERS: Final = ("receive_start", "sync_start", "hold", "adopt", "open", "drop")
"""Of the engines concerned: their records are on disk."""
STEPS: Final = (*ENTRIES, *ORDERS)
VICTIMS: Final = ("source", "target", "leader", "client")
QUIET: Final = Cell("none", "nobody", "nothing", "short")
"""Nobody is struck: such a move must be committed."""


def cells() -> Iterator[Cell]:
    yield from cells_of(STEPS, VICTIMS)


def plan_of(seed: int) -> Plan:
    """A quiet cluster. What is late, and how long, is the seed's; with an even one rows have one replica."""
    return Plan(
        seed=seed,
        machines=MACHINES,
        shards=1,
        segment_bytes=65_536,
        producers=2,
        send_us=20_000,
        partitions=1,
        power=1.0,
        loss=0.0,
        double=0.0,
        overtake=0.0,
        delay_us=200,
        jitter_us=300,
        slow=0.0,
        seconds=SECONDS,
        replication=3 if seed % 2 else 1,
        moves=True,
        level=level_without_layouts(seed),
        newest=level_without_layouts(seed),
        limits=(("reverse_hold_s", 0), ("sync_bytes_per_s", 2_000_000)),
    )


class Moved(Struck):
    """One move, struck once."""

    def __init__(self, plan: Plan, native: ModuleType, cell: Cell, ends: list[str]) -> None:
        super().__init__(plan, native, cell, ends)
        self._partition = self._change = 0
        self._before: tuple[int, ...] = ()
        self._after: tuple[int, ...] = ()

    # ---- the move ----

    def act(self) -> None:
        """The move is asked for, again and again, until the log has it."""
        state = self.machines[0].replica.state if self.machines[0].serving else None
        topic = None if state is None else state.topic_named(f"public/default/{TOPIC}")
        if state is None or topic is None or state.config.get("reverse_hold_s") != 0:
            self.agenda.after(BEGIN_US, self.act)
            return
        if self._change or self.healed:
            return
        ((partition, assignment),) = topic.assignments.items()
        owner, others = int(assignment.owner.node), [int(each.node) for each in assignment.replicas]
        others.remove(owner)
        target = next(int(node) for node in state.nodes if node not in {owner, *others})
        self._partition, self._before, self._after = int(partition), (owner, *others), (target, *others)
        self.mover.chosen([(self._partition, self._after)])
        self.agenda.after(BEGIN_US, self.act)

    def changed(self, before: Any, after: Any) -> None:
        """Which step of the move an entry was."""
        was, now = before.changes.get(self._partition), after.changes.get(self._partition)
        if not self._partition or was is now:
            return
        if now is not None and not self._change and now.kind == "MOVE":
            self._change = int(now.change)
            self.begins()
        if now is not None and now.change == self._change:
            self.step(str(now.phase).lower())
        elif was is not None and was.change == self._change:
            self.step("gone")

    def carried_out(self, machine: Machine, order: str, args: tuple[Any, ...]) -> None:
        """Which step of the move an engine's order was."""
        if not self._change or order not in ORDERS:
            return
        if order == "open" and args[4] <= self._change:
            return
        self.step(order)

    # ---- who is meant ----

    def machine_meant(self) -> Machine | None:
        return self.by_node(self._before[0] if self.cell.victim == "source" else self._after[0])

    def clients_meant(self) -> list[ClusterClient]:
        return [*self.publishers]

    def seen_by_clients(self) -> list[Machine | None]:
        """Both ends of the move."""
        return [self.by_node(self._before[0]), self.by_node(self._after[0])]

    # ---- the end ----

    def _tries(self) -> int:
        state = self.machines[0].replica.state
        return max((move.attempts for move in state.moves.values()), default=0)

    def _why(self) -> str:
        state = self.machines[0].replica.state
        return "; ".join(sorted({move.error for move in state.moves.values()}))

    def settled(self) -> None:
        """Committed or rolled back; the harm was done."""
        if not self._change:
            raise ViolationError("matrix", "the move never began")
        if not self.struck_us and self.cell != QUIET:
            raise ViolationError("matrix", f"the move never came to {self.cell.step}")
        state = self.machines[0].replica.state
        (assignment,) = state.topic_named(f"public/default/{TOPIC}").assignments.values()
        nodes = {int(place.node) for place in assignment.replicas}
        if self.cell == QUIET and self._tries() > 1:
            raise ViolationError(
                "I13", f"nothing went wrong, and it took {self._tries()} tries: {self._why()}"
            )
        if nodes == set(self._after):
            self.ends.append("committed")
        elif nodes == set(self._before) and self.cell == QUIET:
            raise ViolationError("I13", f"nothing went wrong, and the move was rolled back: {self._why()}")
        elif nodes == set(self._before):
            self.ends.append("rolled back")
        else:
            raise ViolationError("I13", f"replicas are {nodes}, before {self._before}, wanted {self._after}")


def run(
    cell: Cell, seed: int = 1, native: ModuleType = _node, *, is_told: bool = False
) -> tuple[Result, str]:
    """One cell's result, and how its move, or its first commit, ended."""
    ends: list[str] = []
    is_commit = cell.step in commits.STEPS
    plan = commits.plan_of(seed) if is_commit else plan_of(seed)
    made = partial(_made, commits.Committed if is_commit else Moved, cell, ends)
    result = simulation.run(plan, native, is_told=is_told, make=made)
    return result, ends[0] if ends else ""


def _made(
    kind: type[Moved | commits.Committed], cell: Cell, ends: list[str], plan: Plan, native: ModuleType
) -> Struck:
    return kind(plan, native, cell, ends)


def _born(seed: int) -> None:
    del seed
    birth.born(MACHINES)


def main() -> int:
    every = [QUIET, *cells(), *commits.cells()]
    return matrix_runs.main("python -m tests.sim.matrix", __doc__, run, _born, every)


if __name__ == "__main__":
    sys.exit(main())

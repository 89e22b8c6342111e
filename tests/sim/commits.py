"""The first commits of a transactional writer, struck once: the matrix's second flow.

Four nodes, two partitions with three replicas, a writer and two producers. When a step of a commit has become
durable for the first time, one strike hits the owner of what is staged, the leader or the writer; or the
partition moves to the node that has nothing of it. Then peace: whole in both partitions, or in none.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.faults.plan import Plan, level_without_layouts
from tests.sim.faults.struck import Cell, Struck, cells_of
from tests.sim.simulation import TOPIC
from tests.sim.world.machine import Machine

MACHINES: Final = 4
SECONDS: Final = 6
ENTRIES: Final = ("begun", "decided", "confirmed")
"""Of the metadata, when the first node has applied them."""
ORDERS: Final = ("install_scopes", "count_staged", "publish")
"""Of the engines, when they have ended; the second and third with rows on a quorum."""
STEPS: Final = (*ENTRIES, *ORDERS)
VICTIMS: Final = ("owner", "leader", "client")


def cells() -> Iterator[Cell]:
    yield from cells_of(STEPS, VICTIMS)
    for step in STEPS:
        yield Cell(step, "owner", "move", "short")


def plan_of(seed: int) -> Plan:
    return Plan(
        seed=seed,
        machines=MACHINES,
        shards=1,
        segment_bytes=65_536,
        producers=2,
        send_us=40_000,
        partitions=2,
        power=1.0,
        loss=0.0,
        double=0.0,
        overtake=0.0,
        delay_us=200,
        jitter_us=300,
        slow=0.0,
        seconds=SECONDS,
        replication=3,
        moves=True,
        level=level_without_layouts(seed),
        newest=level_without_layouts(seed),
        limits=(("reverse_hold_s", 0),),
        writers=1,
        commit_us=30_000,
    )


class Committed(Struck):
    """Epochs of one writer."""

    def __init__(self, plan: Plan, native: ModuleType, cell: Cell, ends: list[str]) -> None:
        super().__init__(plan, native, cell, ends)
        self._partition = 0
        """What the harm goes by: where the first order about staged rows was, before that the first one."""

    def changed(self, before: Any, after: Any) -> None:
        """Which step an entry was."""
        for number, scope in after.scopes.items():
            was = before.scopes.get(number)
            if was is None:
                self.begins()
                self.step("begun")
            elif scope.committed > was.committed:
                self.step("decided")
            elif was.pending and not scope.pending:
                self.step("confirmed")

    def carried_out(self, machine: Machine, order: str, args: tuple[Any, ...]) -> None:
        """Which step an engine's order was."""
        if order in {"count_staged", "publish"}:
            self._partition = self._partition or int(args[1])
            self.step(order)
        elif order == "install_scopes" and args[0]:
            self.step(order)

    def harm(self) -> None:
        if self.cell.harm != "move":
            super().harm()
            return
        self.tell("*", str(self.cell))
        partition, owner, others = self._meant()
        nodes = {int(node) for node in self._state().nodes}
        target = min(nodes - {owner, *others})
        self.mover.chosen([(partition, (target, *others))])

    def machine_meant(self) -> Machine | None:
        return self.by_node(self._meant()[1])

    def disks_meant(self) -> list[Machine]:
        """Which of the owners it will be is not known at the beginning."""
        if self.cell.victim != "owner":
            return super().disks_meant()
        assignments = self._state().topic_named(f"public/default/{TOPIC}").assignments
        owners = {int(assignment.owner.node) for assignment in assignments.values()}
        return [machine for machine in self.machines if self.node_of(machine) in owners]

    def clients_meant(self) -> list[ClusterClient]:
        return [*self.writers]

    def seen_by_clients(self) -> list[Machine | None]:
        return [self.machine_meant()]

    def _state(self) -> Any:
        return self.watch.newest[1]

    def _meant(self) -> tuple[int, int, list[int]]:
        """A partition, its owner, its other replicas."""
        assignments = self._state().topic_named(f"public/default/{TOPIC}").assignments
        partition = self._partition or min(map(int, assignments))
        assignment = assignments[partition]
        owner = int(assignment.owner.node)
        return partition, owner, [int(each.node) for each in assignment.replicas if each.node != owner]

    def settled(self) -> None:
        """The harm was done, and the writer went on behind it."""
        if not self.struck_us:
            raise ViolationError("matrix", f"no commit came to {self.cell.step}")
        if not self.counts["epoch_acknowledged"]:
            raise ViolationError("I13", "no epoch was acknowledged at all")
        first = min((epoch for _, epoch in self.scopes.decided), default=0)
        self.ends.append("committed" if first == 1 else "begun anew")

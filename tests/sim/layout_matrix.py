"""`python -m tests.sim.layout_matrix`: each step of a layout change x who is struck; exit 1 at a wrong end.

Five nodes, rows with keys on their way. By the seed one partition is split, two are merged, or two become
three, with three replicas or (every fourth seed) with one. When a step has happened for the first time, one
of those concerned is struck; half of the strikes last longer than the time-out of failures. Then peace: the
change is committed or aborted, each row is there once, sealed logs end as their COMMIT says, and no disk has
an orphan. Twenty cells, other ones each day; all of them with `--all`.
"""

from __future__ import annotations

import sys
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, Final

from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    FinalizeLayout,
    HoldLayout,
    PrepareLayout,
    PrunePartitions,
)
from ringfence.control.model.reassignments import ChangePhase
from ringfence.native import _node
from tests.sim import matrix_runs, simulation
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.faults.plan import Plan
from tests.sim.faults.struck import Cell, Struck, cells_of
from tests.sim.simulation import TOPIC, Result
from tests.sim.world import birth
from tests.sim.world.machine import Machine

MACHINES: Final = 5
SECONDS: Final = 7
BEGIN_US: Final = 300_000
DAILY: Final = 20
PROPOSED: Final[dict[Any, str]] = {
    PrepareLayout: "prepare_proposed",
    HoldLayout: "hold_proposed",
    CommitLayout: "commit_proposed",
    ConfirmLayout: "confirm_proposed",
    FinalizeLayout: "finalize_proposed",
    PrunePartitions: "prune_proposed",
    AbortLayout: "abort_proposed",
}
"""Entries that a node wants, and the log has not yet."""
ENTRIES: Final = ("prepared", "held", "committed", "opened", "finalized", "pruned", "aborted")
"""When the first node has applied them."""
APPLIED: Final = ("source_applied", "child_applied")
"""The COMMIT, at the owner of a source, or of a child."""
ORDERS: Final = ("created", "inherited", "sealed", "rest_inherited", "open_sealed", "dropped")
"""Of engines: their records are on disk."""
DELETED: Final[dict[str, ChangePhase]] = {
    "deleted_prepared": ChangePhase.PREPARED,
    "deleted_held": ChangePhase.HELD,
    "deleted_committed": ChangePhase.COMMITTED,
    "deleted_opened": ChangePhase.OPENED,
}
"""The topic is gone: an administrator asked for that as soon as the change had this phase."""
WRITTEN: Final[dict[str, str]] = {
    "epoch_moved": "moved",
    "stage_read": "stage_read",
    "restaged": "restaged",
    "epoch_acknowledged": "acknowledged",
}
"""Of a transactional writer whose rows lie in a source: its COMMIT was refused; it was told what is staged
there; those rows are staged again in children; a COMMIT was acknowledged. By what its driver counts."""
STEPS: Final = (*PROPOSED.values(), *ENTRIES, *APPLIED, *ORDERS, *DELETED, *WRITTEN.values())
ABORTED: Final = frozenset({"abort_proposed", "aborted", "dropped"})
"""Steps of a change that an operator aborts once it is held; every other change is to be committed."""
PRUNED: Final = frozenset({"prune_proposed", "pruned"})
"""Steps that need the sources to be emptied."""
ONLY_FORWARD: Final = frozenset(
    {
        "committed",
        "opened",
        "confirm_proposed",
        "finalize_proposed",
        "finalized",
        "open_sealed",
        *APPLIED,
        *PRUNED,
        "moved",
        "stage_read",
        "restaged",
    }
)
"""Steps after which the change is committed, whoever is struck."""
VICTIMS: Final = ("leader", "source", "source_follower", "child", "child_follower", "client")
"""The last are all producers and the reader; at a writer's steps its driver dies, and the next goes on."""
QUIET: Final = Cell("none", "nobody", "nothing", "short")
"""Nobody is struck: such a change is committed."""


def cells() -> list[Cell]:
    return list(cells_of(STEPS, VICTIMS))


def cells_of_day(day: int, count: int = DAILY) -> list[Cell]:
    """Other ones each day."""
    return Random(f"cells {day}").sample(cells(), count)


def plan_of(seed: int, *, writers: int = 0) -> Plan:
    """A quiet cluster at the level of layout changes. Writers commit late."""
    return Plan(
        seed=seed,
        machines=MACHINES,
        shards=1,
        segment_bytes=65_536,
        producers=2,
        send_us=20_000,
        partitions=1 if seed % 3 == 1 else 2,
        power=1.0,
        loss=0.0,
        double=0.0,
        overtake=0.0,
        delay_us=200,
        jitter_us=300,
        slow=0.0,
        seconds=SECONDS,
        replication=1 if seed % 4 == 0 else 3,
        moves=True,
        layouts=True,
        newest=LAYOUT_LEVEL,
        level=LAYOUT_LEVEL,
        writers=writers,
        late_commits=1.0,
        limits=(
            ("reverse_hold_s", 0),
            ("repartition_adoption_timeout_ms", 300),
            ("stage_wait_ms", 0),
            ("layout_timeout_ms", 5_000),
            ("resolve_keep_s", 1),
        ),
    )


class Changed(Struck):
    """One layout change, struck once."""

    _transition: Transition | None = None

    def __init__(self, plan: Plan, native: ModuleType, cell: Cell, ends: list[str]) -> None:
        super().__init__(plan, native, cell, ends)
        self._end = ""
        self._sources: tuple[Any, ...] = ()

    # ---- the change ----

    def act(self) -> None:
        """The change is asked for, again and again, until the log has it."""
        state = self.watch.newest[1]
        topic = None if state is None else state.topic_named(f"public/default/{TOPIC}")
        is_ready = topic is not None and state.config.get("resolve_keep_s") == 1  # type: ignore[union-attr]
        if self._transition is None and not self.healed:
            if is_ready and all(client.ready for client in self.publishers) and self._are_staged():
                parts = [int(part.partition) for part in topic.layout.active()]  # type: ignore[union-attr]
                match self.plan.seed % 3:
                    case 1:
                        self.layouter.ask_for("split", parts[:1], into=2)
                    case 2:
                        self.layouter.ask_for("merge", parts[:2])
                    case _:
                        self.layouter.ask_for("repartition", [], into=3)
            self.agenda.after(BEGIN_US, self.act)

    def _are_staged(self) -> bool:
        """Each writer waits before its COMMIT."""
        return all(writer.is_late for writer in self.writers)

    def count(self, what: str) -> None:
        super().count(what)
        if self._transition is not None and what in WRITTEN:
            self.step(WRITTEN[what])

    def proposes(self, machine: Machine, command: Any) -> None:
        name = PROPOSED.get(type(command))
        if name is not None:
            if self._transition is None and isinstance(command, PrepareLayout):
                self._expect(command)
            self.step(name)

    def _expect(self, command: PrepareLayout) -> None:
        """Who will be concerned, before the log says so."""
        state = self.watch.newest[1]
        assert state is not None
        topic = state.topics[command.topic]
        self._sources = tuple(topic.assignments[source] for source, _ in command.sources)
        self._children = tuple(tuple(int(node) for node in child.nodes) for child in command.children)

    def changed(self, before: Any, after: Any) -> None:
        super().changed(before, after)
        if self.cell.step in DELETED and before.topics.keys() - after.topics.keys():
            self.step(self.cell.step)
        if before.transitions is after.transitions:
            self._note_pruned(before, after)
            return
        known = self._transition
        if known is None and after.transitions:
            known = self._transition = next(iter(after.transitions.values()))
            topic = after.topics[known.topic]
            self._sources = tuple(topic.assignments[source] for source in known.sources)
            self._children = tuple(
                tuple(int(place.node) for place in child.replicas) for child in known.children
            )
            self.begins()
        if known is None:
            return
        was, now = before.transitions.get(known.change), after.transitions.get(known.change)
        if now is not None and now is not was and (was is None or was.phase is not now.phase):
            self.step(str(now.phase).lower())
            if now.phase is ChangePhase.HELD and self.cell.step in ABORTED:
                self.agenda.after(0, lambda: self.layouter.ask_for("abort", [], change=int(known.change)))
            if now.phase is ChangePhase.OPENED and self.cell.step in PRUNED:
                self.agenda.after(0, self._empty)
            if now.phase is DELETED.get(self.cell.step):
                self.agenda.after(0, self._delete)
        if was is not None and now is None:
            self._end = "aborted" if was.may_abort else "finalized"
            self.step(self._end)

    def _empty(self) -> None:
        """The sources' rows are given up until they are pruned."""
        if not self.healed:
            self.layouter.empty_sealed(Random(f"empty {self.agenda.now_us}"))
            self.agenda.after(BEGIN_US, self._empty)

    def _delete(self) -> None:
        """The topic with its rows, until it is gone."""
        state = self.watch.newest[1]
        if state is not None and state.topic_named(f"public/default/{TOPIC}") is not None:
            self.admin.deletes(TOPIC)
            self.agenda.after(BEGIN_US, self._delete)

    def _note_pruned(self, before: Any, after: Any) -> None:
        known = self._transition
        topic = None if known is None else after.topics.get(known.topic)
        if topic is None or known is None or topic is before.topics[known.topic]:
            return
        if any(source not in topic.assignments for source in known.sources):
            self.step("pruned")

    def applied(self, machine: Machine, before: Any, after: Any) -> None:
        """A node applied the COMMIT."""
        known = self._transition
        if known is None or before.transitions is after.transitions:
            return
        was, now = before.transitions.get(known.change), after.transitions.get(known.change)
        if was is not None and was.may_abort and now is not None and not now.may_abort:
            if machine.node_id in {int(one.owner.node) for one in self._sources}:
                self.step("source_applied")
            if machine.node_id in {nodes[0] for nodes in self._children}:
                self.step("child_applied")

    def carried_out(self, machine: Machine, order: str, args: tuple[Any, ...]) -> None:
        """An engine has ended an order of the change."""
        known = self._transition
        if known is None or len(args) < 2 or not isinstance(args[1], int):
            return
        state = self.watch.newest[1]
        is_held = (
            state is not None
            and known.change in state.transitions
            and (state.transitions[known.change].phase is ChangePhase.HELD)
        )
        is_child = args[1] in {int(child.partition) for child in known.children}
        name = {"open": "created", "follow": "created", "drop": "dropped", "release": "dropped"}.get(order)
        if is_child and name is not None:
            self.step(name)
        elif order == "table_in":
            self.step("rest_inherited" if is_held else "inherited")
        elif order == "hold" and args[1] in {int(source) for source in known.sources}:
            self.step("sealed")
        elif order == "open_sealed":
            self.step("open_sealed")

    # ---- who is meant ----

    def machine_meant(self) -> Machine | None:
        source, child = self._sources[0], self._children[-1]
        nodes = {
            "source": int(source.owner.node),
            "source_follower": int(source.replicas[-1].node),
            "child": child[0],
            "child_follower": child[-1],
        }
        return self.by_node(nodes[self.cell.victim])

    def clients_meant(self) -> list[ClusterClient]:
        return [*self.publishers, self.consumer, *self.writers]

    def _harm_clients(self, span_us: int) -> None:
        super()._harm_clients(span_us)
        if self.cell.harm in {"kill", "power"}:
            for writer in self.writers:
                writer.dies()

    def seen_by_clients(self) -> list[Machine | None]:
        """Owners of a source and of a child."""
        return [self.by_node(int(self._sources[0].owner.node)), self.by_node(self._children[-1][0])]

    # ---- the end ----

    def settled(self) -> None:
        """Committed or aborted; the harm was done."""
        if self._transition is None:
            raise ViolationError("matrix", "the layout change never began")
        if not self.struck_us and self.cell != QUIET:
            self.ends.append("never came to the step")
            return
        if not self._end:
            raise ViolationError("I13", "the layout change has no end")
        if self.cell.step in DELETED:
            self.ends.append("deleted")
            return
        is_whole = self._end == "finalized"
        if not is_whole and (self.cell == QUIET or self.cell.step in ONLY_FORWARD):
            raise ViolationError("I13", f"the layout change was {self._end}")
        self.ends.append("committed" if is_whole else "aborted")


def run_cell(
    cell: Cell, seed: int = 1, native: ModuleType = _node, *, is_told: bool = False
) -> tuple[Result, str]:
    """One cell's result, and how its layout change ended."""
    ends: list[str] = []
    plan = plan_of(seed, writers=int(cell.step in WRITTEN.values()))
    result = simulation.run(plan, native, is_told=is_told, make=partial(_made, cell, ends))
    return result, ends[0] if ends else ""


def _made(cell: Cell, ends: list[str], plan: Plan, native: ModuleType) -> Changed:
    return Changed(plan, native, cell, ends)


played = partial(matrix_runs.played, run_cell)


def _born(seed: int) -> None:
    plan = plan_of(seed)
    birth.born(plan.machines, plan.level, plan.newest)


def main() -> int:
    every = [QUIET, *cells()]
    return matrix_runs.main(
        "python -m tests.sim.layout_matrix", __doc__, run_cell, _born, every, cells_of_day
    )


if __name__ == "__main__":
    sys.exit(main())

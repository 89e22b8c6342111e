"""`python -m tests.sim.cohort_matrix`: each step of a cohort's life x who is struck x how.

Three nodes that vote, rows with keys, a topic with one partition or two, and a cohort: of a STREAM, a QUEUE
or a CHECKPOINT, as the step has it. One member begins, another joins later; then what the step needs is asked
for. When a step has happened for the first time, one of those concerned is struck. Then rows are settled
again without an operator; in peace each row is settled, each gate of an ordered cohort has a holder, and
every promise of the mode was kept. Twenty cells, other ones each day; all of them with `--all`.
"""

from __future__ import annotations

import sys
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, Final

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.runtime.cohorts.figures import gate_owners
from ringfence.control.state_machines.metadata.cohort_lineage import has_mark
from ringfence.native import _node
from tests.sim import cohort_script, matrix_runs, simulation
from tests.sim.checks.cohorts import CohortRecord
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.member_process import MemberProcess
from tests.sim.cohort_steps import LAYOUT, MEMBERS, MODES, QUIET, cells, span_us
from tests.sim.cohorts import CohortPlan, CohortSimulation
from tests.sim.faults.struck import SPANS_US, Cell, Struck
from tests.sim.simulation import Result
from tests.sim.world import birth
from tests.sim.world.machine import Machine
from tests.sim.world.network import Network
from tests.sim.world.world import SECOND_US

DAILY: Final = 20
LOOK_US: Final = 1_000
STEPS_S: Final = 5
"""Every step has come by then."""
WAIT_S: Final = 6
"""After a harm rows are settled again: a failover takes 2 s, an owner waits 1 s for that of before."""
GONE_S: Final = 16
"""After a member was struck for long: its grace of 12 s, a plan, and a lease of 10 s meanwhile."""
SEEK_S: Final = 12
"""A seek waits for the leases of the incarnation before."""
PROGRESS: Final = ("settlement_taken", "rows_done", "rows_saved")
"""What grows while rows are settled, whatever the mode."""


def plan_of(cell: Cell, seed: int) -> CohortPlan:
    """A quiet cluster, long enough for the harm and what follows."""
    steps_s = STEPS_S + (SEEK_S if cell.step == "begun" else 0)
    return CohortPlan(
        seed=seed,
        machines=3,
        shards=1,
        segment_bytes=65_536,
        producers=1,
        send_us=150_000,
        partitions=1 + (seed % 2),
        power=1.0,
        loss=0.0,
        double=0.0,
        overtake=0.0,
        delay_us=200,
        jitter_us=300,
        slow=0.0,
        seconds=steps_s + -(-wait_us(cell) // SECOND_US) + 2,
        replication=3,
        moves=True,
        layouts=True,
        newest=COHORT_LEVEL,
        level=COHORT_LEVEL,
        rows_max=16,
        limits=(("reverse_hold_s", 0), ("repartition_adoption_timeout_ms", 300), ("resolve_keep_s", 1_200)),
        members=1,
        modes=(MODES.get(cell.step, "stream"),),
    )


def wait_us(cell: Cell) -> int:
    """After a strike rows are settled again within this time, if all goes as it must."""
    is_gone = cell.victim in MEMBERS and cell.span != "short"
    own_us = GONE_S * SECOND_US if is_gone else WAIT_S * SECOND_US + span_us(cell)
    return own_us + (SEEK_S * SECOND_US if cell.step == "sought" else 0)


class ControlNetwork(Network):
    """A network that can lose what control planes say to each other, while clients and replicas go on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.away: set[str] = set()
        """Machines whose control planes say and hear nothing."""

    def send(self, link: tuple[str, str], *rest: Any) -> None:
        if self.away.isdisjoint(link):
            super().send(link, *rest)
        else:
            self.counts["message_cut"] += 1


class StruckCohort(Struck, CohortSimulation):
    """One cohort, struck once."""

    def __init__(self, plan: CohortPlan, native: ModuleType, cell: Cell, ends: list[str]) -> None:
        super().__init__(plan, native, cell, ends)
        weather, dice = self.network.weather, Random(f"network {plan.seed}")
        self.network: ControlNetwork = ControlNetwork(self.agenda, dice, self.counts, self.trace)
        self.network.weather = weather
        for machine in self.machines:
            machine.network = self.network
        (self.cast,) = self.casts
        self.partition = PartitionId(0)
        self._before = -1
        """Rows settled when those of the time of the harm must be settled again; -1: not yet."""

    # ---- the cohort's life ----

    def act(self) -> None:
        cohort_script.prepare(self)
        super().act()
        self.begins()
        self._look()
        cohort_script.play(self, self.cell.step)

    def changed(self, before: Any, after: Any) -> None:
        super().changed(before, after)
        topic = self.topic_of(after)
        if before is after or topic is None or not self.casts:
            return
        if not self.partition:
            self.partition = PartitionId(topic.layout.active()[0].partition)
        record = self.casts[0].record
        for step in cohort_script.steps_between(record, before, after, self.partition):
            self.step(step)

    def begins(self) -> None:
        """A disk is late once the nodes are known."""
        self.agenda.after(SECOND_US // 2, super().begins)

    def count(self, what: str) -> None:
        super().count(what)
        if what == "hold_given":
            record = self.casts[0].record
            assert isinstance(record, CohortRecord)
            is_first = record.holds[-1].member.startswith("m1")
            self.step("held" if is_first else "handed_over")
        elif what == "settlement_taken":
            self.step("reported" if self.cohort_plan.modes[0] == "checkpoint" else "acknowledged")

    def _look(self) -> None:
        """What counts alone show, until the strike."""
        if self.struck_us or self.healed:
            return
        for name in cohort_script.steps_counted(self):
            if name == self.cell.step:
                self.step(name)
        self.agenda.after(LOOK_US, self._look)

    # ---- who is meant ----

    def machine_meant(self) -> Machine | None:
        topic = self.topic_of(self.watch.newest[1])
        match self.cell.victim:
            case "home":
                home = self._holder()._home
                return home if home is not None else self.machines[0]
            case "rows_owner":
                return self.by_node(int(topic.assignments[self.partition].owner.node))
            case _:
                return self.by_node(int(gate_owners(topic)[self.partition]))

    def clients_meant(self) -> list[ClusterClient]:
        return [self._member_meant()]

    def seen_by_clients(self) -> list[Machine | None]:
        return [*self.machines]

    def _holder(self) -> MemberProcess:
        record, processes = self.cast.record, self.cast.processes
        holds = record.holds if isinstance(record, CohortRecord) else []
        names = [one.member for one in holds if one.partition == self.partition]
        return next((one for one in processes.values() if names and one.name == names[-1]), processes["m1"])

    def _member_meant(self) -> MemberProcess:
        holder = self._holder()
        if self.cell.victim == "holder":
            return holder
        return next((one for one in self.cast.processes.values() if one is not holder), holder)

    # ---- harms ----

    def harm(self) -> None:
        cell, lasts_us = self.cell, span_us(self.cell)
        self.agenda.after(wait_us(cell), self._note_progress)
        if cell.victim in MEMBERS:
            self.tell("*", str(cell))
            cohort_script.strike_member(self, self._member_meant(), cell.harm, lasts_us)
        elif cell.harm in {"away", "lags"}:
            self.tell("*", str(cell))
            chosen = self.machines if cell.harm == "away" else [self._victim()]
            self.network.away.update(one.name for one in chosen)
            before = self.settled_rows()
            self.agenda.after(lasts_us, partial(self._back, before))
        elif cell.harm == "full":
            self._fill(self._victim(), lasts_us)
        else:
            super().harm()

    def _back(self, before: int) -> None:
        """Control planes hear each other again: members went on reading without them (section 7)."""
        self.network.away.clear()
        is_due = self.cell.step == "acknowledged" and self.cell.span == "long"
        if is_due and self.cell.harm == "away" and self.settled_rows() <= before:
            self.violate(ViolationError("F25", "nothing was settled while the controller was away"))

    def _fill(self, machine: Machine, lasts_us: int) -> None:
        self.tell("*", str(self.cell))
        machine.hurt.add("rows")
        used = sum(length for _, length in machine.host.disk.files())
        machine.host.disk.set_faults(capacity_bytes=used)
        self.agenda.after(lasts_us, machine.host.disk.set_faults)

    def settled_rows(self) -> int:
        return sum(self.counts[name] for name in PROGRESS)

    def _note_progress(self) -> None:
        self._before = self.settled_rows()

    # ---- the end ----

    def _heal(self) -> None:
        if self.struck_us and self.violation is None and self.settled_rows() <= self._before:
            self.violate(ViolationError("matrix", f"{self.cell}: no row was settled after the harm"))
        if self.struck_us and self._before < 0:
            self.violate(ViolationError("matrix", f"{self.cell}: the step came too late to look on"))
        super()._heal()
        self.network.away.clear()

    def _at_rest(self) -> str:
        return super()._at_rest() or self._unheld()

    def _unheld(self) -> str:
        """A partition of an ordered cohort that has no holder."""
        state = self.machines[0].replica.state
        topic, cohort = self.topic_of(state), self.cast.record.cohort(state)
        if cohort is None or not cohort.mode.is_ordered:
            return ""
        sessions = {int(one.session) for one in state.cohort_members[cohort.cohort].values()}
        owners = gate_owners(topic)
        for part in topic.layout.active():
            machine = self.by_node(int(owners[part.partition]))
            figures = [] if machine is None else machine.host.node.cohort_figures()
            holders = {one["holder"] for one in figures if one["partition"] == part.partition}
            if has_mark(state, cohort.cohort, part.partition) or holders & sessions:
                continue
            return f"partition {part.partition} has no holder, {figures}"
        return ""

    def settled(self) -> None:
        super().settled()
        if not self.struck_us and self.cell != QUIET:
            self.ends.append("never came to the step")
            return
        state = self.machines[0].replica.state
        is_open = any(one.phase is not ChangePhase.OPENED for one in state.transitions.values())
        if self.cell.step in LAYOUT and is_open:
            raise ViolationError("I13", "the layout change has no end")
        self.ends.append("sound")


def run_cell(
    cell: Cell, seed: int = 1, native: ModuleType = _node, *, is_told: bool = False
) -> tuple[Result, str]:
    """One cell's result, and how it ended."""
    ends: list[str] = []
    make = partial(_made, cell, ends)
    result = simulation.run(plan_of(cell, seed), native, is_told=is_told, make=make)
    return result, ends[0] if ends else ""


def _made(cell: Cell, ends: list[str], plan: CohortPlan, native: ModuleType) -> StruckCohort:
    return StruckCohort(plan, native, cell, ends)


def cells_of_day(day: int, count: int = DAILY) -> list[Cell]:
    """Other ones each day."""
    return Random(f"cohort cells {day}").sample(cells(), count)


def _born(seed: int) -> None:
    del seed
    birth.born(3, COHORT_LEVEL, COHORT_LEVEL)


def main() -> int:
    every = [QUIET, *cells()]
    return matrix_runs.main(
        "python -m tests.sim.cohort_matrix", __doc__, run_cell, _born, every, cells_of_day
    )


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["SPANS_US", "StruckCohort", "cells", "run_cell"]

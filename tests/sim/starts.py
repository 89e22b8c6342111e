"""A truncate that a replica misses, with three nodes: all are restarted, and that replica becomes the owner.

Rows that were given up, and answered so, never come back, whoever owns the partition in the end.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, Final

from ringfence.native import _node
from tests.sim import simulation
from tests.sim.checks.violation import ViolationError
from tests.sim.faults.plan import Plan, level_without_layouts
from tests.sim.simulation import TOPIC, Result, Simulation
from tests.sim.world import birth
from tests.sim.world.machine import Machine

MACHINES: Final = 3
SECONDS: Final = 12
LOOK_US: Final = 100_000
ROWS_MIN: Final = 40
LEVEL_US: Final = 1_000_000
"""Replicas have what was sent before, and know that a majority has it."""
BACK_US: Final = 5_000_000
"""How much later the other one is back: the two that are there have chosen an owner by then."""


def plan_of(seed: int) -> Plan:
    return Plan(
        seed=seed,
        machines=MACHINES,
        shards=1,
        segment_bytes=65_536,
        producers=1,
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
        replication=3,
        moves=True,
        level=level_without_layouts(seed),
        newest=level_without_layouts(seed),
        limits=(("reverse_hold_s", 0),),
    )


class Missed(Simulation):
    """One replica is down during the truncate, and comes back with one other."""

    def __init__(self, plan: Plan, native: ModuleType) -> None:
        super().__init__(plan, native)
        self._away: Machine | None = None
        self._is_still = self._is_asked = self._is_restarted = False
        self._still_us = 0

    def act(self) -> None:
        """The next step, when the last one has happened."""
        if not self.healed:
            self._next()
            self.agenda.after(LOOK_US, self.act)

    def _again(self, mean_us: int, call: Any) -> None:
        """Producers send nothing while all logs shall be equal."""
        super()._again(mean_us, lambda: None if self._is_still else call())

    def settled(self) -> None:
        if not self._is_restarted:
            raise ViolationError("starts", "the truncate was never answered")

    def _next(self) -> None:
        owner, part = self._owner(), next(iter(self.ledger.partitions.values()), None)
        if owner is None or part is None or self._is_restarted or self._acknowledged() < ROWS_MIN:
            return
        if not self._is_still:
            self._is_still, self._still_us = True, self.agenda.now_us
        elif self.agenda.now_us < self._still_us + LEVEL_US:
            return
        elif self._away is None:
            # Equal logs: either of the two may be chosen when the owner is gone.
            others = [machine for machine in self.machines if machine is not owner]
            self._away = others[self.plan.seed % 2]
            self._away.crash(power=True)
        elif not self._is_asked:
            self._is_asked = True
            self.admin.truncates_to(TOPIC, part, self._acknowledged())
        elif part.gone:
            self._is_restarted = True
            self._restart(owner, self._away)

    def _acknowledged(self) -> int:
        """Behind the last row that a producer was told of."""
        done = (batch for batch in self.ledger.batches.values() if batch.outcome == "done")
        return max((batch.offset + batch.rows for batch in done), default=0)

    def _restart(self, owner: Machine, away: Machine) -> None:
        """Who owned it comes last."""
        for machine in self.machines:
            if machine is not away:
                machine.crash(power=True)
            self.boot_later(machine, BACK_US if machine is owner else LOOK_US)
        self.agenda.after(BACK_US, self._go_on)

    def _go_on(self) -> None:
        self._is_still = False

    def _owner(self) -> Machine | None:
        """Where rows are taken now."""
        for machine in self.machines:
            if machine.serving and not machine.down:
                topic = machine.replica.state.topic_named(f"public/default/{TOPIC}")
                if topic is not None:
                    (assignment,) = topic.assignments.values()
                    found = self.by_node(int(assignment.owner.node))
                    return None if found is None or found.down else found
        return None


def run(seed: int = 1, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    birth.born(MACHINES)
    return simulation.run(plan_of(seed), native, is_told=is_told, make=partial(Missed))

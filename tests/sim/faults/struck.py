"""A quiet cluster that is struck once, when a step of what it does has become durable for the first time."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from tests.sim.clients.customer import ClusterClient
from tests.sim.faults.plan import Plan
from tests.sim.simulation import Simulation
from tests.sim.world.machine import Machine

HARMS: Final = ("kill", "power", "pause", "partition", "late")
"""The last: its disk is late with every group since the beginning, and it is killed."""
LATE_US: Final = (20_000, 80_000)
"""So that it has a group to lose: between two looks of the control plane at it there are 3 ms."""
SPANS_US: Final = {"short": 400_000, "long": 3_500_000}
"""The time-out of failures is 2 s."""


@dataclass(frozen=True, slots=True)
class Cell:
    step: str
    victim: str
    harm: str
    span: str

    def __str__(self) -> str:
        return f"{self.step}/{self.victim}/{self.harm}/{self.span}"


def cells_of(steps: Sequence[str], victims: Sequence[str]) -> Iterator[Cell]:
    """Each step x victim x harm x span; a client has no disk."""
    for names in itertools.product(steps, victims, HARMS, SPANS_US):
        if names[1:3] != ("client", "late"):
            yield Cell(*names)


class Struck(Simulation, ABC):
    """Who inherits says which steps there are, by `step`, and who is meant."""

    def __init__(self, plan: Plan, native: ModuleType, cell: Cell, ends: list[str]) -> None:
        """`ends` gets how it ended; who asks keeps no hold of a world that way."""
        super().__init__(plan, native)
        self.cell, self.ends = cell, ends
        self.struck_us = 0

    @abstractmethod
    def machine_meant(self) -> Machine | None:
        """The victim, where it is neither the leader nor a client."""

    @abstractmethod
    def clients_meant(self) -> list[ClusterClient]:
        """The victims, where they are clients."""

    @abstractmethod
    def seen_by_clients(self) -> list[Machine | None]:
        """Whom a client that is cut off sees no more."""

    def disks_meant(self) -> list[Machine]:
        """Whose disk is late, where the victim's is."""
        return [self._victim()]

    def begins(self) -> None:
        """What steps are of is under way."""
        if self.cell.harm == "late":
            for machine in self.disks_meant():
                machine.host.late_us = LATE_US

    def step(self, name: str) -> None:
        self.trace(name)
        self.tell("step", name)
        if name == self.cell.step and not self.struck_us and not self.healed:
            self.struck_us = self.agenda.now_us
            self.agenda.after(0, self.harm)

    def harm(self) -> None:
        cell, span_us = self.cell, SPANS_US[self.cell.span]
        self.tell("*", str(cell))
        if cell.victim == "client":
            self._harm_clients(span_us)
            return
        machine = self._victim()
        if cell.harm in {"kill", "power", "late"}:
            machine.crash(power=cell.harm == "power", mid_job=cell.harm == "power")
            self.boot_later(machine, span_us)
            for each in self.machines:
                each.host.late_us = None
        elif cell.harm == "pause":
            machine.pause()
            life = machine.life
            self.agenda.after(span_us, lambda: machine.resume() if machine.life == life else None)
        else:
            names = [other.name for other in self.machines if other is not machine]
            names += [client.name for client in self.clients]
            self._cut([machine.name], names, span_us)

    def _victim(self) -> Machine:
        if self.cell.victim == "leader":
            leading = (m for m in self.machines if m.replica is not None and m.replica.leads)
            return next(leading, self.machines[0])
        found = self.machine_meant()
        assert found is not None, "a node that has served is known"
        return found

    def _harm_clients(self, span_us: int) -> None:
        """Their connections break; or they stand still, or do not see some nodes."""
        names = [machine.name for machine in self.machines]
        for client in self.clients_meant():
            if self.cell.harm in {"kill", "power"}:
                for name in names:
                    client.hang_up(name, 1.0 if self.cell.harm == "power" else 0.0)
            elif self.cell.harm == "pause":
                self._cut([client.name], names, span_us)
            else:
                seen = [end.name for end in self.seen_by_clients() if end is not None]
                self._cut([client.name], seen, span_us)

    def _cut(self, ones: list[str], others: list[str], us: int) -> None:
        pairs = [pair for a in ones for b in others for pair in ((a, b), (b, a))]
        self.network.cut.update(pairs)
        self.agenda.after(us, lambda: self.network.cut.difference_update(pairs))

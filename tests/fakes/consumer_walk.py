"""Random lives of a cohort: members come, hang and die, connections break, owners and layouts change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.consumer_actor import Actor, Judge
from tests.fakes.consumer_world import FakeGate, World

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 60
QUIET_S = 120.0


class Walk:
    """One life. After `harm` everything works again, and then all rows must be settled."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.judge = Judge(world)
        self.dice = world.dice
        self.names = self.partitions = 0
        self.lives: dict[str, int] = {}
        for _ in range(self.dice.randint(1, 4)):
            self._partition(())
        for _ in range(self.dice.randint(1, 3)):
            self.join()
        world.at(1.0, self._second)

    def _second(self) -> None:
        self.world.evict_silent()
        for actor in self.world.actors:
            table = self.world.routes()
            if actor.is_alive and self.dice.random() < 0.1:
                actor.routed(table)
        self.world.at(1.0, self._second)

    def _partition(self, parents: tuple[int, ...]) -> int:
        self.partitions += 1
        node = self.dice.randint(1, self.world.nodes)
        ancestors = frozenset(parents).union(*(self.world.gates[one].ancestors for one in parents))
        self.world.gates[self.partitions] = FakeGate(self.partitions, node, ROWS, parents, ancestors)
        return self.partitions

    # ---- strikes ---------------------------------------------------------------------------------------

    def alive(self) -> list[Actor]:
        return [one for one in self.world.actors if one.is_alive]

    def join(self) -> None:
        self.names += 1
        is_auto = self.dice.random() < 0.6
        work_s = self.dice.choice((0.05, 0.5, 4.0))
        Actor(self.world, self.judge, f"m{self.names}", is_auto=is_auto, work_s=work_s)

    def kill(self) -> None:
        if len(self.alive()) > 1:
            self.dice.choice(self.alive()).is_alive = False

    def pause(self) -> None:
        actor = self.dice.choice(self.alive())
        actor.paused_until = self.world.now + self.dice.choice((1.0, 9.0, 12.0, 25.0, 60.0))

    def leave(self) -> None:
        if len(self.alive()) > 1:
            actor = self.dice.choice(self.alive())
            actor.member.close(leave=True)
            actor.in_hand = None

    def disconnect(self) -> None:
        actor = self.dice.choice(self.alive())
        if actor.connections:
            actor.disconnect(self.dice.choice(sorted(actor.connections)))

    def move(self) -> None:
        """Another owner has what was settled, and knows neither what was delivered nor who has a lease."""
        gate = self.dice.choice(list(self.world.gates.values()))
        gate.node = self.dice.randint(1, self.world.nodes)
        gate.lease_until = self.world.now + 11.0
        gate.delivered = 1 << 60
        self.world.version += 1

    def split(self) -> None:
        active = [gate for gate in self.world.gates.values() if not gate.is_sealed]
        if len(active) < 8:
            gate = self.dice.choice(active)
            gate.is_sealed, gate.node = True, self.dice.randint(1, self.world.nodes)
            gate.lease_until, gate.delivered = self.world.now + 11.0, 1 << 60
            for _ in range(2):
                self._partition((gate.partition,))
            self.world.version += 1
            self.world.plan()

    def merge(self) -> None:
        active = [gate for gate in self.world.gates.values() if not gate.is_sealed]
        if len(active) > 1:
            parents = self.dice.sample(active, 2)
            node = self.dice.randint(1, self.world.nodes)
            for gate in parents:
                gate.is_sealed, gate.node = True, node
                gate.lease_until, gate.delivered = self.world.now + 11.0, 1 << 60
            self._partition(tuple(gate.partition for gate in parents))
            self.world.version += 1
            self.world.plan()

    def append(self) -> None:
        for gate in self.world.gates.values():
            if not gate.is_sealed:
                gate.rows += self.dice.randint(0, 30)

    # ---- a life ----------------------------------------------------------------------------------------

    def harm(self, strikes: int = 25) -> None:
        strike: Callable[[], None]
        every: list[Callable[[], None]] = [self.join, self.kill, self.pause, self.leave, self.disconnect]
        every += [self.move, self.split, self.merge, self.world.seek]
        for _ in range(strikes):
            strike = self.dice.choice((*every, self.append, self.append))
            if strike == self.join and len(self.alive()) > 4:
                continue
            strike()
            self.world.run(self.dice.choice((0.1, 1.0, 5.0, 15.0)))

    def heal(self) -> list[str]:
        """No faults any more. What is not settled after a while is a fault."""
        world = self.world
        world.loss = 0.0
        for actor in world.actors:
            actor.paused_until = min(actor.paused_until, world.now)
            actor.work_s = 0.05
        if all(actor.member.state.is_closing for actor in self.alive()):
            self.join()
        for _ in range(60):
            world.run(QUIET_S / 10)
            if not self.unsettled() or world.faults:
                break
        return world.faults or self.unsettled()

    def unsettled(self) -> list[str]:
        gates = self.world.gates.values()
        return [f"{gate} is not settled" for gate in gates if gate.settled < gate.rows]


def walk(seed: int) -> list[str]:
    """The faults of one life."""
    life = Walk(seed)
    life.world.run(5.0)
    life.harm()
    return life.heal()

"""What strikes of several steps have in common: waiting, cutting links, asking for layout changes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation as World
    from tests.sim.world.machine import Machine

LOOK_US: Final = 500
AGAIN_US: Final = 120_000
"""How often a change is asked for until it is open: the one before is in the way, or an owner is away."""
PATIENCE_US: Final = 1_500_000
"""For each step: after it the links are mended."""
TOPIC: Final = "public/default/rows"


def topic_of(world: World) -> Any:
    """The topic that rows go to, as anybody has applied it; None: there is none."""
    state = world.watch.newest[1]
    return None if state is None else state.topic_named(TOPIC)


def active(world: World) -> list[Partition]:
    """Its partitions that take rows."""
    topic = topic_of(world)
    return [] if topic is None else list(topic.layout.active())


def owner_of(world: World, partition: PartitionId) -> Machine | None:
    """The machine that owns a partition of it."""
    assignment = topic_of(world).assignments.get(partition)
    return None if assignment is None else world.by_node(int(assignment.owner.node))


class Story:
    """One telling. `part` is the partition that it is about."""

    def __init__(self, world: World, dice: Random, part: Partition) -> None:
        self._world, self._dice, self._part = world, dice, part
        self._off_now: list[tuple[str, str]] = []

    # ---- layout changes ----

    def _change_until_open(self, part: Partition, until_us: int) -> None:
        """Ask until the partition is in a change, or until this time."""
        state, topic = self._world.watch.newest[1], topic_of(self._world)
        if topic is None or topic.seal(part.partition) is not None or self._world.agenda.now_us > until_us:
            return
        if state is None or part.partition not in state.changes:
            self._change(part)
        self._later(AGAIN_US, lambda: self._change_until_open(part, until_us))

    def _change(self, part: Partition) -> None:
        """A split, a merge with a neighbour, or everything."""
        layouter, parts = self._world.layouter, active(self._world)
        lo, hi = part.slots
        others = [one for one in parts if hi + 1 == one.slots.lo or one.slots.hi + 1 == lo]
        kind = self._dice.random()
        if others and kind < 0.4:
            pair = [int(part.partition), int(self._dice.choice(others).partition)]
            layouter.ask_for("merge", pair)
        elif kind < 0.8 and lo < hi:
            layouter.ask_for("split", [int(part.partition)], into=2)
        else:
            layouter.ask_for("repartition", [], into=self._dice.randrange(1, 6))

    def _is_sealed(self) -> bool:
        return topic_of(self._world).seal(self._part.partition) is not None

    # ---- network and time ----

    def _off(self, pairs: list[tuple[str, str]]) -> None:
        self._world.tell("net", "cut", " ".join(f"{one}>{other}" for one, other in pairs))
        self._world.network.cut.update(pairs)
        self._off_now += pairs

    def _on(self) -> None:
        if self._off_now:
            self._world.tell("net", "mended", " ".join(f"{one}>{other}" for one, other in self._off_now))
        self._world.network.cut.difference_update(self._off_now)
        self._off_now.clear()

    def _later(self, us: int, act: Callable[[], None]) -> None:
        self._world.agenda.after(us, lambda: None if self._world.healed else act())

    def _when(self, holds: Callable[[], bool], act: Callable[[], None], within_us: int = PATIENCE_US) -> None:
        """Once it holds; if it does not within its time, all is over."""
        until = self._world.agenda.now_us + within_us

        def look() -> None:
            if topic_of(self._world) is None or self._world.agenda.now_us > until:
                self._on()
            elif holds():
                act()
            else:
                self._later(LOOK_US, look)

        look()

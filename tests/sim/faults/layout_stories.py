"""Strikes of several steps around a split or merge: what single ones line up for too seldom.

Batches without an answer when their partition is sealed are what a producer must ask for. An answer that
comes with the COMMIT is on its way for less than a millisecond; here it does not come.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.reassignments import ChangePhase

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation as World
    from tests.sim.world.machine import Machine

LOOK_US: Final = 500
AGAIN_US: Final = 120_000
"""How often a change is asked for until it is open: the one before is in the way, or an owner is away."""
PATIENCE_US: Final = 1_500_000
"""For each step: after it the publishers hear the owner again."""
TOPIC: Final = "public/default/rows"
SENDS: Final = 3
"""Of each publisher as soon as a partition is sealed that it knows as open."""


def unheard_source(world: World, dice: Random) -> None:
    """Publishers do not hear an owner whose partition is split or merged, then do not reach it.

    Sometimes its children are split again before they hear it. Sometimes it has just handed the partition
    over: then the former owner's answers are what does not come.
    """
    parts = _active(world)
    if not parts:
        return
    part = dice.choice(parts)
    owner = _owner(world, part.partition)
    if owner is not None:
        _Unheard(world, dice, part, owner).begin()


def _active(world: World) -> list[Partition]:
    topic = _topic(world)
    return [] if topic is None else list(topic.layout.active())


def _topic(world: World) -> Any:
    state = world.watch.newest[1]
    return None if state is None else state.topic_named(TOPIC)


def _owner(world: World, partition: PartitionId) -> Machine | None:
    assignment = _topic(world).assignments.get(partition)
    return None if assignment is None else world.by_node(int(assignment.owner.node))


class _Unheard:
    """One telling of it."""

    def __init__(self, world: World, dice: Random, part: Partition, owner: Machine) -> None:
        self._world, self._dice, self._part, self._owner = world, dice, part, owner
        self._cut: list[tuple[str, str]] = []
        self._again = dice.choice([0, 0, 1, 2])
        self._silence_us = dice.choice([30_000, 200_000, 800_000, 2_000_000])

    def begin(self) -> None:
        names = [publisher.name for publisher in self._world.publishers]
        self._off([(self._owner.name, name) for name in names])
        self._later(self._dice.randrange(5_000, 80_000), self._hand_over_or_change)

    def _hand_over_or_change(self) -> None:
        places = _topic(self._world).assignments.get(self._part.partition)
        if places is None or len(places.replicas) < 2 or self._dice.random() < 0.5:
            self._change_until_open(self._world.agenda.now_us + PATIENCE_US)
            self._when(self._is_held, self._hang_up)
            return
        owner, *others = (int(place.node) for place in places.replicas)
        self._world.mover.cancel()  # else the run before is in the way
        self._world.mover.chosen([(int(self._part.partition), (*others, owner))])

        def has_moved() -> bool:
            return _owner(self._world, self._part.partition) not in (None, self._owner)

        def has_new_owner() -> None:
            self._change_until_open(self._world.agenda.now_us + PATIENCE_US)
            self._when(self._is_sealed, self._sends)

        self._when(has_moved, has_new_owner)

    def _change_until_open(self, until_us: int) -> None:
        state = self._world.watch.newest[1]
        is_open = state is not None and self._part.partition in state.changes
        if self._is_gone() or self._is_sealed() or self._world.agenda.now_us > until_us:
            return
        if not is_open:
            self._change(self._part)
        self._later(AGAIN_US, lambda: self._change_until_open(until_us))

    def _is_gone(self) -> bool:
        return _topic(self._world) is None

    def _change(self, part: Partition) -> None:
        """A split, a merge with a neighbour, or everything."""
        layouter, parts = self._world.layouter, _active(self._world)
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

    def _is_held(self) -> bool:
        state = self._world.watch.newest[1]
        assert state is not None
        return self._is_sealed() or any(
            one.phase is ChangePhase.HELD and self._part.partition in one.sources
            for one in state.transitions.values()
        )

    def _is_sealed(self) -> bool:
        return _topic(self._world).seal(self._part.partition) is not None

    def _hang_up(self) -> None:
        """What was sent to the owner has no answer, and cannot be asked for."""
        for publisher in self._world.publishers:
            self._off([(publisher.name, self._owner.name)])
            publisher.hang_up(self._owner.name, 1.0)
        self._when(self._is_sealed, self._goes_on)

    def _sends(self) -> None:
        """To the new owner, which has sealed the partition; the former one still does not answer."""
        for _ in range(SENDS):
            for publisher in self._world.publishers:
                publisher.submit()
        self._goes_on()

    def _goes_on(self) -> None:
        self._world.count("source_unheard")
        self._later(self._silence_us, self._on)
        self._later(self._dice.randrange(10_000, 60_000), self._cut_again)

    def _cut_again(self) -> None:
        """The partition's children are replaced as well, while batches of the first wait."""
        lo, hi = self._part.slots
        children = [one for one in _active(self._world) if one.slots.lo <= hi and lo <= one.slots.hi]
        if self._again and children:
            self._again -= 1
            self._change(self._dice.choice(children))
            self._later(self._dice.randrange(60_000, 200_000), self._cut_again)

    # ---- network and time ----

    def _off(self, pairs: list[tuple[str, str]]) -> None:
        self._world.tell("net", "cut", " ".join(f"{one}>{other}" for one, other in pairs))
        self._world.network.cut.update(pairs)
        self._cut += pairs

    def _on(self) -> None:
        self._world.tell("net", "mended", " ".join(f"{one}>{other}" for one, other in self._cut))
        self._world.network.cut.difference_update(self._cut)
        self._cut.clear()

    def _later(self, us: int, act: Callable[[], None]) -> None:
        self._world.agenda.after(us, lambda: None if self._world.healed else act())

    def _when(self, holds: Callable[[], bool], act: Callable[[], None]) -> None:
        """Once it holds; if it does not within its time, all is over."""
        until = self._world.agenda.now_us + PATIENCE_US

        def look() -> None:
            if _topic(self._world) is None or self._world.agenda.now_us > until:
                self._on()
            elif holds():
                act()
            else:
                self._later(LOOK_US, look)

        look()

"""Strikes of several steps around a split or merge: what single ones line up for too seldom.

Batches without an answer when their partition is sealed are what a producer must ask for. An answer that
comes with the COMMIT is on its way for less than a millisecond; here it does not come.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.control.model.layout import Partition
from ringfence.control.model.reassignments import ChangePhase
from tests.sim.clients.lineage_named import LineageNamed
from tests.sim.faults.story import PATIENCE_US, Story, active, owner_of, topic_of

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation as World
    from tests.sim.world.machine import Machine

SENDS: Final = 3
"""Of each publisher as soon as a partition is sealed that it knows as open; or as soon as it is fenced."""
SENDS_LATE: Final = 0.5
"""Share of stories in which publishers send to the fenced partition, which stores nothing any more."""


def unheard_source(world: World, dice: Random) -> None:
    """Publishers do not hear an owner whose partition is split or merged, then do not reach it.

    Sometimes its children are split again before they hear it. Sometimes it has just handed the partition
    over: then the former owner's answers are what does not come.
    """
    parts = active(world)
    if not parts:
        return
    part = dice.choice(parts)
    owner = owner_of(world, part.partition)
    if owner is not None:
        _Unheard(world, dice, part, owner).begin()


class _Unheard(Story):
    def __init__(self, world: World, dice: Random, part: Partition, owner: Machine) -> None:
        super().__init__(world, dice, part)
        self._owner = owner
        self._again = dice.choice([0, 0, 1, 2])
        self._silence_us = dice.choice([30_000, 200_000, 800_000, 2_000_000])
        self._sends_late = dice.random() < SENDS_LATE

    def begin(self) -> None:
        names = [publisher.name for publisher in self._world.publishers]
        self._off([(self._owner.name, name) for name in names])
        self._later(self._dice.randrange(5_000, 80_000), self._hand_over_or_change)

    def _hand_over_or_change(self) -> None:
        places = topic_of(self._world).assignments.get(self._part.partition)
        if places is None or len(places.replicas) < 2 or self._dice.random() < 0.5:
            self._change_until_open(self._part, self._world.agenda.now_us + PATIENCE_US)
            self._when(self._is_held, self._fenced)
            return
        owner, *others = (int(place.node) for place in places.replicas)
        self._world.mover.cancel()  # else the run before is in the way
        self._world.mover.chosen([(int(self._part.partition), (*others, owner))])

        def has_moved() -> bool:
            return owner_of(self._world, self._part.partition) not in (None, self._owner)

        def has_new_owner() -> None:
            self._change_until_open(self._part, self._world.agenda.now_us + PATIENCE_US)
            self._when(self._is_sealed, self._sends)

        self._when(has_moved, has_new_owner)

    def _is_held(self) -> bool:
        state = self._world.watch.newest[1]
        assert state is not None
        return self._is_sealed() or any(
            one.phase is ChangePhase.HELD and self._part.partition in one.sources
            for one in state.transitions.values()
        )

    def _fenced(self) -> None:
        """Some send more: it comes after the fence, so it is in no log, and nobody hears that."""
        if self._sends_late:
            self._submit()
            self._later(self._dice.randrange(3_000, 12_000), self._hang_up)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """What was sent to the owner has no answer, and cannot be asked for."""
        for publisher in self._world.publishers:
            self._off([(publisher.name, self._owner.name)])
            publisher.hang_up(self._owner.name, 1.0)
        self._when(self._is_sealed, self._goes_on)

    def _sends(self) -> None:
        """To the new owner, which has sealed the partition; the former one still does not answer."""
        self._submit()
        self._goes_on()

    def _submit(self) -> None:
        for _ in range(SENDS):
            for publisher in self._world.publishers:
                publisher.submit()

    def _goes_on(self) -> None:
        self._world.count("source_unheard")
        self._later(self._silence_us, self._on)
        self._later(self._dice.randrange(10_000, 60_000), self._cut_again)

    def _cut_again(self) -> None:
        """The partition's children are replaced as well, while batches of the first wait."""
        lo, hi = self._part.slots
        children = [one for one in active(self._world) if one.slots.lo <= hi and lo <= one.slots.hi]
        if self._again and children:
            self._again -= 1
            self._change(self._dice.choice(children))
            self._later(self._dice.randrange(60_000, 200_000), self._cut_again)


# ---- an owner that goes on alone ------------------------------------------------------------------------

PARTED_US: Final = 4_500_000
"""Until the failover: failures are noticed after 2 s. Then its partition is replaced."""


def parted_source(world: World, dice: Random) -> None:
    """An owner is cut off from the other machines, and goes on to take rows that nobody acknowledges.

    Its partition fails over and is replaced before it is heard again. Its log is as long as the sealed one,
    or longer, and is another one.
    """
    parts = active(world)
    if not parts or world.plan.replication == 1:
        return
    part = dice.choice(parts)
    owner = owner_of(world, part.partition)
    if owner is not None and owner.serving and not owner.paused:
        _Parted(world, dice, part, owner).begin()


class _Parted(Story):
    def __init__(self, world: World, dice: Random, part: Partition, owner: Machine) -> None:
        super().__init__(world, dice, part)
        self._owner = owner

    def begin(self) -> None:
        name = self._owner.name
        others = [one.name for one in self._world.machines if one is not self._owner]
        self._off([pair for other in others for pair in ((name, other), (other, name))])
        self._when(self._has_failed_over, self._changes, PARTED_US)

    def _has_failed_over(self) -> bool:
        state = self._world.watch.newest[1]
        is_open = state is not None and self._part.partition in state.changes
        return not is_open and owner_of(self._world, self._part.partition) not in (None, self._owner)

    def _changes(self) -> None:
        self._change_until_open(self._part, self._world.agenda.now_us + PATIENCE_US)
        self._when(self._is_sealed, self._comes_back)

    def _comes_back(self) -> None:
        self._world.count("source_parted")
        self._later(self._dice.randrange(300_000), self._on)


# ---- a name that is opened at the fence -----------------------------------------------------------------

OPENS_US: Final = 25_000
"""After the PREPARE: about as long as children inherit before the HOLD."""


def opens_at_fence(world: World, dice: Random) -> None:
    """A named producer dies before the HOLD of a change with several sources; its successor opens the name.

    The open reaches one source before its fence, and another one not any more.
    """
    parts = active(world)
    named = [publisher for publisher in world.publishers if isinstance(publisher, LineageNamed)]
    if len(parts) < 2 or not named:
        return
    at = dice.randrange(len(parts) - 1)
    _Opened(world, dice, parts[at], parts[at + 1], named[0]).begin()


class _Opened(Story):
    def __init__(
        self, world: World, dice: Random, part: Partition, other: Partition, named: LineageNamed
    ) -> None:
        super().__init__(world, dice, part)
        self._other, self._named = other, named

    def begin(self) -> None:
        self._change_until_open(self._part, self._world.agenda.now_us + PATIENCE_US)
        self._when(self._is_prepared, self._opens)

    def _change(self, part: Partition) -> None:
        if self._dice.random() < 0.7:
            self._world.layouter.ask_for("merge", [int(part.partition), int(self._other.partition)])
        else:
            self._world.layouter.ask_for("repartition", [], into=self._dice.randrange(1, 4))

    def _is_prepared(self) -> bool:
        state = self._world.watch.newest[1]
        return state is not None and any(
            self._part.partition in one.sources for one in state.transitions.values()
        )

    def _opens(self) -> None:
        self._world.count("opened_at_fence")
        self._later(self._dice.randrange(OPENS_US), self._named.dies_and_opens)

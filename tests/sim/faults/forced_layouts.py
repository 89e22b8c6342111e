"""An operator who accepts losses around a split: at a child that missed what it inherits, at a source.

A child's follower hears nothing of the others while the child inherits. After the COMMIT the others are off,
and it is made the owner: what it lacks, the sealed source has. Or a source's follower hears nothing from
before the split. After the COMMIT the others are off, so nobody has all sealed records: the operator accepts
that the partition ends where that follower's log does.
"""

from __future__ import annotations

import contextlib
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignment_commands import ForceOwner
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from tests.sim.clients.lineage_named import LineageNamed
from tests.sim.faults.forced import ACCEPTS, AWAY_US, LOOK_US, SECOND
from tests.sim.faults.story import PATIENCE_US, Story, active, topic_of

if TYPE_CHECKING:
    from ringfence.control.model.layout import Partition
    from tests.sim.simulation import Simulation
    from tests.sim.world.machine import Machine

OPENS_US: Final = 20_000
AFTER_US: Final = 400_000
"""Until the others are off, at most: clients send to the children meanwhile."""


class ForcedLayouts:
    """One story at a time."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self.until_us = 0
        """Until then a story is told."""

    def begin_child(self, dice: Random) -> None:
        """Split a partition; one follower of a child misses what the child inherits."""
        self._begin(dice, _ForcedChild)

    def begin_sealed(self, dice: Random) -> None:
        """Split a partition of which one follower misses the last records."""
        self._begin(dice, _ForcedSealed)

    def begin_lagging(self, dice: Random) -> None:
        """The same, and its owner alone is off: whoever has all records must become the owner."""
        self._begin(dice, _LaggingSealed)

    def _begin(self, dice: Random, kind: type[_ForcedChild | _ForcedSealed]) -> None:
        world = self._world
        parts = active(world)
        topic = topic_of(world)
        if not parts or topic.replication == 1 or world.agenda.now_us < self.until_us or world.forcer.is_busy:
            return
        part = dice.choice(parts)
        if world.ledger.partitions[int(part.partition)].forced:
            return
        self.until_us = world.agenda.now_us + 2 * PATIENCE_US
        kind(world, dice, part).begin()


class _Forced(Story):
    """Machines by the places of a partition: one is left, the others are cut off from it, then off."""

    def __init__(self, world: Simulation, dice: Random, part: Partition) -> None:
        super().__init__(world, dice, part)
        self._left: Replica | None = None
        self._silent: list[Machine] = []

    def _leave(self, places: tuple[Replica, ...]) -> bool:
        """One of the followers hears nothing of the others. False: some machine is not known."""
        self._left = self._chosen(places[1:])
        machines = [self._world.by_node(int(place.node)) for place in places if place != self._left]
        mine = self._world.by_node(int(self._left.node))
        if mine is None or None in machines:
            return False
        self._silent = [machine for machine in machines if machine is not None]
        names = [machine.name for machine in self._silent]
        self._off([pair for name in names for pair in ((mine.name, name), (name, mine.name))])
        return True

    def _chosen(self, followers: tuple[Replica, ...]) -> Replica:
        return self._dice.choice(followers)

    def _silence(self) -> None:
        """The others are off for longer than the time-out of failures."""
        away_us = self._dice.randrange(*AWAY_US)
        self._world.forced_layouts.until_us = self._world.agenda.now_us + away_us + SECOND
        for machine in self._silent:
            self._world.tell(machine.name, f"is off for {away_us / 1e6:.3f} s")
            machine.crash(power=self._dice.random() < self._world.plan.power)
            self._world.boot_later(machine, away_us + self._dice.randrange(SECOND // 2))
        self._on()

    def _split(self) -> None:
        self._world.layouter.ask_for("split", [int(self._part.partition)], into=2)

    def _transition(self) -> Transition | None:
        """The layout change of the partition, before its COMMIT or after it."""
        state = self._world.watch.newest[1]
        known = () if state is None else state.transitions.values()
        return next((one for one in known if self._part.partition in one.sources), None)


class _ForcedChild(_Forced):
    def begin(self) -> None:
        self._split()
        self._when(lambda: self._transition() is not None, self._parts)

    def _parts(self) -> None:
        transition = self._transition()
        assert transition is not None
        child = self._dice.choice(transition.children)
        if child.replicas and self._leave(child.replicas):
            self._when(lambda: self._is_committed(child.partition), lambda: self._takes_over(child.partition))

    def _is_committed(self, child: PartitionId) -> bool:
        return child in topic_of(self._world).assignments

    def _takes_over(self, child: PartitionId) -> None:
        self._world.count("child_parted")
        left, silent = self._left, tuple(self._silent)
        assert left is not None

        def seek() -> None:
            if self._world.forcer.seeks(child, left, silent, self._dice):
                self._silence()
                self._when(lambda: self._is_forced(child), self._opens, AWAY_US[1])
            else:
                self._on()

        self._later(self._dice.randrange(AFTER_US), seek)

    def _is_forced(self, child: PartitionId) -> bool:
        return bool(self._world.ledger.partitions[int(child)].forced)

    def _opens(self) -> None:
        """A name asks its new owner for a resume point, perhaps before that has inherited again."""
        for publisher in self._world.publishers:
            if isinstance(publisher, LineageNamed):
                self._later(self._dice.randrange(OPENS_US), publisher.dies_and_opens)


class _ForcedSealed(_Forced):
    def begin(self) -> None:
        places = topic_of(self._world).assignments[self._part.partition].replicas
        if self._leave(places):
            # It misses some rows before the split as well.
            self._later(self._dice.randrange(AFTER_US), self._split)
            self._when(self._is_sealed, self._takes_over, SECOND)

    def _takes_over(self) -> None:
        self._world.count("sealed_parted")
        self._later(self._dice.randrange(AFTER_US // 8), self._silence)
        self._look(self._world.agenda.now_us + AWAY_US[1])

    def _look(self, until_us: int) -> None:
        """Until it is the owner and still lacks records; then the operator accepts its end."""
        topic, left = topic_of(self._world), self._left
        if topic is None or left is None or self._world.agenda.now_us > until_us:
            return
        seal, assignment = topic.seal(self._part.partition), topic.assignments.get(self._part.partition)
        if seal is None or assignment is None or seal.lowered:
            return
        machine = self._world.by_node(int(left.node))
        is_owner = assignment.owner == left
        end = None if machine is None or not is_owner else _end_of(machine, int(self._part.partition))
        if end is not None and end.records < seal.end.records:
            self._world.accepted_ends.add((int(self._part.partition), end))
            self._force(end)
        self._later(LOOK_US, lambda: self._look(until_us))

    def _force(self, end: LogEnd) -> None:
        leader = next((one for one in self._world.machines if one.serving and one.replica.leads), None)
        if leader is None or leader.paused or leader.node is None or self._left is None:
            return
        command = ForceOwner(
            partition=self._part.partition,
            change=ChangeId(0),
            owner=self._left.node,
            accepts=ACCEPTS,
            end=end,
        )
        self._world.tell("op", f"sealed partition {self._part.partition} shall end at row {end.offset}")
        proposer = leader.node.proposer
        leader.call(partial(leader.spawn, _proposed(proposer, command)))


class _LaggingSealed(_ForcedSealed):
    """The replica with the lowest number becomes the owner when the owner fails, and it lacks records."""

    def _chosen(self, followers: tuple[Replica, ...]) -> Replica:
        return min(followers, key=lambda place: place.node)

    def _takes_over(self) -> None:
        self._world.count("sealed_lagging")
        self._silent = self._silent[:1]
        self._silence()


async def _proposed(proposer: RaftProposer, command: ForceOwner) -> None:
    with contextlib.suppress(RequestRefused):
        await proposer.propose(command)


def _end_of(machine: Machine, partition: int) -> LogEnd | None:
    """Where a store's log ends, as its files say; None: it does not run, or has none."""
    if not machine.host.running:
        return None
    known = (
        one for one in machine.host.disk.copy().fsck()["partitions"] if int(one["partition"]) == partition
    )
    found: dict[str, Any] | None = next(known, None)
    if found is None:
        return None
    return LogEnd(Epoch(found["owner_epoch"]), found["records"], found["end_offset"], found["chain"])

"""An operator who makes a replica the owner although a majority is silent: an unclean choice.

One replica of a partition is cut off from the others and misses rows, often a truncate, too. Then the others
are off, or cut off together with clients that they go on to serve. When the failover finds no majority, the
operator chooses the one that is left; the ledger is told where its log ended: what was acknowledged above is
given up.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignments import Change, ChangeKind, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica
from ringfence.control.runtime.rpc import messages
from tests.sim.checks.ledger import Forced, Truncation
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation
    from tests.sim.world.machine import Machine

SECOND: Final = 1_000_000
LOOK_US: Final = 100_000
ANSWER_US: Final = 700_000
LAG_US: Final = (50_000, 900_000)
"""While one replica receives nothing; with more it would be failed alone."""
AWAY_US: Final = (4 * SECOND, 7 * SECOND)
"""While the others are silent: failures are noticed after 2 s."""
TRUNCATES: Final = 0.6
TOGETHER: Final = 0.25
"""Share of stories in which the others still serve clients."""
RESTARTS: Final = 0.6
"""Share of stories in which the new owner restarts soon."""
RESTS: Final = 0.6
"""Share of stories in which the reader comes when the new log has grown."""
ACCEPTS: Final = "rows that only silent replicas have"


class Story(NamedTuple):
    """One choice that is to come."""

    partition: PartitionId
    left: Replica
    silent: tuple[Machine, ...]
    dice: Random


class Forcer:
    """The operator. One story at a time, one choice of each partition."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._story: Story | None = None
        self._until_us = 0
        self._asked: dict[tuple[int, int, int], LogEnd] = {}
        """By partition, change and owner: where that owner's log ended."""
        self.dropped: dict[int, set[Replica]] = defaultdict(set)
        """Replicas by partition that others took the place of: they keep what they have."""

    def begin(self, dice: Random) -> None:
        """Cut one replica off, if a partition has all of its own now."""
        world = self._world
        if self._story is not None:
            return
        known = [
            (part, assignment) for part, assignment in self._assigned() if self._is_whole(part, assignment)
        ]
        if not known:
            return
        partition, assignment = dice.choice(known)
        others = [place for place in assignment.replicas if place != assignment.owner]
        left = dice.choice(others if dice.random() < 0.9 else [assignment.owner])
        silent = [world.by_node(int(place.node)) for place in assignment.replicas if place != left]
        story = Story(partition, left, tuple(machine for machine in silent if machine is not None), dice)
        mine = world.by_node(int(left.node))
        if mine is None or mine in story.silent or len(story.silent) != len(assignment.replicas) - 1:
            return
        self._story = story
        lag_us = dice.randrange(*LAG_US)
        self._until_us = world.agenda.now_us + lag_us + AWAY_US[1]
        world.tell(
            "op", f"node {left.node} misses what comes to partition {partition} for {lag_us / 1e6:.3f} s"
        )
        names = [machine.name for machine in story.silent]
        pairs = [pair for name in names for pair in ((mine.name, name), (name, mine.name))]
        world.network.cut.update(pairs)
        world.count("isolate")
        world.agenda.after(lag_us, partial(self._truncate, story, pairs))

    @property
    def is_busy(self) -> bool:
        """A story is told."""
        return self._story is not None

    def seeks(self, partition: PartitionId, left: Replica, silent: tuple[Machine, ...], dice: Random) -> bool:
        """`left` is to be the owner: the others are silent from now on. False: another story is told."""
        if self._story is not None:
            return False
        story = self._story = Story(partition, left, silent, dice)
        self._until_us = self._world.agenda.now_us + AWAY_US[1]
        self._world.count("owner_sought")
        self._look(story)
        return True

    def changed(self, before: MetadataState, after: MetadataState) -> None:
        """An entry was applied for the first time: was it a choice?"""
        for partition, change in after.changes.items():
            was = before.changes.get(partition)
            is_new = was is not None and change.is_committed and not was.is_committed
            if is_new and change.kind is ChangeKind.FAILOVER and change.end is None:
                self._chosen(before, after, change)

    # ---- the story ----

    def _assigned(self) -> list[tuple[PartitionId, Assignment]]:
        state = self._world.watch.newest[1]
        topic = None if state is None else state.topic_named("public/default/rows")
        if topic is None or topic.replication == 1:
            return []
        # A sealed partition has no failover: `forced_layouts` has those.
        return [(part.partition, topic.assignments[part.partition]) for part in topic.layout.active()]

    def _is_whole(self, partition: PartitionId, assignment: Assignment) -> bool:
        state = self._world.watch.newest[1]
        part = self._world.ledger.partitions[int(partition)]
        machines = [self._world.by_node(int(place.node)) for place in assignment.replicas]
        return (
            state is not None
            and partition not in state.changes
            and not part.forced
            and part.end > 0
            and all(machine is not None and machine.serving and not machine.paused for machine in machines)
        )

    def _truncate(self, story: Story, pairs: list[tuple[str, str]]) -> None:
        """Rows that the one that is left may not have, and be ordered to give up."""
        world, part = self._world, self._world.ledger.partitions[int(story.partition)]
        asked = None
        if not world.healed and story.dice.random() < TRUNCATES:
            asked = world.admin.truncates_to("rows", part, part.truncatable, self._bystander(story))
        self._wait(story, pairs, asked, world.agenda.now_us + ANSWER_US)

    def _bystander(self, story: Story) -> Machine | None:
        """A machine that reaches every owner: the others cannot ask the one that is left for its ends."""
        world = self._world
        replicas = [world.by_node(int(story.left.node)), *story.silent]
        others = [machine for machine in world.machines if machine not in replicas]
        return next((machine for machine in others if world.admin.reach(machine)), None)

    def _wait(
        self, story: Story, pairs: list[tuple[str, str]], asked: Truncation | None, until_us: int
    ) -> None:
        """For the answer to a truncate."""
        world = self._world
        if asked is None or asked.ended or world.healed or world.agenda.now_us >= until_us:
            self._silence(story, pairs)
        else:
            world.agenda.after(LOOK_US // 4, partial(self._wait, story, pairs, asked, until_us))

    def _silence(self, story: Story, pairs: list[tuple[str, str]]) -> None:
        """The others are gone, for the one that is left and for the cluster."""
        world, dice = self._world, story.dice
        away_us = dice.randrange(*AWAY_US)
        if world.healed:
            return
        if dice.random() < TOGETHER:
            silent = {machine.name for machine in story.silent}
            rest = [machine.name for machine in world.machines if machine.name not in silent]
            more = [pair for a in silent for b in rest for pair in ((a, b), (b, a))]
            world.tell("op", f"{sorted(silent)} are cut off together")
            world.network.cut.update(more)
            world.agenda.after(away_us, lambda: world.network.cut.difference_update([*pairs, *more]))
        else:
            for machine in story.silent:
                world.tell(machine.name, f"is off for {away_us / 1e6:.3f} s")
                machine.crash(power=dice.random() < world.plan.power)
                world.boot_later(machine, away_us + dice.randrange(SECOND // 2))
            world.network.cut.difference_update(pairs)
        world.count("owner_sought")
        self._look(story)

    def _look(self, story: Story) -> None:
        """Again and again until the choice is made, or no node is silent any more."""
        world = self._world
        if self._story is not story:
            return
        if world.healed or world.agenda.now_us > self._until_us:
            self._story = None
            return
        self._choose(story)
        world.agenda.after(LOOK_US, partial(self._look, story))

    def _choose(self, story: Story) -> None:
        leader = next((one for one in self._world.machines if one.serving and one.replica.leads), None)
        node = None if leader is None or leader.paused else leader.node
        if leader is None or node is None:
            return
        state: MetadataState = leader.replica.state
        change = state.changes.get(story.partition)
        if (
            change is None
            or change.kind is not ChangeKind.FAILOVER
            or change.phase is not ChangePhase.PREPARED
        ):
            return
        seen = node.handlers.partitions._coordinator.progress(story.partition)
        if seen is None or seen.change != change.change:
            return
        proof = next((known for known in seen.proofs if known.place == story.left), None)
        if proof is None:
            return
        self._asked[int(story.partition), int(change.change), int(story.left.node)] = proof.end
        self._world.mover.ask(
            messages.ForcePartition(
                partition=story.partition,
                change=change.change,
                owner=story.left.node,
                accepts=ACCEPTS,
                replicas=_with_spares(state, change, story),
            )
        )

    def _chosen(self, before: MetadataState, after: MetadataState, change: Change) -> None:
        world, partition = self._world, int(change.partition)
        assignment = after.topics[change.topic].assignments[change.partition]
        end = self._asked.get((partition, int(change.change), int(assignment.owner.node)))
        if end is None:
            what = f"partition {partition} has owner {assignment.owner.node} by force, unasked for"
            world.violate(ViolationError("I4", what))
            return
        gone = set(before.topics[change.topic].assignments[change.partition].replicas) - {
            *assignment.replicas
        }
        self.dropped[partition] |= gone
        start = before.topics[change.topic].starts.get(change.partition)
        if start is not None:
            world.ledger.applied(partition, start)
        world.ledger.forced(partition, Forced(int(assignment.epoch), int(end.epoch), int(end.offset)))
        world.count("owner_forced")
        world.tell(
            "op", f"partition {partition} has node {assignment.owner.node} as owner, from row {end.offset}"
        )
        self._look_at_start(partition)
        story, self._story = self._story, None
        if story is not None and story.dice.random() < RESTS:
            world.consumer.rest(partition, story.dice.randrange(SECOND // 5, 3 * SECOND))
        machine = world.by_node(int(assignment.owner.node))
        if story is not None and machine is not None and story.dice.random() < RESTARTS:
            # A start reads the log start again from the metadata.
            world.agenda.after(story.dice.randrange(300_000, 3 * SECOND), partial(self._restart, machine))

    def _look_at_start(self, partition: int) -> None:
        """Again and again: a start of the history that was given up must remove no rows of the new one."""
        world = self._world
        for machine in world.machines:
            for each in machine.host.node.partitions() if machine.host.running else ():
                if each["partition"] == partition and each["role"] == "owner":
                    try:
                        world.ledger.begins(partition, each["start_offset"], each["owner_epoch"])
                    except ViolationError as broken:
                        world.violate(broken)
        if not world.healed:
            world.agenda.after(LOOK_US, partial(self._look_at_start, partition))

    def _restart(self, machine: Machine) -> None:
        if not self._world.healed:
            self._world.strike_crash(machine, power=False, mid_job=False)


def _with_spares(state: MetadataState, change: Change, story: Story) -> tuple[Any, ...]:
    """The owner, and live nodes that were no replicas; where these are too few, some that are silent."""
    held = [place.node for place in change.replicas]
    spare = [
        number
        for number, node in sorted(state.nodes.items())
        if number not in held and node.life is Life.LIVE and not node.draining
    ]
    story.dice.shuffle(spare)
    silent = [node for node in held if node != story.left.node]
    return (story.left.node, *[*spare, *silent][: len(held) - 1])

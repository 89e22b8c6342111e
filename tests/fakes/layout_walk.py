"""Random walks over a metadata log with layout changes, and a judge of its own beside the invariants.

The judge has no line of the product: which PREPARE must be taken and which refused (P6, F9), which
partitions are ACTIVE (I1), how many versions there were (I2), and that a fenced source opens again (L6).
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from ringfence.control.model.commands import Command, DeleteTopic, SetConfig, TruncateTopic
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, ScopeId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import Transition, TransitionKind
from ringfence.control.model.layout_commands import CommitLayout, PrepareLayout, PrunePartitions
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import RecoverNode, RemoveNode, SetNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    CleanChange,
    CommitChange,
    ConfirmLeft,
    ConfirmOpened,
    FailOver,
    HoldChange,
    PrepareChange,
)
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind, ChangePhase, Proof
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.scopes import BeginScope, CommitScope, ConfirmPublished, StagedPart
from tests.fakes.layout_log import END, LayoutLog

SPLIT, MERGE, REPARTITION = TransitionKind.SPLIT, TransitionKind.MERGE, TransitionKind.REPARTITION
STEPS = {
    ChangePhase.PREPARED: "hold",
    ChangePhase.HELD: "commit",
    ChangePhase.COMMITTED: "opened",
    ChangePhase.OPENED: "finalize",
}


class Asked(NamedTuple):
    """A PREPARE that was taken. `wanted`: the partitions that a repartition was asked for, 0 of another kind;
    `more`: what changes that were prepared after it have added since.
    """

    command: PrepareLayout
    wanted: int
    more: int


class LayoutWalk(LayoutLog):
    """One walk. `do` asks the judge about each command, before and after."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.draw, self.seen, self.commits = draw, Counter[str](), 0
        self.ranges: dict[PartitionId, SlotRange] = {}
        self.asked: dict[ChangeId, Asked] = {}
        super().__init__(4, replication=draw.choice([1, 3]), partitions=draw.choice([1, 3, 5]))
        self.ranges = {part.partition: part.slots for part in self.active}
        self.scope: tuple[ScopeId, Index] | None = None
        self.wanted = 0  # partitions that the next repartition is asked for
        # PREPAREs that were decided on an older state, and what they were asked for.
        self.late: list[tuple[PrepareLayout, int]] = []

    # ---- the judge ------------------------------------------------------------------------------------

    def must_take(self, command: PrepareLayout) -> bool:
        """Whether nothing forbids this sound PREPARE."""
        topic = self.state.topics.get(command.topic)
        if topic is None:
            return False
        opened = [other for other in self.state.transitions.values() if other.topic == command.topic]
        before_commit = [other for other in opened if other.phase in {ChangePhase.PREPARED, ChangePhase.HELD}]
        busy = {source for other in before_commit for source in other.sources}
        busy |= {
            number for number, change in self.state.changes.items() if change.kind is not ChangeKind.SEAL
        }
        for number, epoch in command.sources:
            if number not in self.ranges or number in busy or self.epoch(number) != epoch:
                return False
            if self.state.nodes[topic.assignments[number].owner.node].life is not Life.LIVE:
                return False
        if slots_of([SlotRange(child.lo, child.hi) for child in command.children]) != slots_of(
            [self.ranges[number] for number, _ in command.sources]
        ):
            return False
        nodes = {node for child in command.children for node in child.nodes}
        if any(
            node not in self.state.nodes
            or self.state.nodes[node].life is not Life.LIVE
            or self.state.nodes[node].draining
            or node not in self.state.ring.members
            for node in nodes
        ):
            return False
        if command.kind is not REPARTITION:
            return True
        unopened = [
            other for other in opened if other.kind is REPARTITION and other.phase is ChangePhase.COMMITTED
        ]
        return command.version == 1 + self.commits and not before_commit and not unopened

    def do(self, command: Command) -> Result:
        taken = self.must_take(command) if isinstance(command, PrepareLayout) else None
        held = {number: other for number, other in self.state.transitions.items() if other.may_abort}
        result = super().do(command)
        self.seen[f"{type(command).__name__} {'refused' if isinstance(result, Refused) else 'taken'}"] += 1
        if taken is not None:
            assert taken == (not isinstance(result, Refused)), f"P6, F9: judged {taken}, got {result}"
            if taken:
                self.asked[ChangeId(self.at)] = Asked(command, self.wanted, 0)  # type: ignore[arg-type]
        if isinstance(command, CommitLayout) and not isinstance(result, Refused):
            assert all(int(end.epoch) == command.change for _, end in command.created), (
                "a child of another epoch"
            )
            self._committed(held[command.change])
        if isinstance(command, PrunePartitions) and not isinstance(result, Refused):
            assert not {*command.partitions} & {*self.ranges}, "I3: an ACTIVE partition was pruned"
        if self.topic in self.state.topics:
            assert {part.partition: part.slots for part in self.active} == self.ranges, "I1: ACTIVE ones"
            assert self.now.layout.version == 1 + self.commits, "I2: a version is not counted"
        return result

    def _committed(self, transition: Transition) -> None:
        asked = self.asked.pop(transition.change)
        self.commits += 1
        for number, _ in asked.command.sources:
            del self.ranges[number]
        for ordinal, child in enumerate(asked.command.children):
            self.ranges[PartitionId(transition.change << 16 | ordinal)] = SlotRange(child.lo, child.hi)
        more = len(asked.command.children) - len(asked.command.sources)
        for change, earlier in self.asked.items():
            if change < transition.change:
                self.asked[change] = earlier._replace(more=earlier.more + more)
        if asked.wanted:
            assert len(self.ranges) == asked.wanted + asked.more, (
                f"F9: {len(self.ranges)} partitions, {asked.wanted} were asked for, {asked.more} came on top"
            )

    # ---- drawing --------------------------------------------------------------------------------------

    def step(self) -> None:
        """Draw one command and apply it. Some are late, about strangers, or impossible."""
        draw = self.draw
        self.time_ms += draw.choice([1, 1, 1, 1_000, 400_000])
        if self.topic not in self.state.topics:
            return
        kinds = [
            (self._prepare, 6),
            (self._prepare_late, 3),
            (self._step, 14),
            (self._abort, 2),
            (self._node, 2),
            (self._move, 5),
            (self._confirm, 3),
            (self._scope, 4),
            (self._prune, 3),
            (self._rare, 1),
        ]
        make = draw.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        self.wanted = 0
        command = make()
        if isinstance(command, PrepareLayout) and draw.random() < 0.3:
            self.late.append((command, self.wanted))
        elif command is not None:
            self.do(command)

    def _any(self, number: PartitionId) -> Partition | None:
        return self.now.layout.find(number)

    def _prepare(self) -> Command | None:
        draw, active = self.draw, self.active
        kind = draw.choice([SPLIT, SPLIT, MERGE, REPARTITION])
        if kind is SPLIT:
            part = draw.choice(self.now.layout.partitions if draw.random() < 0.2 else active)
            if part.slots.lo == part.slots.hi:
                return None
            command = self.split(part, at=draw.randint(part.slots.lo + 1, part.slots.hi))
        elif kind is MERGE:
            if len(active) < 2:
                return None
            place = draw.randrange(len(active) - 1)
            command = self.merge(active[place], active[place + 1])
        else:
            self.wanted = draw.randint(1, 7)
            command = self.repartition(tile(self.wanted))
            if not command.sources:
                return None
        if draw.random() < 0.1 and command.sources:
            (number, epoch), *rest = command.sources
            command = replace(command, sources=((number, Epoch(epoch - 1)), *rest))
        if draw.random() < 0.2 and kind is REPARTITION:
            command = replace(command, version=command.version - draw.choice([0, 1]))
        if draw.random() < 0.1:
            first = command.children[0]._replace(nodes=tuple(draw.sample(self.nodes, self.now.replication)))
            command = replace(command, children=(first, *command.children[1:]))
        if draw.random() < 0.05:
            first = command.children[0]
            first = (
                first._replace(lo=first.lo + 1) if first.lo < first.hi else first._replace(hi=first.hi + 1)
            )
            command = replace(command, children=(first, *command.children[1:]))
        # A version that a split or a merge has is not compared.
        return command if kind is REPARTITION else replace(command, version=1 + self.commits)

    def _prepare_late(self) -> Command | None:
        if not self.late:
            return None
        command, self.wanted = self.late.pop(self.draw.randrange(len(self.late)))
        return command

    def nodes_for(self, ordinal: int) -> tuple[NodeId, ...]:
        """Nodes that may take partitions, if there are enough."""
        fit = [
            node
            for node in self.nodes
            if self.state.nodes[node].life is Life.LIVE and not self.state.nodes[node].draining
        ]
        count = self.now.replication
        return tuple(self.draw.sample(fit, count)) if len(fit) >= count else super().nodes_for(ordinal)

    def _step(self) -> Command | None:
        if not self.state.transitions:
            return None
        number = self.draw.choice(list(self.state.transitions))
        phase = self.state.transitions[number].phase
        name = STEPS[phase] if self.draw.random() < 0.9 else self.draw.choice([*STEPS.values()])
        made: Command = getattr(self, name)(number)
        if isinstance(made, CommitLayout) and self.draw.random() < 0.1:
            wrong = LogEnd(Epoch(1), 2, 0, 5)
            made = replace(made, created=tuple((child, wrong) for child, _ in made.created))
        return made

    def _abort(self) -> Command | None:
        known = [*self.state.transitions, *self.asked]
        return self.abort(self.draw.choice(known)) if known else None

    def _node(self) -> Command | None:
        node = self.state.nodes[self.draw.choice(self.nodes)]
        if node.life is Life.FAILED:
            if self.draw.random() < 0.3:
                return FailOver(node=node.node, changed=node.changed)
            if self.draw.random() < 0.3:
                return RecoverNode(node=node.node, changed=node.changed)
            return self.restart(int(node.node))
        down = sum(other.life is Life.FAILED for other in self.state.nodes.values())
        if down < 1 and self.draw.random() < 0.4:
            return self.fail(int(node.node))
        return self.restart(int(node.node))

    def _move(self) -> Command | None:
        open_ones = [change for change in self.state.changes.values() if change.kind is not ChangeKind.SEAL]
        if open_ones and self.draw.random() < 0.8:
            return self._change_step(self.draw.choice(open_ones))
        seals = [change for change in self.state.changes.values() if change.kind is ChangeKind.SEAL]
        if seals and self.draw.random() < 0.1:
            seal = self.draw.choice(seals)
            if self.draw.random() < 0.5:
                return HoldChange(partition=seal.partition, change=seal.change)
            return AbortChange(partition=seal.partition, change=seal.change, why="test")
        number = self.draw.choice([*self.now.assignments])
        nodes = self.draw.sample(self.nodes, self.now.replication)
        return PrepareChange(
            topic=self.topic,
            partition=number,
            epoch=self.epoch(number),
            owner=nodes[0],
            replicas=tuple(nodes),
        )

    def _change_step(self, change: Change) -> Command:
        number, epoch = change.partition, self.epoch(change.partition)
        seal = self.now.seal(number)
        end = END if seal is None else seal.end
        match change.phase:
            case ChangePhase.PREPARED if change.kind is not ChangeKind.FAILOVER:
                return HoldChange(partition=number, change=change.change)
            case ChangePhase.PREPARED | ChangePhase.HELD:
                if self.draw.random() < 0.2:
                    return AbortChange(partition=number, change=change.change, why="test")
                return CommitChange(
                    partition=number,
                    change=change.change,
                    epoch=epoch,
                    owner=change.owner.node,
                    end=end,
                    proofs=tuple(Proof(place, end) for place in change.replicas),
                )
            case ChangePhase.COMMITTED:
                return ConfirmOpened(partition=number, change=change.change, epoch=epoch)
            case _:
                return CleanChange(partition=number, change=change.change)

    def _confirm(self) -> Command | None:
        left = [
            ConfirmLeft(partition=number, change=one.change, store=one.place.store)
            for number, known in self.state.leftovers.items()
            for one in known
        ]
        return self.draw.choice(left) if left else None

    def _scope(self) -> Command:
        if self.scope is None:
            self.do(BeginScope(name="s"))
            self.scope = ScopeId(self.at << 16), Index(self.at)
        number, driver = self.scope
        scope = self.state.scopes[number]
        if scope.pending and self.draw.random() < 0.5:
            first = scope.pending[0]
            parts = tuple((part.topic, part.partition) for part in first.parts)
            return ConfirmPublished(scope=number, epoch=first.epoch, parts=parts)
        chosen = self.draw.sample(self.now.layout.partitions, 1)
        parts_with_rows = tuple(StagedPart(self.topic, part.partition, 3) for part in chosen)
        return CommitScope(
            scope=number, driver=driver, epoch=scope.committed + 1, tokens=(b"t" * 16,), parts=parts_with_rows
        )

    def _prune(self) -> Command | None:
        sealed = [part.partition for part in self.now.layout.partitions if not part.is_active]
        if not sealed:
            return None
        if self.draw.random() < 0.1:
            sealed = [part.partition for part in self.active]
        elif self.draw.random() < 0.5:
            oldest = [part for part in sealed if not self._parents(part)]
            sealed = oldest or sealed
        return self.prune(*self.draw.sample(sealed, min(len(sealed), self.draw.choice([1, 1, 2]))))

    def _parents(self, number: PartitionId) -> tuple[PartitionId, ...]:
        part = self._any(number)
        return () if part is None else part.parents

    def _rare(self) -> Command:
        node = NodeId(self.draw.choice(self.nodes))
        starts = {self.draw.choice([*self.now.assignments]): self.draw.randint(0, 9)}
        commands: list[Command] = [
            SetNode(node=node, draining=self.draw.choice([True, False, False])),
            SetConfig(values={"resolve_keep_s": self.draw.choice([60, 1_200])}),
            TruncateTopic(topic=self.topic, starts=starts),
            RemoveNode(node=node),
            *([DeleteTopic(topic=self.topic)] if self.draw.random() < 0.1 else []),
        ]
        return self.draw.choice(commands)


def slots_of(ranges: list[SlotRange]) -> list[tuple[int, int]] | None:
    """The slots of ranges as few ranges as possible; None if two of them overlap."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(ranges):
        if found and lo <= found[-1][1]:
            return None
        if found and lo == found[-1][1] + 1:
            found[-1] = (found[-1][0], hi)
        else:
            found.append((lo, hi))
    return found


def walk(seed: int, steps: int = 120) -> LayoutWalk:
    """One walk; AssertionError names what is wrong."""
    walked = LayoutWalk(seed)
    for number in range(steps):
        walked.step()
        if number % 30 == 29:
            walked.agree()
    walked.agree()
    return walked

"""A metadata log with layout changes by hand: commands in, states out, on two replicas that must agree."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command, RestartNode, SetConfig
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition, TransitionKind
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    FinalizeLayout,
    HoldLayout,
    PlannedChild,
    PrepareLayout,
    PrunePartitions,
)
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignment_commands import FailOver
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.scopes import BeginScope, CommitScope, StagedPart
from ringfence.control.model.state import canonical_bytes, decode_state
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import cluster, create, entry, restart

END = LogEnd(Epoch(1), 7, 70, 99)


class LayoutLog:
    """A cluster of nodes 1, 2, 4, 6 and a topic; `at` is the index of the last entry, `time_ms` its clock."""

    def __init__(
        self, nodes: int = 3, *, replication: int = 1, partitions: int = 4, level: int = LAYOUT_LEVEL
    ) -> None:
        self.state, self.at, self.time_ms = replace(cluster(nodes), level=level), 3 * nodes, 1_000
        self.nodes = sorted(self.state.nodes)
        self.twin, self._digests = decode_state(canonical_bytes(self.state)), StateDigests()
        placed = tuple(
            tuple(int(self.nodes[(place + more) % nodes]) for more in range(replication))
            for place in range(partitions)
        )
        self.topic = TopicId(0)
        self.must(create(partitions=partitions, nodes=placed))
        self.topic = TopicId(self.at)

    def do(self, command: Command) -> Result:
        """Apply one entry on both replicas. A refusal must leave the very bytes (I15)."""
        self.at += 1
        before = canonical_bytes(self.state)
        made = entry(self.at, command, time_ms=self.time_ms)
        after, result = apply(self.state, made)
        invariants.check_step(self.state, after, self.at)
        assert canonical_bytes(self.state) == before, "apply changed the state that it was given"
        if isinstance(result, Refused):
            assert result.message, "a refusal says nothing"
            assert canonical_bytes(after) == before, "I15: a refused command changed the state"
        self.twin, same = apply(self.twin, made)
        assert same == result, "two replicas have other results"
        self.state = after
        if self.at % 4 == 0:  # maps of a snapshot are sorted, others are in the order of the log
            self.twin = decode_state(canonical_bytes(self.twin))
            assert self.twin == after, "two replicas have other states"
        return result

    def agree(self) -> None:
        """The other replica has the same hash, also after a snapshot."""
        self.twin = decode_state(canonical_bytes(self.twin))
        assert self._digests.of(self.state) == StateDigests().of(self.twin), "two replicas have other hashes"
        assert self.twin == self.state

    def must(self, command: Command) -> None:
        result = self.do(command)
        assert not isinstance(result, Refused), result

    def refuses(self, command: Command, *words: str) -> Refused:
        result = self.do(command)
        assert isinstance(result, Refused), (command, result)
        assert all(word in result.message for word in words), result.message
        return result

    # ---- short ways -----------------------------------------------------------------------------------

    @property
    def now(self) -> Topic:
        return self.state.topics[self.topic]

    @property
    def active(self) -> tuple[Partition, ...]:
        return self.now.layout.active()

    @property
    def transition(self) -> Transition:
        """The newest one."""
        return self.state.transitions[max(self.state.transitions)]

    def place(self, node: int) -> Replica:
        return Replica(node=NodeId(node), store=self.state.nodes[NodeId(node)].store)

    def epoch(self, partition: PartitionId) -> Epoch:
        return self.now.assignments[partition].epoch

    def nodes_for(self, ordinal: int) -> tuple[NodeId, ...]:
        """Nodes of a child, other ones for each ordinal."""
        count = len(self.nodes)
        return tuple(self.nodes[(ordinal + more) % count] for more in range(self.now.replication))

    def prepare(
        self,
        kind: TransitionKind,
        sources: tuple[Partition, ...],
        ranges: tuple[SlotRange, ...],
        *,
        version: int = 0,
    ) -> PrepareLayout:
        return PrepareLayout(
            topic=self.topic,
            kind=kind,
            version=version,
            sources=tuple((part.partition, self.epoch(part.partition)) for part in sources),
            children=tuple(
                PlannedChild(slots.lo, slots.hi, self.nodes_for(ordinal))
                for ordinal, slots in enumerate(ranges)
            ),
        )

    def split(self, part: Partition, *, at: int | None = None) -> PrepareLayout:
        """A split in two; `at` begins the second one."""
        lo, hi = part.slots
        cut = (lo + hi) // 2 + 1 if at is None else at
        return self.prepare(TransitionKind.SPLIT, (part,), (SlotRange(lo, cut - 1), SlotRange(cut, hi)))

    def merge(self, one: Partition, other: Partition) -> PrepareLayout:
        lo, hi = min(one.slots.lo, other.slots.lo), max(one.slots.hi, other.slots.hi)
        return self.prepare(TransitionKind.MERGE, (one, other), (SlotRange(lo, hi),))

    def repartition(self, ranges: tuple[SlotRange, ...], *, version: int | None = None) -> PrepareLayout:
        """To these ranges; partitions that have one of them stay."""
        present = {part.slots for part in self.active}
        sources = tuple(part for part in self.active if part.slots not in ranges)
        made = tuple(slots for slots in ranges if slots not in present)
        decided = self.now.layout.version if version is None else version
        return self.prepare(TransitionKind.REPARTITION, sources, made, version=decided)

    def number(self) -> ChangeId:
        return self.transition.change

    def hold(self, number: ChangeId | None = None) -> HoldLayout:
        return HoldLayout(change=number or self.number())

    def commit(self, number: ChangeId | None = None, *, end: LogEnd = END) -> CommitLayout:
        transition = self.state.transitions[number or self.number()]
        return CommitLayout(
            change=transition.change,
            ends=tuple((source, end) for source in transition.sources),
            created=tuple(
                (child.partition, LogEnd(Epoch(transition.change), 2, 0, 5)) for child in transition.children
            ),
            stopped_us=17,
        )

    def abort(self, number: ChangeId | None = None) -> AbortLayout:
        return AbortLayout(change=number or self.number(), why="test")

    def opened(self, number: ChangeId | None = None) -> ConfirmLayout:
        return ConfirmLayout(change=number or self.number())

    def finalize(self, number: ChangeId | None = None) -> FinalizeLayout:
        return FinalizeLayout(change=number or self.number())

    def config(self, **values: int) -> SetConfig:
        return SetConfig(values=values)

    def prune(self, *partitions: PartitionId) -> PrunePartitions:
        return PrunePartitions(topic=self.topic, partitions=partitions)

    def done(self, command: PrepareLayout, upto: str = "finalize") -> ChangeId:
        """Prepare a transition and bring it `upto` one of its steps."""
        self.must(command)
        number = self.number()
        for name in ("hold", "commit", "opened", "finalize"):
            if upto == "prepare":
                break
            self.must(getattr(self, name)(number))
            if name == upto:
                break
        return number

    def restart(self, node: int) -> RestartNode:
        return replace(restart(self.state, node), level=self.state.level)

    def fail(self, node: int) -> FailOver:
        """Fail a node; the command that lets its partitions fail over."""
        number = NodeId(node)
        self.must(FailNode(node=number, changed=self.state.nodes[number].changed))
        return FailOver(node=number, changed=Index(self.at))


def scoped(log: LayoutLog) -> tuple[ScopeId, Index]:
    """Begin a scope: its id and driver."""
    log.must(BeginScope(name="s"))
    return ScopeId(log.at << 16), Index(log.at)


def committed(log: LayoutLog, scope: tuple[ScopeId, Index], epoch: int, *partitions: int) -> CommitScope:
    """The commit of rows in these partitions."""
    parts = tuple(StagedPart(log.topic, PartitionId(partition), 3) for partition in partitions)
    return CommitScope(scope=scope[0], driver=scope[1], epoch=epoch, tokens=(b"t" * 16,), parts=parts)

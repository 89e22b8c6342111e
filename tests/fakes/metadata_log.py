"""A metadata log by hand: commands in, states out, the invariants checked at every step."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command, RestartNode
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    CleanChange,
    CommitChange,
    ConfirmOpened,
    FailOver,
    HoldChange,
    PrepareChange,
)
from ringfence.control.model.reassignments import Change, ChangeId, Proof
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.state import canonical_bytes
from ringfence.control.model.topics import Assignment, Replica
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import cluster, create, entry, restart

END = LogEnd(Epoch(1), 7, 70, 99)
LESS = LogEnd(Epoch(1), 6, 60, 98)


class MetadataLog:
    """A cluster of nodes 1, 2, 4, 6 and a topic; `at` is the index of the last entry."""

    def __init__(self, nodes: int = 3, *, replication: int = 1, partitions: int = 1, hold_s: int = 0) -> None:
        """`hold_s`: how long a finished change can be reversed."""
        self.state, self.at = cluster(nodes), 3 * nodes
        self.state = replace(self.state, config={**self.state.config, "reverse_hold_s": hold_s})
        self.nodes = sorted(self.state.nodes)
        made = create(partitions=partitions, nodes=(tuple(self.nodes[:replication]),) * partitions)
        assert not isinstance(self.do(made), Refused)
        self.topic = TopicId(self.at)
        self.partition = PartitionId(self.at << 16)

    def do(self, command: Command) -> Result:
        """Apply one entry; a refusal must leave the very bytes (I15)."""
        self.at += 1
        before = canonical_bytes(self.state)
        after, result = apply(self.state, entry(self.at, command))
        invariants.check_step(self.state, after, self.at)
        assert not isinstance(result, Refused) or canonical_bytes(after) == before, "I15"
        self.state = after
        return result

    def must(self, command: Command) -> None:
        result = self.do(command)
        assert not isinstance(result, Refused), result

    def refuses(self, command: Command, *words: str) -> None:
        result = self.do(command)
        assert isinstance(result, Refused), (command, result)
        assert all(word in result.message for word in words), result.message

    # ---- short ways -----------------------------------------------------------------------------------

    @property
    def now(self) -> Assignment:
        return self.state.topics[self.topic].assignments[self.partition]

    @property
    def change(self) -> Change:
        return self.state.changes[self.partition]

    @property
    def which(self) -> dict[str, Any]:
        return {"partition": self.partition, "change": self.change.change}

    def place(self, node: int) -> Replica:
        return Replica(node=NodeId(node), store=self.state.nodes[NodeId(node)].store)

    def prepare(self, *nodes: int, owner: int | None = None, epoch: int | None = None) -> PrepareChange:
        return PrepareChange(
            topic=self.topic,
            partition=self.partition,
            epoch=Epoch(self.now.epoch if epoch is None else epoch),
            owner=NodeId(nodes[0] if owner is None else owner),
            replicas=tuple(NodeId(node) for node in nodes),
        )

    def hold(self) -> HoldChange:
        return HoldChange(**self.which)

    def abort(self) -> AbortChange:
        return AbortChange(**self.which, why="test")

    def commit(self, ends: dict[int, LogEnd], *, owner: int | None = None, end: LogEnd = END) -> CommitChange:
        return CommitChange(
            **self.which,
            epoch=self.now.epoch,
            owner=NodeId(self.change.owner.node if owner is None else owner),
            end=end,
            proofs=tuple(Proof(self.place(node), known) for node, known in ends.items()),
        )

    def opened(self) -> ConfirmOpened:
        return ConfirmOpened(**self.which, epoch=self.now.epoch)

    def clean(self) -> CleanChange:
        return CleanChange(**self.which)

    def restart(self, node: int) -> RestartNode:
        return restart(self.state, node)

    def fail(self, node: int) -> FailOver:
        """Fail a node; the command that lets its partitions fail over."""
        number = NodeId(node)
        self.must(FailNode(node=number, changed=self.state.nodes[number].changed))
        return FailOver(node=number, changed=Index(self.at))


def other(change: Change) -> ChangeId:
    """A number that the change does not have."""
    return ChangeId(change.change + 1)

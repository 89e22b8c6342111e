"""Show one partition with its reassignment, and plan a forced owner (unclean election)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.reassignment_commands import ForceOwner
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.commands import Plan
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.transactions.lost_partitions import LostPartitions, unpublished
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.unclean_election import Candidate, candidates
from ringfence.native.wire import Code

# Timeout for the leader's answer; after it the caller gets this node's view.
SHOW_S: Final = 1.0


class Partitions:
    """Handlers; they raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        peer_client: PeerClient,
        coordinator: Coordinator,
        lost_partitions: LostPartitions,
    ) -> None:
        self._proposer, self._peer_client, self._coordinator = proposer, peer_client, coordinator
        self._lost_partitions = lost_partitions

    async def show(self, partition: PartitionId) -> dict[str, Any]:
        """The leader's view, which has the replicas' answers; this node's view if the leader is silent."""
        leader = self._proposer.replica.leader
        if leader and leader != self._peer_client.here:
            question = messages.ShowPartition(partition=partition, here=True)
            try:
                reply = await self._peer_client.ask(NodeId(leader), question, SHOW_S)
            except RequestRefused:
                return self.here(partition)
            if isinstance(reply, messages.Document):
                return reply.value
        return self.here(partition)

    def topic_of(self, partition: PartitionId) -> Topic | None:
        """The topic with this partition, in this node's state."""
        return topic_with(self._proposer.state, partition)

    def here(self, partition: PartitionId) -> dict[str, Any]:
        """The partition as this node knows it."""
        state = self._proposer.state
        topic, assignment = _assigned(state, partition)
        change = state.changes.get(partition)
        return {
            "partition": partition,
            "topic": topic.topic,
            "name": topic.name,
            "replication": topic.replication,
            "owner": assignment.owner.node,
            "epoch": assignment.epoch,
            "replicas": [
                {"node": replica.node, "store": replica.store.hex(), "life": _life(state, replica.node)}
                for replica in assignment.replicas
            ],
            "change": None if change is None else self._shown_change(state, change),
            "unpublished": unpublished(state, partition),
        }

    async def plan_owner(
        self, partition: PartitionId, change: int, owner: int, accepts: str, replicas: Iterable[int] = ()
    ) -> Plan:
        """Plan to make `owner` the owner. The state machine validates it."""
        # The command must name the open failover: an older state could name a finished one.
        await self._proposer.read_barrier()
        _assigned(self._proposer.state, partition)
        command = ForceOwner(
            partition=partition,
            change=ChangeId(change),
            owner=NodeId(owner),
            accepts=accepts,
            replicas=tuple(NodeId(node) for node in replicas),
        )
        return Plan((command,))

    async def plan_give_up(self, partition: PartitionId, scope: int, epoch: int) -> Plan:
        """Plan to publish a committed epoch without a part whose owner has lost rows of it."""
        return Plan((await self._lost_partitions.give_up(partition, scope, epoch),))

    def _shown_change(self, state: MetadataState, change: Change) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "change": change.change,
            "kind": str(change.kind),
            "phase": str(change.phase),
            "owner": change.owner.node,
            "replicas": [replica.node for replica in change.replicas],
            "run": change.run,
            "attempt": change.attempt,
            "candidates": [],
        }
        if change.kind is ChangeKind.FAILOVER and not change.is_committed:
            progress = self._coordinator.progress(change.partition)
            known = progress if progress is not None and progress.change == change.change else None
            proofs, lacks = (known.proofs, known.lacks) if known is not None else ((), ())
            shown["candidates"] = [
                shown_candidate(candidate) for candidate in candidates(state, change, proofs, lacks)
            ]
        return shown


def shown_candidate(candidate: Candidate) -> dict[str, Any]:
    """A candidate for the next owner, as JSON values; epoch and records are null if it did not answer."""
    return {
        "node": candidate.node,
        "life": candidate.life,
        "epoch": candidate.end and candidate.end.epoch,
        "records": candidate.end and candidate.end.records,
        "cut": candidate.cut,
        "lost_records": candidate.lost_records,
        "may_lose": candidate.may_lose,
        "lacks": list(candidate.lacks),
    }


def topic_with(state: MetadataState, partition: PartitionId) -> Topic | None:
    """The topic that has this partition."""
    # A partition id encodes the index of its topic's creation, or of the split. A scan over all topics is
    # fast enough for an operator's request (10,000 topics: a few ms).
    for topic in state.topics.values():
        if partition in topic.assignments:
            return topic
    return None


def _assigned(state: MetadataState, partition: PartitionId) -> tuple[Topic, Any]:
    topic = topic_with(state, partition)
    if topic is not None:
        return topic, topic.assignments[partition]
    message = f"no topic has a partition {partition}; `ringfence topic show` lists a topic's partitions"
    raise RequestRefused(Code.UNKNOWN_PARTITION, message)


def _life(state: MetadataState, node: NodeId) -> str:
    member = state.nodes.get(node)
    return "gone" if member is None else str(member.life)

"""Build the commands for a named change of a node, for HTTP and control requests.

promote, demote, auto   set whether the node votes
drain                   give the node no new partitions, and move its replicas away, ownership first
undrain                 cancel a running drain or removal; the node may get partitions again
remove                  remove the node from the ring, then from the cluster, once it has no replicas
"""

from __future__ import annotations

from typing import Final

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId
from ringfence.control.model.names import shown_topic_name
from ringfence.control.model.node_commands import RemoveNode, SetNode
from ringfence.control.model.nodes import Life, Vote
from ringfence.control.model.rebalances import LEAVING, Action, Run
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import counted, listed
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.replica_counts import replicas_of
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from ringfence.control.state_machines.rebalance.plans import drain_under_way, preview
from ringfence.native.wire import Code

VOTES: Final = {"promote": Vote.ALWAYS, "demote": Vote.NEVER, "auto": Vote.AUTO}
# Topics and partitions that a refusal names.
SHOWN_MAX: Final = 3
NODE_CHANGES: Final = (*VOTES, "drain", "undrain", "remove")


async def joined_drain(proposer: RaftProposer, node: NodeId) -> Run | None:
    """The running drain of `node` in the newest state; a new request for a drain joins it."""
    await proposer.read_barrier()
    return drain_under_way(proposer.state, node)


def _way_out(state: MetadataState, node: NodeId) -> str:
    """The way out for a node that cannot be removed because it has replicas."""
    member, run = state.nodes[node], state.rebalance
    if run.is_active and run.action in LEAVING and run.node == node:
        return "its drain is under way (`ringfence rebalance status` says what it waits for)"
    unreplicated = [
        (topic.name, partition)
        for topic in state.topics.values()
        for partition, assignment in sorted(topic.assignments.items())
        if all(replica.node == node for replica in assignment.replicas)
    ]
    if unreplicated and member.life is not Life.LIVE:
        # No move can start: the rows to copy are only on this node.
        topics = listed(sorted({shown_topic_name(name) for name, _ in unreplicated}), SHOWN_MAX)
        numbers = listed([partition for _, partition in unreplicated], SHOWN_MAX)
        return (
            f"it is {member.life} and alone has the rows of {counted(len(unreplicated), 'partition')} "
            f"({numbers}): "
            "start it with its data directory again and drain it; or, if that is lost with its rows, delete "
            f"the topics ({topics}) with `ringfence topic delete`"
        )
    if member.draining:
        return (
            "its drain has ended and left them (`ringfence rebalance history` says why): let a node join "
            f"that can take them, and run `ringfence node drain {node} --wait` again; a partition without "
            "an owner (`ringfence partition show P`) may need `ringfence partition force-owner`"
        )
    plan = preview(state, Action.DRAIN, node)
    if plan.refusal is not None:
        return f"a drain, which moves them, is refused: {plan.refusal.message}"
    if plan.stranded:
        return (
            f"no other node may take {counted(len(plan.stranded), 'partition')} "
            f"({listed(plan.stranded, SHOWN_MAX)}): let a node join that can, then run "
            f"`ringfence node drain {node} --wait`"
        )
    return f"run `ringfence node drain {node} --wait` first"


async def commands(proposer: RaftProposer, node: NodeId, change: str) -> tuple[Command, ...]:
    """The commands to propose, in this order; the last one is the requested change.

    Raises:
        RequestRefused: the change is unknown, or the state does not allow it.
    """
    if change in VOTES:
        return (SetNode(node=node, vote=VOTES[change]),)
    if change == "undrain":
        return (SetNode(node=node, draining=False),)
    if change == "drain":
        await proposer.read_barrier()
        plan = preview(proposer.state, Action.DRAIN, node)
        if plan.refusal is not None:
            raise RequestRefused(plan.refusal.code, plan.refusal.message)
        return (plan.command,)
    if change != "remove":
        raise RequestRefused(Code.INVALID_ARGUMENT, f"change={change!r}: one of {', '.join(NODE_CHANGES)}")
    await proposer.read_barrier()
    state, last = proposer.state, RemoveNode(node=node)
    if replica_count := replicas_of(state, node):
        why = f"node {node} holds {counted(replica_count, 'replica')}; {_way_out(state, node)}"
        raise RequestRefused(Code.INVALID_ARGUMENT, why)
    return (RingConsensus.propose_remove(state, node), last) if node in state.ring.members else (last,)

"""What a named change of a node is, as entries of the log: for HTTP and control requests alike.

promote, demote, auto   whether it votes
drain                   it gets nothing new, and a run moves off what it has, ownership first of all
undrain                 the opposite: a drain or removal under way is cancelled, it may get partitions again
remove                  out of the ring, then out of the cluster, once it holds nothing
"""

from __future__ import annotations

from typing import Final

from ringfence.control.machines.holdings import replicas_of
from ringfence.control.machines.rebalance_plans import preview
from ringfence.control.machines.rings import RingConsensus
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import RemoveNode, SetNode
from ringfence.control.model.nodes import Vote
from ringfence.control.model.rebalances import Action
from ringfence.control.model.words import counted
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.raft_proposer import RaftProposer
from ringfence.native.wire import Code

VOTES: Final = {"promote": Vote.ALWAYS, "demote": Vote.NEVER, "auto": Vote.AUTO}
NODE_CHANGES: Final = (*VOTES, "drain", "undrain", "remove")


async def commands(proposer: RaftProposer, node: NodeId, change: str) -> tuple[Command, ...]:
    """Entries to propose, in this order; the last one is what was asked for.

    Raises:
        RequestRefused: no such change, or one that would be refused now.
    """
    if change in VOTES:
        return (SetNode(node=node, vote=VOTES[change]),)
    if change == "undrain":
        return (SetNode(node=node, draining=False),)
    if change == "drain":
        await proposer.fresh()
        plan = preview(proposer.state, Action.DRAIN, node)
        if plan.refusal is not None:
            raise RequestRefused(plan.refusal.code, plan.refusal.message)
        return (plan.command,)
    if change != "remove":
        raise RequestRefused(Code.INVALID_ARGUMENT, f"change={change!r}: one of {', '.join(NODE_CHANGES)}")
    await proposer.fresh()
    state, last = proposer.state, RemoveNode(node=node)
    if held := replicas_of(state, node):
        drain = f"run `ringfence node drain {node} --wait` first"
        if (member := state.nodes.get(node)) is not None and member.draining:
            drain = "its drain is under way, or let a node join that can take them"
        why = f"node {node} holds {counted(held, 'replica')}; {drain}"
        raise RequestRefused(Code.INVALID_ARGUMENT, why)
    return (RingConsensus.propose_remove(state, node), last) if node in state.ring.members else (last,)

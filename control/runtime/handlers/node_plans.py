"""Plan the named changes of a node (`node_commands`), for HTTP and the control address."""

from __future__ import annotations

from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import RebalanceStarted
from ringfence.control.runtime.handlers.commands import Outcome, Plan
from ringfence.control.runtime.membership import node_commands
from ringfence.control.runtime.raft.proposer import RaftProposer


async def plan(proposer: RaftProposer, node: NodeId, change: str, *, joins: bool) -> Plan:
    """Plan one of NODE_CHANGES. `joins`: a drain joins the running drain of the node; else it is refused."""
    if change == "drain" and joins and (joined := await joined_drain(proposer, node)):
        return joined
    return Plan(await node_commands.commands(proposer, node, change))


async def joined_drain(proposer: RaftProposer, node: NodeId) -> Plan | None:
    """The plan that joins the running drain of `node`; None if there is none."""
    run = await node_commands.joined_drain(proposer, node)
    return None if run is None else Plan(done=Outcome(run.run, RebalanceStarted(run=run.run)))

"""Commands about the ring, the members that take partitions. Each command names the ring's version before it.

An entry changes the ring for every node at one index. A node without the entry also lacks the assignments
after it, so it cannot believe that it owns one of them.

The reason of an ended rebalance may quote a refusal of this module (`rebalances.finish`), and reasons are
part of the hashed state. So the texts of refusals here, and of `node_checks.member_fault`, must stay as
they are: two versions of the program in one cluster would otherwise disagree on the hash.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import AddToRing, FormRing, RemoveFromRing, RingCommand
from ringfence.control.model.nodes import Ring
from ringfence.control.model.results import Refused, Result, RingChanged
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata import node_checks
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale
from ringfence.control.state_machines.metadata.replica_counts import changes_of, replicas_of, replication_max
from ringfence.native.wire import Code


def validate(state: MetadataState, command: RingCommand) -> Refused | None:
    match command:
        case FormRing():
            return check_form(state, command)
        case AddToRing():
            return check_add(state, command)
        case RemoveFromRing():
            return check_remove(state, command)


def execute(state: MetadataState, command: RingCommand, index: Index) -> tuple[MetadataState, Result]:
    members = tuple(sorted(_members(state.ring, command)))
    ring = Ring(version=state.ring.version + 1, members=members, changed=index)
    nodes = state.nodes
    if isinstance(command, RemoveFromRing):
        # A removed member stays drained until an operator undrains it: no drained node joins the ring by
        # itself.
        nodes = {**nodes, command.node: replace(nodes[command.node], draining=True)}
    return replace(state, ring=ring, nodes=nodes), RingChanged(version=ring.version)


def _members(ring: Ring, command: RingCommand) -> set[NodeId]:
    match command:
        case FormRing():
            return {*command.nodes}
        case AddToRing():
            return {*ring.members, command.node}
        case RemoveFromRing():
            return {*ring.members} - {command.node}


def check_form(state: MetadataState, command: FormRing) -> Refused | None:
    if state.ring.is_formed:
        return Refused(
            code=Code.ALREADY_EXISTS,
            message=f"the ring was formed, its version is {state.ring.version}; add nodes one by one",
        )
    if len(set(command.nodes)) != len(command.nodes):
        return invalid(f"a ring of {len(command.nodes)} nodes names one twice")
    if len(command.nodes) < limit(state, "nodes_min"):
        return too_few_nodes(state, len(command.nodes))
    for node in command.nodes:
        fault = eligible_fault(state, node)
        if fault is not None:
            return fault
    return None


def check_add(state: MetadataState, command: AddToRing) -> Refused | None:
    if command.node in state.ring.members:
        message = f"node {command.node} is in the ring already, version {state.ring.version}"
        return Refused(code=Code.ALREADY_EXISTS, message=message)
    return version_fault(state, command.version) or eligible_fault(state, command.node)


def check_remove(state: MetadataState, command: RemoveFromRing) -> Refused | None:
    fault = version_fault(state, command.version)
    if fault is not None:
        return fault
    if command.node not in state.ring.members:
        return invalid(f"node {command.node} is not in the ring, whose version is {state.ring.version}")
    replicas = replicas_of(state, command.node)
    if replicas:
        return invalid(f"node {command.node} holds {replicas} replicas; a ring changes after the moves")
    changing = changes_of(state, command.node)
    if changing:
        return conflict(f"node {command.node} takes part in {changing} changes; a ring changes after them")
    left = len(state.ring.members) - 1
    needed = max(limit(state, "nodes_min"), replication_max(state))
    if left < needed:
        return invalid(
            f"{left} nodes would be left in the ring, it needs {needed} (`nodes_min`, one a replica)"
        )
    return None


def eligible_fault(state: MetadataState, node: int) -> Refused | None:
    """The refusal of a node that may not take partitions; None if it may. The state may quote the text."""
    fault = node_checks.member_fault(state, node)
    if fault is not None:
        return fault
    record = state.nodes[NodeId(node)]
    if record.takes_partitions:
        return None
    why = (
        "is being drained (`node undrain` ends that)"
        if record.draining
        else f"is {record.life} since entry {record.changed}"
    )
    return invalid(f"node {node} {why}; it takes no partitions")


def version_fault(state: MetadataState, version: int) -> Refused | None:
    if not state.ring.is_formed:
        return too_few_nodes(state, sum(node.takes_partitions for node in state.nodes.values()))
    if version != state.ring.version:
        return stale(f"the ring has version {state.ring.version}, the change was decided on {version}")
    return None


def too_few_nodes(state: MetadataState, count: int) -> Refused:
    needed = limit(state, "nodes_min")
    message = f"the cluster has {count} live nodes; its first table waits for {needed} (`nodes_min`)"
    return Refused(code=Code.TOO_FEW_REPLICAS, message=message)

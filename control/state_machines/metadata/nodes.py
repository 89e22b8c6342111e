"""Commands about members: register, fail, recover, settings, remove.

    (unknown) --RegisterNode--> JOINING --RestartNode--> LIVE --FailNode--> FAILED
                                                          ^                  | RecoverNode, RestartNode
                                                          +------------------+

Neither failure nor recovery moves a partition: ownership changes by entries of its own. A node can be
removed only once it has no replica.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import (
    FailNode,
    NodeCommand,
    RecoverNode,
    RegisterNode,
    RemoveNode,
    RenewWitness,
    SetNode,
)
from ringfence.control.model.nodes import Life, NodeRecord, RemovedNode
from ringfence.control.model.rebalances import LEAVING, RunState
from ringfence.control.model.results import Done, NodeRegistered, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import counted
from ringfence.control.state_machines.metadata import node_checks
from ringfence.control.state_machines.metadata.config import REMOVED_MAX, limit
from ringfence.control.state_machines.metadata.reassignment_rules import without_store
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale
from ringfence.control.state_machines.metadata.replica_counts import changes_of, replicas_of, replication_max
from ringfence.native.wire import Code


def validate(state: MetadataState, command: NodeCommand) -> Refused | None:
    match command:
        case RegisterNode():
            return check_register(state, command)
        case FailNode():
            return check_life(state, command, Life.LIVE)
        case RecoverNode():
            return check_life(state, command, Life.FAILED)
        case SetNode():
            return node_checks.member_fault(state, command.node) or node_checks.settings_fault(
                command.zone, command.weight, command.labels
            )
        case RemoveNode():
            return check_remove(state, command)
        case RenewWitness():
            return check_witness(state, command)


def execute(state: MetadataState, command: NodeCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case RegisterNode():
            return register(state, command, index)
        case FailNode():
            return with_life(state, command.node, Life.FAILED, index), Done()
        case RecoverNode():
            return with_life(state, command.node, Life.LIVE, index), Done()
        case SetNode():
            return set_node(state, command), Done()
        case RemoveNode():
            return remove(state, command, index), Done()
        case RenewWitness():
            return with_witness(state, command.node, command.witness), Done()


def check_register(state: MetadataState, command: RegisterNode) -> Refused | None:
    if command.cluster != state.cluster:
        message = (
            f"the store belongs to cluster {command.cluster.hex()}, this one is {state.cluster.hex()}; "
            "join that cluster, or use an empty data directory"
        )
        return Refused(code=Code.UNAUTHORIZED, message=message)
    removed = next((old for old in state.removed.values() if old.store == command.store), None)
    if removed is not None:
        return invalid(
            f"store {command.store.hex()} was removed from the cluster by entry {removed.removed}; "
            "join with an empty data directory"
        )
    if node_of(state, command.store) is None and len(state.nodes) >= limit(state, "nodes_max"):
        return invalid(f"the cluster has {len(state.nodes)} nodes, its limit `nodes_max`")
    return (
        node_checks.level_fault(state, command.level)
        or node_checks.store_fault(command.store)
        or node_checks.addresses_fault(command.addresses, command.control, command.http)
        or node_checks.settings_fault(command.zone, command.weight, command.labels)
    )


def register(state: MetadataState, command: RegisterNode, index: Index) -> tuple[MetadataState, Result]:
    """Add a member. A repeated registration, sent when its answer was lost, returns the first one's id."""
    member = node_of(state, command.store)
    if member is not None:
        return state, NodeRegistered(node=member.node)
    node = NodeRecord(
        node=NodeId(index),
        store=command.store,
        addresses=command.addresses,
        program=command.program,
        started=Index(0),
        control=command.control,
        http=command.http,
        zone=command.zone,
        weight=command.weight,
        labels=dict(command.labels),
        life=Life.JOINING,
        changed=index,
    )
    return with_node(state, node), NodeRegistered(node=node.node)


def check_life(state: MetadataState, command: FailNode | RecoverNode, expected: Life) -> Refused | None:
    fault = node_checks.member_fault(state, command.node)
    if fault is not None:
        return fault
    node = state.nodes[command.node]
    if (node.life, node.changed) == (expected, command.changed):
        return None
    return stale(
        f"node {command.node} is {node.life} since entry {node.changed}, the decision was about {expected} "
        f"since {command.changed}"
    )


def set_node(state: MetadataState, command: SetNode) -> MetadataState:
    """Change settings of a node. To undrain it cancels a run that empties it."""
    node = state.nodes[command.node]
    changed = replace(
        node,
        zone=node.zone if command.zone is None else command.zone,
        weight=node.weight if command.weight is None else command.weight,
        labels=node.labels if command.labels is None else dict(command.labels),
        draining=node.draining if command.draining is None else command.draining,
        vote=node.vote if command.vote is None else command.vote,
    )
    run = state.rebalance
    if command.draining is False and run.is_active and run.action in LEAVING and run.node == command.node:
        state = replace(state, rebalance=replace(run, state=RunState.CANCELLING))
    return state if changed == node else with_node(state, changed)


def check_witness(state: MetadataState, command: RenewWitness) -> Refused | None:
    fault = node_checks.member_fault(state, command.node) or node_checks.witness_fault(state, command.witness)
    if fault is not None:
        return fault
    node = state.nodes[command.node]
    if (node.store, node.started) == (command.store, command.started):
        return None
    return stale(
        f"node {command.node} was started by entry {node.started}, the witness is of start {command.started}"
    )


def with_witness(state: MetadataState, node: NodeId, witness: int) -> MetadataState:
    return replace(state, witnesses={**state.witnesses, node: witness})


def check_remove(state: MetadataState, command: RemoveNode) -> Refused | None:
    """Refuse to remove a node that is in the ring, has replicas or open changes, or is needed."""
    fault = node_checks.member_fault(state, command.node)
    if fault is not None:
        return fault
    if command.node in state.ring.members:
        return invalid(
            f"node {command.node} is in the ring; move its partitions, then remove it from the ring"
        )
    replicas = replicas_of(state, command.node)
    if replicas:
        return invalid(f"node {command.node} holds {counted(replicas, 'replica')}; move them first")
    changing = changes_of(state, command.node)
    if changing:
        return conflict(f"node {command.node} takes part in {changing} open changes; wait for their end")
    left = len(state.nodes) - 1
    needed = max(limit(state, "nodes_min"), replication_max(state))
    if left < needed:
        return invalid(
            f"{left} nodes would be left, the cluster needs {needed} (`nodes_min`, and one for each replica)"
        )
    return None


def remove(state: MetadataState, command: RemoveNode, index: Index) -> MetadataState:
    """Remove a member. Deleted topics do not wait for its store any more."""
    store = state.nodes[command.node].store
    state = without_store(state, store)
    nodes = {number: node for number, node in state.nodes.items() if number != command.node}
    witnesses = {number: witness for number, witness in state.witnesses.items() if number != command.node}
    removed = {**state.removed, command.node: RemovedNode(store=store, removed=index)}
    while len(removed) > REMOVED_MAX:
        del removed[min(removed, key=lambda number: removed[number].removed)]
    tombstones = {
        topic: replace(tombstone, holders=tuple(holder for holder in tombstone.holders if holder != store))
        if store in tombstone.holders
        else tombstone
        for topic, tombstone in state.tombstones.items()
    }
    return replace(state, nodes=nodes, witnesses=witnesses, removed=removed, tombstones=tombstones)


def with_life(state: MetadataState, node: NodeId, life: Life, index: Index) -> MetadataState:
    return with_node(state, replace(state.nodes[node], life=life, changed=index))


def with_node(state: MetadataState, node: NodeRecord) -> MetadataState:
    return replace(state, nodes={**state.nodes, node.node: node})


def node_of(state: MetadataState, store: bytes) -> NodeRecord | None:
    """The member that a store belongs to."""
    return next((node for node in state.nodes.values() if node.store == store), None)

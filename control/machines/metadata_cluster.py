"""Commands about the cluster, its nodes and sessions."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.machines.config import LIMITS, SESSIONS_MAX
from ringfence.control.machines.refusals import invalid
from ringfence.control.model.commands import (
    ClusterCommand,
    InitCluster,
    OpenSession,
    RestartNode,
    SetAddresses,
    SetConfig,
)
from ringfence.control.model.ids import UUID_BYTES, Epoch, Index, PartitionId, SessionId
from ringfence.control.model.results import Done, NodeRestarted, Refused, Result, SessionOpened
from ringfence.control.model.state import MetadataState, NodeRecord, Session
from ringfence.control.model.topics import Assignment, Replica, Topic
from ringfence.native.wire import NAME_BYTES_MAX, Code

ADDRESSES_MAX = 16
"""Addresses of one node: they travel in every table."""


def validate(state: MetadataState, command: ClusterCommand) -> Refused | None:
    match command:
        case InitCluster():
            return check_init(state, command)
        case RestartNode() | SetAddresses():
            return check_node(state, command)
        case OpenSession():
            return None
        case SetConfig():
            return check_config(command)


def execute(state: MetadataState, command: ClusterCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case InitCluster():
            return init(state, command, index)
        case RestartNode():
            return restart(state, command, index)
        case SetAddresses():
            return set_addresses(state, command)
        case OpenSession():
            return open_session(state, index)
        case SetConfig():
            return set_config(state, command)


def check_init(state: MetadataState, command: InitCluster) -> Refused | None:
    if state.cluster:
        message = f"cluster {state.cluster.hex()} is initialized already; its history does not begin twice"
        return Refused(code=Code.ALREADY_EXISTS, message=message)
    for what, value in (("cluster", command.cluster), ("history", command.history), ("store", command.store)):
        if len(value) != UUID_BYTES or not any(value):
            return invalid(f"{what} id {value.hex()!r}: {UUID_BYTES} bytes, not all zero")
    if command.node <= 0:
        return invalid(f"node id {command.node}: ids begin at 1")
    return None


def init(state: MetadataState, command: InitCluster, index: Index) -> tuple[MetadataState, Result]:
    node = NodeRecord(node=command.node, store=command.store, addresses=(), program="", started=index)
    begun = replace(state, cluster=command.cluster, history=command.history, nodes={command.node: node})
    return open_session(begun, index)


def check_node(state: MetadataState, command: RestartNode | SetAddresses) -> Refused | None:
    node = state.nodes.get(command.node)
    if node is None:
        return invalid(f"node {command.node} is not a member; members are {sorted(state.nodes)}")
    if isinstance(command, RestartNode) and command.store != node.store:
        return invalid(
            f"node {command.node} is known with store {node.store.hex()}, it came with "
            f"{command.store.hex()}; a node with another data directory is another node"
        )
    if len(command.addresses) > ADDRESSES_MAX:
        return invalid(f"{len(command.addresses)} addresses: at most {ADDRESSES_MAX}")
    for address in command.addresses:
        if not 0 < len(address.encode("utf-8", errors="replace")) <= NAME_BYTES_MAX:
            return invalid(f"address {address[:80]!r}: 1 to {NAME_BYTES_MAX} bytes")
    return None


def restart(state: MetadataState, command: RestartNode, index: Index) -> tuple[MetadataState, Result]:
    """One entry for all partitions of the store: a start costs one write, with one topic or ten thousand."""
    place = Replica(node=command.node, store=command.store)
    topics = {number: _with_epoch(topic, place, Epoch(index)) for number, topic in state.topics.items()}
    node = NodeRecord(
        node=command.node,
        store=command.store,
        addresses=command.addresses,
        program=command.program,
        started=index,
    )
    restarted = replace(state, topics=topics, nodes={**state.nodes, command.node: node})
    opened, _ = open_session(restarted, index)
    partitions = sum(
        assignment.owner == place for topic in topics.values() for assignment in topic.assignments.values()
    )
    result = NodeRestarted(session=SessionId(index), epoch=Epoch(index), partitions=partitions)
    return opened, result


def set_addresses(state: MetadataState, command: SetAddresses) -> tuple[MetadataState, Result]:
    node = replace(state.nodes[command.node], addresses=command.addresses)
    return replace(state, nodes={**state.nodes, command.node: node}), Done()


def open_session(state: MetadataState, index: Index) -> tuple[MetadataState, Result]:
    session = SessionId(index)
    sessions = {**state.sessions, session: Session(last=0, used=index, results={})}
    while len(sessions) > SESSIONS_MAX:
        del sessions[min(sessions, key=lambda known: (sessions[known].used, known))]
    return replace(state, sessions=sessions), SessionOpened(session=session)


def check_config(command: SetConfig) -> Refused | None:
    for name, value in sorted(command.values.items()):
        known = LIMITS.get(name)
        if known is None:
            return invalid(f"no limit is named {name[:80]!r}; there are {', '.join(sorted(LIMITS))}")
        if not known.low <= value <= known.high:
            return invalid(f"{name}={value}: {known.low} to {known.high} ({known.reason})")
    return None


def set_config(state: MetadataState, command: SetConfig) -> tuple[MetadataState, Result]:
    return replace(state, config={**state.config, **command.values}), Done()


def _with_epoch(topic: Topic, place: Replica, epoch: Epoch) -> Topic:
    if not any(assignment.owner == place for assignment in topic.assignments.values()):
        return topic
    assignments: dict[PartitionId, Assignment] = {
        partition: replace(assignment, epoch=epoch) if assignment.owner == place else assignment
        for partition, assignment in topic.assignments.items()
    }
    return replace(topic, assignments=assignments, changed=Index(epoch))

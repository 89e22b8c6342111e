"""Commands about the cluster: its initialization, starts of nodes, sessions, level and limits."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.commands import (
    ClusterCommand,
    InitCluster,
    OpenSession,
    RaiseLevel,
    RestartNode,
    SetAddresses,
    SetConfig,
)
from ringfence.control.model.ids import Epoch, Index, PartitionId, SessionId
from ringfence.control.model.nodes import Life, NodeRecord, Ring
from ringfence.control.model.results import Done, NodeRestarted, Refused, Result, SessionOpened
from ringfence.control.model.state import MetadataState, Session
from ringfence.control.model.topics import Assignment, Replica, Topic
from ringfence.control.state_machines.metadata import node_checks
from ringfence.control.state_machines.metadata.config import BEATS_MIN, LIMITS, SESSIONS_MAX, limit
from ringfence.control.state_machines.metadata.reassignment_rules import end_open_change, with_failovers
from ringfence.control.state_machines.metadata.refusals import invalid, stale
from ringfence.native.wire import Code


def validate(state: MetadataState, command: ClusterCommand) -> Refused | None:
    match command:
        case InitCluster():
            return check_init(state, command)
        case RestartNode() | SetAddresses():
            return check_node(state, command)
        case OpenSession():
            return None
        case RaiseLevel():
            return check_raise(state, command)
        case SetConfig():
            return check_config(state, command)


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
        case RaiseLevel():
            return raise_level(state, command), Done()
        case SetConfig():
            return set_config(state, command)


def check_init(state: MetadataState, command: InitCluster) -> Refused | None:
    if state.cluster:
        message = f"cluster {state.cluster.hex()} is already initialized; a history begins only once"
        return Refused(code=Code.ALREADY_EXISTS, message=message)
    for what, value in (("cluster", command.cluster), ("history", command.history), ("store", command.store)):
        fault = node_checks.store_fault(value, what)
        if fault is not None:
            return fault
    if command.node <= 0:
        return invalid(f"node id {command.node}: ids begin at 1")
    return check_config(state, SetConfig(values={"nodes_min": command.nodes_min}))


def init(state: MetadataState, command: InitCluster, index: Index) -> tuple[MetadataState, Result]:
    """Start the history. A cluster of one node has its ring immediately; otherwise the ring waits for other
    nodes.
    """
    node = NodeRecord(
        node=command.node, store=command.store, addresses=(), program="", started=index, changed=index
    )
    alone = command.nodes_min == 1
    begun = replace(
        state,
        cluster=command.cluster,
        history=command.history,
        nodes={command.node: node},
        ring=Ring(version=1, members=(command.node,), changed=index) if alone else Ring(),
        config={} if alone else {"nodes_min": command.nodes_min},
        level=command.level,
    )
    return open_session(begun, index)


def check_node(state: MetadataState, command: RestartNode | SetAddresses) -> Refused | None:
    fault = node_checks.member_fault(state, command.node)
    if fault is not None:
        return fault
    node = state.nodes[command.node]
    if isinstance(command, RestartNode):
        if command.store != node.store:
            return invalid(
                f"node {command.node} has store {node.store.hex()}, this start has store "
                f"{command.store.hex()}; a node with another data directory joins as another node"
            )
        if command.after not in (None, node.started):
            return stale(
                f"node {command.node} was started by entry {node.started}, this start was decided after "
                f"{command.after}: an older start does not end a running process"
            )
        fault = node_checks.level_fault(state, command.level)
        fault = fault or node_checks.settings_fault(zone=command.zone, labels=command.labels)
        if command.witness is not None:
            fault = fault or node_checks.witness_fault(state, command.witness)
    return fault or node_checks.addresses_fault(command.addresses, command.control, command.http)


def restart(state: MetadataState, command: RestartNode, index: Index) -> tuple[MetadataState, Result]:
    """Start a node by one entry for all partitions of its store: one write, with one topic or ten thousand.

    Replicated partitions fail over at this index, since this store may have lost the end of its log. A
    partition with a single replica opens under the index immediately. A change of such a partition is
    aborted: its HOLD may have fenced the owner.
    """
    place = Replica(node=command.node, store=command.store)
    for partition, change in state.changes.items():
        topic = state.topics[change.topic]
        if topic.replication == 1 and topic.assignments[partition].owner == place and change.may_abort:
            state = end_open_change(state, partition, index)
    state = with_failovers(state, place, index)
    topics = {number: _with_epoch(topic, place, Epoch(index)) for number, topic in state.topics.items()}
    record = state.nodes[command.node]
    node = replace(
        record,
        addresses=command.addresses,
        program=command.program,
        started=index,
        control=record.control if command.control is None else command.control,
        http=record.http if command.http is None else command.http,
        zone=record.zone if command.zone is None else command.zone,
        labels=record.labels if command.labels is None else dict(command.labels),
        life=Life.LIVE,
        changed=index,
    )
    restarted = replace(state, topics=topics, nodes={**state.nodes, command.node: node})
    if command.witness is not None:
        restarted = replace(restarted, witnesses={**restarted.witnesses, command.node: command.witness})
    opened, _ = open_session(restarted, index)
    partitions = sum(
        assignment.owner == place for topic in topics.values() for assignment in topic.assignments.values()
    )
    result = NodeRestarted(session=SessionId(index), epoch=Epoch(index), partitions=partitions)
    return opened, result


def set_addresses(state: MetadataState, command: SetAddresses) -> tuple[MetadataState, Result]:
    record = state.nodes[command.node]
    node = replace(
        record,
        addresses=command.addresses,
        control=record.control if command.control is None else command.control,
        http=record.http if command.http is None else command.http,
    )
    return replace(state, nodes={**state.nodes, command.node: node}), Done()


def open_session(state: MetadataState, index: Index) -> tuple[MetadataState, Result]:
    session = SessionId(index)
    sessions = {**state.sessions, session: Session(last=0, used=index, results={})}
    while len(sessions) > SESSIONS_MAX:
        del sessions[min(sessions, key=lambda number: (sessions[number].used, number))]
    return replace(state, sessions=sessions), SessionOpened(session=session)


def check_raise(state: MetadataState, command: RaiseLevel) -> Refused | None:
    if command.level <= state.level or set(command.nodes) == set(state.nodes):
        return None
    asking, members = ", ".join(map(str, sorted(command.nodes))), ", ".join(map(str, sorted(state.nodes)))
    return stale(
        f"nodes {asking} agreed to level {command.level}, the members are {members}: ask all members again"
    )


def raise_level(state: MetadataState, command: RaiseLevel) -> MetadataState:
    """Raise the level. It never goes down; a level that is reached already changes nothing."""
    return replace(state, level=command.level) if command.level > state.level else state


def check_config(state: MetadataState, command: SetConfig) -> Refused | None:
    for name, value in sorted(command.values.items()):
        bounds = LIMITS.get(name)
        if bounds is None:
            return invalid(f"no limit is named {name[:80]!r}; the limits are {', '.join(sorted(LIMITS))}")
        if not bounds.low <= value <= bounds.high:
            return invalid(f"{name}={value} is outside of {bounds.low} to {bounds.high} ({bounds.reason})")
    if command.values.get("voters_max", 1) % 2 == 0:
        return invalid(
            f"voters_max={command.values['voters_max']}: use 1, 3 or 5; even numbers survive no more failures"
        )
    after = {name: command.values.get(name, limit(state, name)) for name in ("heartbeat_ms", "failure_ms")}
    if after["failure_ms"] < BEATS_MIN * after["heartbeat_ms"]:
        return invalid(
            f"failure_ms={after['failure_ms']} is below {BEATS_MIN} times "
            f"heartbeat_ms={after['heartbeat_ms']}; one lost heartbeat must not fail a node"
        )
    return None


def set_config(state: MetadataState, command: SetConfig) -> tuple[MetadataState, Result]:
    return replace(state, config={**state.config, **command.values}), Done()


def _with_epoch(topic: Topic, place: Replica, epoch: Epoch) -> Topic:
    if topic.replication > 1 or not any(
        assignment.owner == place for assignment in topic.assignments.values()
    ):
        return topic
    assignments: dict[PartitionId, Assignment] = {
        partition: replace(assignment, epoch=epoch) if assignment.owner == place else assignment
        for partition, assignment in topic.assignments.items()
    }
    return replace(topic, assignments=assignments, changed=Index(epoch))

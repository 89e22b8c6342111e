"""Make a topic: check its creation, and add it to the state with its partitions and their first owners."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.commands import CreateTopic
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId, drawn
from ringfence.control.model.layout import Layout, Partition
from ringfence.control.model.results import Refused, Result, TopicCreated
from ringfence.control.model.schemas import SchemaVersion
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica, Topic
from ringfence.control.state_machines.metadata import topic_checks
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.refusals import invalid
from ringfence.control.state_machines.metadata.ring_commands import too_few_nodes
from ringfence.native.wire import Code


def check_create(state: MetadataState, command: CreateTopic) -> Refused | None:
    if not state.ring.is_formed:
        return too_few_nodes(state, sum(node.takes_partitions for node in state.nodes.values()))
    if command.name in state.names:
        message = f"topic {command.name!r} exists; pass exist_ok (--exist-ok), or choose another name"
        return Refused(code=Code.ALREADY_EXISTS, message=message)
    if len(state.topics) >= limit(state, "topics_max"):
        return invalid(
            f"the cluster has {len(state.topics)} topics, its limit `topics_max`; delete one, or raise it"
        )
    # In this order: later checks rely on what earlier ones have established.
    return (
        topic_checks.name_fault(command)
        or topic_checks.partition_name_fault(state, command)
        or topic_checks.schema_fault(state, command)
        or topic_checks.layout_fault(state, command)
        or topic_checks.placement_fault(state, command)
        or topic_checks.options_fault(command)
        or topic_checks.hold_time_fault(state, command)
        or topic_checks.auto_layout_fault(state, command)
    )


def create(state: MetadataState, command: CreateTopic, index: Index) -> tuple[MetadataState, Result]:
    ids = [PartitionId(drawn(index, ordinal)) for ordinal in range(len(command.ranges))]
    topic = Topic(
        topic=TopicId(index),
        name=command.name,
        key=command.key,
        schemas=(SchemaVersion(message=command.schema, columns=command.columns),),
        layout=Layout(
            version=1,
            partitions=tuple(
                Partition(partition=partition, slots=slots, created_version=1)
                for partition, slots in zip(ids, command.ranges, strict=True)
            ),
        ),
        assignments={
            partition: _assigned(state, nodes, Epoch(index))
            for partition, nodes in zip(ids, command.nodes, strict=True)
        },
        replication=len(command.nodes[0]),
        retention_bytes=command.retention_bytes,
        retention_ms=command.retention_ms,
        properties=dict(command.properties),
        starts={},
        changed=index,
    )
    created = replace(
        state, topics={**state.topics, topic.topic: topic}, names={**state.names, topic.name: topic.topic}
    )
    return created, TopicCreated(topic=topic.topic)


def _assigned(state: MetadataState, nodes: tuple[int, ...], epoch: Epoch) -> Assignment:
    replicas = tuple(Replica(node=NodeId(node), store=state.nodes[NodeId(node)].store) for node in nodes)
    return Assignment(owner=replicas[0], epoch=epoch, replicas=replicas)

"""Encode metadata as message bodies for clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from ringfence.control.model.ids import NodeId
from ringfence.control.model.layout import Partition
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.native import messages

# Characters of one reason for a quarantine or for missing counters.
WHY_MAX = 160
# Characters of all reasons in one description: with them, a description of 4,096 partitions and all schemas
# still fits a body.
WHYS_MAX = 65_536


def table(state: MetadataState, topic: Topic, generation: int) -> messages.Table:
    """The routing table of a topic, SEALED partitions included: clients resolve old sequences with them."""
    owners = sorted({assignment.owner.node for assignment in topic.assignments.values()})
    return messages.Table(
        topic=topic.topic,
        name=topic.name,
        history=state.history,
        generation=generation,
        version=topic.layout.version,
        key=list(topic.key),
        schemas=[schema.message for schema in topic.schemas],
        replication=topic.replication,
        partitions=[_entry(topic, partition) for partition in topic.layout.partitions],
        nodes=[
            messages.NodeEntry(node=node, addresses=list(state.nodes[NodeId(node)].addresses))
            for node in owners
        ],
    )


def _entry(topic: Topic, partition: Partition) -> messages.PartitionEntry:
    number = partition.partition
    assignment, seal = topic.assignments[number], topic.seal(number)
    gone = [(int(parent.partition), parent.offset) for parent in topic.pruned_parents(number)]
    return messages.PartitionEntry(
        partition=number,
        lo=partition.slots.lo,
        hi=partition.slots.hi,
        state="ACTIVE" if partition.is_active else "SEALED",
        owner=assignment.owner.node,
        epoch=assignment.epoch,
        parents=list(partition.parents),
        children=list(partition.children),
        created_version=partition.created_version,
        sealed_version=partition.sealed_version,
        end_offset=UNSET if seal is None else seal.end.offset,
        sealed_ms=UNSET if seal is None else seal.sealed_ms,
        gone=gone or UNSET,
    )


def redirect(state: MetadataState, node: int, children: Iterable[int] = ()) -> messages.Redirected:
    """The body of a REDIRECT that names the owner and, for a sealed partition, its children."""
    addresses = list(state.nodes[NodeId(node)].addresses)
    return messages.Redirected(owner=node, addresses=addresses, children=list(children))


def topic_info(
    state: MetadataState,
    topic: Topic,
    hosted: Mapping[tuple[int, int], Mapping[str, Any]],
    *,
    created: bool = False,
) -> messages.TopicInfo:
    """A topic with the counters of its partitions. `hosted` has counters by (topic, partition).

    A partition without counters is marked as unknown.
    """
    partitions = []
    why_max = min(WHY_MAX, WHYS_MAX // len(topic.layout.partitions))
    for partition in topic.layout.partitions:
        assignment = topic.assignments[partition.partition]
        counters = hosted.get((topic.topic, partition.partition))
        shown, why = counters or {}, (counters or {}).get("quarantined")
        partitions.append(
            messages.PartitionStats(
                partition=partition.partition,
                name=partition.name,
                lo=partition.slots.lo,
                hi=partition.slots.hi,
                state="ACTIVE" if partition.is_active else "SEALED",
                owner=assignment.owner.node,
                epoch=assignment.epoch,
                start_offset=shown.get("start_offset", 0),
                end_offset=shown.get("end_offset", 0),
                bytes=shown.get("bytes", 0),
                quarantined=None if why is None else str(why)[:why_max],
                unknown=None
                if counters is not None
                else _why_unknown(state, assignment.owner.node)[:why_max],
            )
        )
    return messages.TopicInfo(
        topic=topic.topic,
        name=topic.name,
        version=topic.layout.version,
        key=list(topic.key),
        schema_messages=[schema.message for schema in topic.schemas],
        replication=topic.replication,
        retention_bytes=topic.retention_bytes,
        retention_ms=topic.retention_ms,
        properties=dict(topic.properties),
        partitions=partitions,
        created=created,
    )


def _why_unknown(state: MetadataState, owner: NodeId) -> str:
    """The reason for missing counters of a partition: its owner has failed, or did not answer."""
    node = state.nodes.get(owner)
    if node is None:  # the topic is older than the state, which was read after the owners had answered
        return f"node {owner} was removed"
    condition = "FAILED" if node.life is Life.FAILED else "silent"
    return f"node {owner} is {condition} ({', '.join(node.addresses)})"

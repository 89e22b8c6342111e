"""Count replicas and owned partitions of nodes, over all assignments."""

from __future__ import annotations

from collections import Counter

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica


def replicas_of(state: MetadataState, node: int) -> int:
    """Replicas that are assigned to a node, owned ones included."""
    return sum(
        replica.node == node
        for topic in state.topics.values()
        for assignment in topic.assignments.values()
        for replica in assignment.replicas
    )


def partitions_on(state: MetadataState, place: Replica) -> list[tuple[TopicId, PartitionId]]:
    """Partitions with a replica on this store."""
    return [
        (number, partition)
        for number, topic in state.topics.items()
        for partition, assignment in topic.assignments.items()
        if place in assignment.replicas
    ]


def shares_replicas(state: MetadataState, place: Replica) -> bool:
    """Whether this store has replicas of partitions that others have, too."""
    return any(
        len(assignment.replicas) > 1 and place in assignment.replicas
        for topic in state.topics.values()
        for assignment in topic.assignments.values()
    )


def changes_of(state: MetadataState, node: int) -> int:
    """Open changes that copy to a node, or by which the node leaves."""
    return sum(
        any(place.node == node for place in (*change.adds, *change.leaves))
        for change in state.changes.values()
    )


def owned_by_node(state: MetadataState) -> Counter[NodeId]:
    """Partitions that each node owns; nodes without any may be missing."""
    return Counter(
        assignment.owner.node for topic in state.topics.values() for assignment in topic.assignments.values()
    )


def replicas_by_node(state: MetadataState) -> Counter[NodeId]:
    """Replicas on each node, owned ones included; nodes without any may be missing."""
    return Counter(
        replica.node
        for topic in state.topics.values()
        for assignment in topic.assignments.values()
        for replica in assignment.replicas
    )


def replication_max(state: MetadataState) -> int:
    """The greatest replication of a topic; 1 without topics."""
    return max((topic.replication for topic in state.topics.values()), default=1)

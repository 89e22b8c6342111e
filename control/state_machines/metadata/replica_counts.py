"""Count replicas and owned partitions of nodes, over all assignments."""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.layout_rules import planned_children


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
    """Open changes that copy to a node, or by which the node leaves, or that make a partition on it."""
    moves = sum(
        any(place.node == node for place in (*change.adds, *change.leaves))
        for change in state.changes.values()
    )
    return moves + sum(
        any(place.node == node for child in transition.children for place in child.replicas)
        for transition in state.transitions.values()
    )


def owned_by_node(state: MetadataState) -> Counter[NodeId]:
    """ACTIVE partitions that each node owns; nodes without any may be missing.

    SEALED ones take no rows: a node that owns many of them is not busy. Children of open layout changes
    count, since they take rows soon.
    """
    counts = Counter(
        assignment.owner.node for topic in state.topics.values() for assignment in topic.assignments.values()
    )
    counts.subtract(
        topic.assignments[number].owner.node
        for topic in state.topics.values()
        if topic.seals is not UNSET
        for number in topic.seals
    )
    counts.update(child.replicas[0].node for child in planned_children(state))
    return counts


def replicas_by_node(state: MetadataState) -> Counter[NodeId]:
    """Replicas on each node, owned ones included; nodes without any may be missing.

    Those of SEALED partitions count, for they take space.
    """
    counts = Counter(
        replica.node
        for topic in state.topics.values()
        for assignment in topic.assignments.values()
        for replica in assignment.replicas
    )
    counts.update(place.node for child in planned_children(state) for place in child.replicas)
    return counts


def replication_max(state: MetadataState) -> int:
    """The greatest replication of a topic; 1 without topics."""
    return max((topic.replication for topic in state.topics.values()), default=1)

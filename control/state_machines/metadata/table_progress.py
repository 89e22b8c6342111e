"""Report how much of a topic's table is open at the nodes, for administrators and for waiting requests.

A node executes its orders in the order of their entries, and its heartbeat carries the index up to which
it has. An owner epoch *is* the index of the entry that drew it. So a partition is open once its owner has
executed the orders up to that epoch, unless the node reports this partition as failed. That takes one
number for each node, independent of the number of partitions, and no entry in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Topic

_NOBODY: AbstractSet[PartitionId] = frozenset()


class TableState(StrEnum):
    # There is no table yet: the cluster is below its minimum size.
    UNASSIGNED = "UNASSIGNED"
    # Some partitions are not open at their owners; `pending` names them.
    IN_PROGRESS = "IN_PROGRESS"
    ASSIGNED = "ASSIGNED"


class PartitionState(StrEnum):
    ASSIGNED = "ASSIGNED"
    # Open at its owner under the epoch of the log, and the owner is live.
    ONLINE = "ONLINE"
    # A change of the partition is open; the partition may be online at the same time.
    MOVING = "MOVING"


class PendingOrder(NamedTuple):
    """An owner that has yet to open a partition."""

    partition: PartitionId
    node: NodeId
    epoch: Epoch


class PartitionView(NamedTuple):
    """One partition of a table."""

    partition: PartitionId
    owner: NodeId
    epoch: Epoch
    state: PartitionState


class TableView(NamedTuple):
    """A topic's table; `topic` is 0 before the table exists."""

    topic: TopicId
    state: TableState
    partitions: tuple[PartitionView, ...]
    pending: tuple[PendingOrder, ...]


class Progress(NamedTuple):
    """Values of the last heartbeats.

    `carried` is the index up to which a node has executed its orders. `failed` are partitions that their
    owners could not open. `moving` are partitions with an open change.
    """

    carried: Mapping[NodeId, Index]
    failed: AbstractSet[PartitionId] = _NOBODY
    moving: AbstractSet[PartitionId] = _NOBODY


def view(state: MetadataState, topic: Topic, progress: Progress) -> TableView:
    """The table of one topic, as applied by the node that answers."""
    partitions, pending = [], []
    for part in topic.layout.active():
        assignment = topic.assignments[part.partition]
        is_online = _is_online(state, part.partition, assignment, progress)
        if not is_online:
            pending.append(PendingOrder(part.partition, assignment.owner.node, assignment.epoch))
        shown = PartitionState.ONLINE if is_online else PartitionState.ASSIGNED
        if part.partition in progress.moving:
            shown = PartitionState.MOVING
        partitions.append(PartitionView(part.partition, assignment.owner.node, assignment.epoch, shown))
    overall = TableState.IN_PROGRESS if pending else TableState.ASSIGNED
    return TableView(topic.topic, overall, tuple(partitions), tuple(pending))


def cluster_state(state: MetadataState, progress: Progress) -> TableState:
    """The state of all tables together."""
    if not state.ring.is_formed:
        return TableState.UNASSIGNED
    for topic in state.topics.values():
        for part in topic.layout.active():
            if not _is_online(state, part.partition, topic.assignments[part.partition], progress):
                return TableState.IN_PROGRESS
    return TableState.ASSIGNED


def _is_online(
    state: MetadataState, partition: PartitionId, assignment: Assignment, progress: Progress
) -> bool:
    owner = state.nodes.get(assignment.owner.node)
    return (
        owner is not None
        and owner.life is Life.LIVE
        and progress.carried.get(owner.node, 0) >= assignment.epoch
        and partition not in progress.failed
    )

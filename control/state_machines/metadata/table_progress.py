"""How far a topic's table has become real: what administrators see, and what still has to happen.

A node carries out its orders in the order of the entries that gave them, and its heartbeat says up to which
index it has. An owner epoch *is* the index of the entry that drew it. So a partition is open as soon as its
owner has carried out the orders up to its epoch, unless the node reports that very partition as failed: one
number a node, however many partitions there are, and nothing of it in the log.
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
    UNASSIGNED = "UNASSIGNED"
    """There is no table yet: the cluster is below its minimum size."""
    IN_PROGRESS = "IN_PROGRESS"
    """Some partitions are not open at their owners; `pending` names them."""
    ASSIGNED = "ASSIGNED"


class PartitionState(StrEnum):
    ASSIGNED = "ASSIGNED"
    ONLINE = "ONLINE"
    """Open at its owner under the epoch of the log, and the owner lives."""
    MOVING = "MOVING"
    """A change of it is under way; it may be online at the same time."""


class PendingOrder(NamedTuple):
    """An owner that has still to open a partition."""

    partition: PartitionId
    node: NodeId
    epoch: Epoch


class PartitionView(NamedTuple):
    partition: PartitionId
    owner: NodeId
    epoch: Epoch
    state: PartitionState


class TableView(NamedTuple):
    """A topic's table; `topic` is 0 where there is none yet."""

    topic: TopicId
    state: TableState
    partitions: tuple[PartitionView, ...]
    pending: tuple[PendingOrder, ...]


class Progress(NamedTuple):
    """What the last heartbeats said.

    `carried` is the index up to which a node has carried out its orders. `failed` are partitions that their
    owners could not open, `moving` those that a change is about.
    """

    carried: Mapping[NodeId, Index]
    failed: AbstractSet[PartitionId] = _NOBODY
    moving: AbstractSet[PartitionId] = _NOBODY


def view(state: MetadataState, topic: Topic, progress: Progress) -> TableView:
    """The table of one topic, as the node that asks has applied it."""
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
    """Of all tables together."""
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

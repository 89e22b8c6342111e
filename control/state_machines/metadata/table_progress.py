"""Report how much of a topic's table is open at the nodes, for administrators and for waiting requests.

A node executes its orders in the order of their entries, and its heartbeat carries the index up to which
it has. An owner epoch *is* the index of the entry that drew it. So a partition is open once its owner has
executed the orders up to that epoch, unless the node reports this partition as failed. A child of an open
layout change is open once its owner has executed the orders of the COMMIT. That takes one
number for each node, independent of the number of partitions, and no entry in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignments import ChangeId
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
    # A layout change makes the partition, and is not committed yet: no table names it.
    PLANNED = "PLANNED"


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
    """A topic's table; `topic` is 0 before the table exists.

    `partitions` and `pending` are about ACTIVE partitions: a SEALED one takes no rows, so nothing waits for
    it. `sealed` are those of the table, `planned` the children of open layout changes.
    """

    topic: TopicId
    state: TableState
    partitions: tuple[PartitionView, ...]
    pending: tuple[PendingOrder, ...]
    sealed: tuple[PartitionView, ...] = ()
    planned: tuple[PartitionView, ...] = ()


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
    partitions = [_shown(state, topic, part.partition, progress) for part in topic.layout.active()]
    pending = tuple(
        PendingOrder(part.partition, part.owner, part.epoch)
        for part in partitions
        if not _is_online(state, part.partition, topic.assignments[part.partition], progress)
    )
    overall = TableState.IN_PROGRESS if pending else TableState.ASSIGNED
    sealed = (_shown(state, topic, number, progress) for number in sorted(topic.seals or {}))
    planned = (
        PartitionView(
            child.partition, child.replicas[0].node, Epoch(transition.change), PartitionState.PLANNED
        )
        for transition in state.transitions.values()
        if transition.topic == topic.topic and transition.may_abort
        for child in transition.children
    )
    return TableView(topic.topic, overall, tuple(partitions), pending, tuple(sealed), tuple(planned))


def _shown(state: MetadataState, topic: Topic, partition: PartitionId, progress: Progress) -> PartitionView:
    assignment = topic.assignments[partition]
    is_online = _is_online(state, partition, assignment, progress)
    shown = PartitionState.ONLINE if is_online else PartitionState.ASSIGNED
    if partition in progress.moving:
        shown = PartitionState.MOVING
    return PartitionView(partition, assignment.owner.node, assignment.epoch, shown)


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
    # The epoch of a child is the number of its layout change, whose COMMIT came later.
    transition = state.transitions.get(ChangeId(assignment.epoch))
    opened_by = assignment.epoch if transition is None else transition.adoption_generation
    return (
        owner is not None
        and owner.life is Life.LIVE
        and progress.carried.get(owner.node, 0) >= opened_by
        and partition not in progress.failed
    )

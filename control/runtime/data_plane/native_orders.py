"""Turn orders that follow from the metadata into those of the native node, and name them in texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane import table_bodies
from ringfence.control.state_machines.node_orders import (
    ClosePartition,
    DropPartition,
    FencePartition,
    FollowPartition,
    FollowSealed,
    InstallCohorts,
    InstallTable,
    InstallTopic,
    KeepRows,
    LocateNode,
    NodeOrder,
    OpenPartition,
    OpenSealed,
    RemoveTopic,
    SetLevel,
    TruncatePartition,
)
from ringfence.control.state_machines.reassignment.cleanup import (
    Adopt,
    CleanupStep,
    Discard,
    Release,
    StopSync,
)
from ringfence.native import messages
from ringfence.native._node import Order

# Of `Order.install_table`.
_Sealed = list[tuple[int, int, int, int, bytes]]
_Ancestors = list[tuple[int, list[int]]]
_PartitionOrder = (
    OpenPartition | FollowPartition | FencePartition | ClosePartition | TruncatePartition | DropPartition
)


def to_native(order: NodeOrder) -> Order:
    """The native node's order. InstallTable and InstallCohorts need the whole metadata: `table_order` and
    `cohort_orders` make their orders.
    """
    match order:
        case SetLevel(level):
            return Order.set_level(level)
        case InstallTopic(topic):
            schemas = [schema.message for schema in topic.schemas]
            return Order.install_topic(topic.topic, schemas, order.key_columns, *_engine_retention(topic))
        case LocateNode(node, addresses):
            return Order.set_peer(node, addresses)
        case RemoveTopic(topic):
            return Order.remove_topic(topic)
        case KeepRows(topic, partitions):
            return Order.keep_rows(topic, partitions)
        case StopSync() | Adopt() | Discard() | Release():
            return _cleanup_order(order)
        case OpenSealed() | FollowSealed():
            return _sealed_order(order)
        case InstallTable() | InstallCohorts():
            raise AssertionError(f"{type(order).__name__} is made of the whole metadata")
        case _:
            return _partition_order(order)


def _partition_order(order: _PartitionOrder) -> Order:
    match order:
        case OpenPartition(topic, partition, slots, epoch, replicas):
            members = [(replica.node, replica.store) for replica in replicas]
            quorum = (members, order.quorum) if members else ()
            return Order.open(topic, partition, slots.lo, slots.hi, epoch, *quorum)
        case FollowPartition(topic, partition, slots, epoch, owner, forced):
            return Order.follow(topic, partition, slots.lo, slots.hi, epoch, owner, forced)
        case FencePartition(topic, partition, epoch):
            return Order.fence(topic, partition, epoch)
        case ClosePartition(topic, partition):
            return Order.close(topic, partition)
        case TruncatePartition(topic, partition, before, epoch):
            return Order.truncate(topic, partition, before, epoch)
        case DropPartition(topic, partition):
            return Order.drop(topic, partition)


def _sealed_order(order: OpenSealed | FollowSealed) -> Order:
    at = (order.topic, order.partition, order.slots.lo, order.slots.hi, order.epoch)
    last = order.end
    end = (
        *(last.epoch, last.records, last.offset, last.chain),
        *(order.number, order.version, order.sealed_ms, order.lowered),
    )
    match order:
        case OpenSealed(replicas=replicas):
            return Order.open_sealed(*at, end, [(replica.node, replica.store) for replica in replicas])
        case FollowSealed(owner=owner):
            return Order.follow_sealed(*at, owner, end)


def _cleanup_order(order: CleanupStep) -> Order:
    match order:
        case StopSync():
            return Order.sync_stop(order.change)
        case Adopt():
            return Order.adopt(order.change, order.attempt)
        case Discard():
            return Order.discard(order.change, order.attempt)
        case Release():
            return Order.drop(order.topic, order.partition)


def table_order(
    topic: Topic, state: MetadataState, index: int, here: Replica
) -> tuple[messages.Table, Callable[[bytes], Order]]:
    """The topic's table in `state`, and the order that installs it, made of the encoded table."""
    active: list[tuple[int, int, int, int, int]] = []
    for part in topic.layout.active():
        assignment: Any = topic.assignments[part.partition]
        active.append((part.partition, part.slots.lo, part.slots.hi, assignment.owner.node, assignment.epoch))
    table = table_bodies.table(state, topic, index)
    lineage = _lineage(topic, state)
    own = messages.encode(table_bodies.redirect(state, here.node))
    owners = [(node.node, messages.encode(table_bodies.redirect(state, node.node))) for node in table.nodes]

    def install(body: bytes) -> Order:
        version = topic.layout.version
        return Order.install_table(topic.topic, index, version, body, active, own, owners, *lineage)

    return table, install


def _lineage(topic: Topic, state: MetadataState) -> tuple[()] | tuple[_Sealed, _Ancestors]:
    """The SEALED partitions, and who was made of which; nothing for a topic whose layout never changed, whose
    order is the one that it always had.
    """
    sealed: _Sealed = []
    ancestors: _Ancestors = []
    for part in topic.layout.partitions:
        pruned = (parent.partition for parent in topic.pruned_parents(part.partition))
        parents: list[int] = [*part.parents, *pruned]
        if parents:
            ancestors.append((part.partition, parents))
        if not part.is_active:
            assignment = topic.assignments[part.partition]
            redirect = table_bodies.redirect(state, assignment.owner.node, part.children)
            at = (part.partition, assignment.owner.node, assignment.epoch, part.sealed_version)
            sealed.append((*at, messages.encode(redirect)))
    return (sealed, ancestors) if sealed or ancestors else ()


def describe(order: NodeOrder) -> str:
    """The order in texts for operators, which is also the key of its health reason."""
    match order:
        case SetLevel(level):
            return f"raising the level to {level}"
        case InstallTopic(topic):
            return f"installing topic {topic.name}"
        case InstallTable(topic):
            return f"installing the table of topic {topic.name}"
        case LocateNode(node):
            return f"locating node {node}"
        case RemoveTopic(topic):
            return f"removing topic {topic}"
        case KeepRows(topic):
            return f"keeping rows of sealed partitions of topic {topic}"
        case InstallCohorts():
            return "installing rules of cohorts"
        case StopSync() | Adopt() | Discard() | Release():
            return f"{_VERBS[type(order)]} of change {order.change} of partition {order.partition}"
        case _:
            return f"{_VERBS[type(order)]} partition {order.partition} of topic {order.topic}"


_VERBS: Final[dict[type, str]] = {
    OpenPartition: "opening",
    OpenSealed: "opening sealed",
    FollowPartition: "following",
    FollowSealed: "following sealed",
    FencePartition: "fencing",
    ClosePartition: "closing",
    TruncatePartition: "truncating",
    DropPartition: "dropping",
    StopSync: "ending the copy",
    Adopt: "adopting the copy",
    Discard: "discarding the copy",
    Release: "releasing the replica",
}


def _engine_retention(topic: Topic) -> tuple[int, int]:
    """Retention limits in bytes and ms that the engine applies by itself; 0 = no limit."""
    if topic.properties.get(messages.RETENTION) == messages.COMPACTED:
        return 0, 0
    return topic.retention_bytes or 0, topic.retention_ms or 0

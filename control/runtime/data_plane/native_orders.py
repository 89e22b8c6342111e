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
    InstallTable,
    InstallTopic,
    LocateNode,
    NodeOrder,
    OpenPartition,
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

_PartitionOrder = (
    OpenPartition | FollowPartition | FencePartition | ClosePartition | TruncatePartition | DropPartition
)


def to_native(order: NodeOrder) -> Order:
    """The native node's order. An InstallTable needs the whole metadata: `table_order` makes its order."""
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
        case StopSync() | Adopt() | Discard() | Release():
            return _cleanup_order(order)
        case InstallTable():
            raise AssertionError("a table's order is made by `table_order`")
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
    own = messages.encode(table_bodies.redirect(state, here.node))
    owners = [(node.node, messages.encode(table_bodies.redirect(state, node.node))) for node in table.nodes]

    def install(body: bytes) -> Order:
        version = topic.layout.version
        return Order.install_table(topic.topic, index, version, body, active, own, owners)

    return table, install


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
        case StopSync() | Adopt() | Discard() | Release():
            return f"{_VERBS[type(order)]} of change {order.change} of partition {order.partition}"
        case _:
            return f"{_VERBS[type(order)]} partition {order.partition} of topic {order.topic}"


_VERBS: Final[dict[type, str]] = {
    OpenPartition: "opening",
    FollowPartition: "following",
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

"""Orders that follow from the metadata, as the native node gets them; and what waits for an opening."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.native_orders import describe, to_native
from ringfence.control.runtime.data_plane.partition_opens import PartitionOpens
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.node_orders import NodeOrder
from ringfence.control.state_machines.reassignment import cleanup
from ringfence.native._node import Order

TOPIC, PART, EPOCH, SLOTS = TopicId(7), PartitionId(9), Epoch(5), SlotRange(0, 99)
OTHER = Replica(node=NodeId(3), store=b"s" * 16)
STEP: dict[str, Any] = {"topic": TOPIC, "partition": PART, "change": ChangeId(11), "attempt": 2}
CASES: tuple[tuple[NodeOrder, Order, str], ...] = (
    (node_orders.SetLevel(1), Order.set_level(1), "raising the level to 1"),
    (
        node_orders.OpenPartition(TOPIC, PART, SLOTS, EPOCH),
        Order.open(7, 9, 0, 99, 5),
        "opening partition 9 of topic 7",
    ),
    (
        node_orders.OpenPartition(TOPIC, PART, SLOTS, EPOCH, (OTHER, OTHER)),
        Order.open(7, 9, 0, 99, 5, [(3, b"s" * 16)] * 2, 2),
        "opening partition 9 of topic 7",
    ),
    (
        node_orders.FollowPartition(TOPIC, PART, SLOTS, EPOCH, NodeId(3), Epoch(4)),
        Order.follow(7, 9, 0, 99, 5, 3, 4),
        "following partition 9 of topic 7",
    ),
    (node_orders.LocateNode(NodeId(3), ("tcp://a:1",)), Order.set_peer(3, ["tcp://a:1"]), "locating node 3"),
    (node_orders.FencePartition(TOPIC, PART, EPOCH), Order.fence(7, 9, 5), "fencing partition 9 of topic 7"),
    (node_orders.ClosePartition(TOPIC, PART), Order.close(7, 9), "closing partition 9 of topic 7"),
    (
        node_orders.TruncatePartition(TOPIC, PART, 50, EPOCH),
        Order.truncate(7, 9, 50, 5),
        "truncating partition 9 of topic 7",
    ),
    (node_orders.RemoveTopic(TOPIC), Order.remove_topic(7), "removing topic 7"),
    (node_orders.DropPartition(TOPIC, PART), Order.drop(7, 9), "dropping partition 9 of topic 7"),
    (cleanup.StopSync(**STEP), Order.sync_stop(11), "ending the copy of change 11 of partition 9"),
    (cleanup.Adopt(**STEP), Order.adopt(11, 2), "adopting the copy of change 11 of partition 9"),
    (cleanup.Discard(**STEP), Order.discard(11, 2), "discarding the copy of change 11 of partition 9"),
    (cleanup.Release(**STEP), Order.drop(7, 9), "releasing the replica of change 11 of partition 9"),
)


@pytest.mark.parametrize(("order", "native", "text"), CASES, ids=lambda case: type(case).__name__)
def test_an_order_and_its_name(order: NodeOrder, native: Order, text: str) -> None:
    assert to_native(order) == native
    assert describe(order) == text


def test_who_waits_for_an_opening_is_woken_by_it_and_not_before() -> None:
    async def work() -> None:
        opens = PartitionOpens()
        waiting = asyncio.ensure_future(opens.until_opened(60.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert opens.epoch((TOPIC, PART)) == 0
        opens.opened((TOPIC, PART), EPOCH)
        await waiting
        assert opens.epoch((TOPIC, PART)) == EPOCH
        await opens.until_opened(0.01)  # nothing opens: the time is over
        opens.dropped((TOPIC, PART))
        assert opens.epoch((TOPIC, PART)) == 0

    asyncio.run(work())

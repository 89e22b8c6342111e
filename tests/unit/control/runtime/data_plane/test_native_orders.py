"""Orders that follow from the metadata, as the native node gets them; and what waits for an opening."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.native_orders import describe, table_order, to_native
from ringfence.control.runtime.data_plane.partition_opens import PartitionOpens
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.node_orders import NodeOrder
from ringfence.control.state_machines.reassignment import cleanup
from ringfence.native import messages
from ringfence.native._node import Order
from tests.fakes.layout_log import END as END_OF_LOG
from tests.fakes.layout_log import LayoutLog

TOPIC, PART, EPOCH, SLOTS = TopicId(7), PartitionId(9), Epoch(5), SlotRange(0, 99)
OTHER = Replica(node=NodeId(3), store=b"s" * 16)
STEP: dict[str, Any] = {"topic": TOPIC, "partition": PART, "change": ChangeId(11), "attempt": 2}
END = LogEnd(Epoch(4), 57, 1042, 0xFEED)
NATIVE_END = (4, 57, 1042, 0xFEED, 812, 2, 1_767_225_600_000, 0)
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
    (
        node_orders.OpenSealed(TOPIC, PART, SLOTS, EPOCH, END, ChangeId(812), 2, 1_767_225_600_000, (OTHER,)),
        Order.open_sealed(7, 9, 0, 99, 5, NATIVE_END, [(3, b"s" * 16)]),
        "opening sealed partition 9 of topic 7",
    ),
    (
        node_orders.FollowSealed(
            TOPIC, PART, SLOTS, EPOCH, NodeId(3), END, ChangeId(812), 2, 1_767_225_600_000, Index(900)
        ),
        Order.follow_sealed(7, 9, 0, 99, 5, 3, (*NATIVE_END[:-1], 900)),
        "following sealed partition 9 of topic 7",
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
    (
        node_orders.KeepRows(TOPIC, ((PART, 5_000),)),
        Order.keep_rows(7, [(9, 5_000)]),
        "keeping rows of sealed partitions of topic 7",
    ),
    (node_orders.DropPartition(TOPIC, PART), Order.drop(7, 9), "dropping partition 9 of topic 7"),
    (cleanup.StopSync(**STEP), Order.sync_stop(11), "ending the copy of change 11 of partition 9"),
    (cleanup.Adopt(**STEP), Order.adopt(11, 2), "adopting the copy of change 11 of partition 9"),
    (cleanup.Discard(**STEP), Order.discard(11, 2), "discarding the copy of change 11 of partition 9"),
    (cleanup.Release(**STEP), Order.drop(7, 9), "releasing the replica of change 11 of partition 9"),
)


@pytest.mark.parametrize(("order", "native", "text"), CASES, ids=lambda case: type(case).__name__)
def test_an_order_and_its_name(order: NodeOrder, native: Order, text: str) -> None:
    assert to_native(order) == native
    assert getattr(Order, native.name)(*native.arguments) == native
    assert describe(order) == text


def test_a_table_names_sealed_partitions_and_who_was_made_of_which() -> None:
    log = LayoutLog(3, replication=3)
    here, source = log.place(1), log.active[1]
    _, install = table_order(log.now, log.state, log.at, here)
    names = len(install(b"table").arguments)
    log.done(log.split(source))
    table, install = table_order(log.now, log.state, log.at, here)
    arguments = install(b"table").arguments
    assert (names, len(arguments)) == (7, 9)  # without lineage it is the order that it always was
    left, right = log.now.layout.by_id()[source.partition].children
    owner, epoch = log.now.assignments[source.partition].owner.node, log.epoch(source.partition)
    (number, *at, body), *others = arguments[7]
    assert (number, at, others) == (source.partition, [owner, epoch, 2], [])
    redirected = messages.decode(messages.Redirected, body)
    assert (redirected.owner, redirected.children, redirected.stored) == (owner, [left, right], UNSET)
    assert arguments[8] == [(left, [source.partition]), (right, [source.partition])]
    assert {entry[0] for entry in arguments[4]} == {part.partition for part in log.active}
    shown = {entry.partition: entry for entry in table.partitions}
    sealed, child = shown[source.partition], shown[left]
    seal = log.now.seal(source.partition)
    assert seal is not None
    assert (sealed.state, sealed.end_offset, sealed.sealed_ms) == ("SEALED", seal.end.offset, seal.sealed_ms)
    assert (child.state, child.parents, child.end_offset, child.gone) == (
        "ACTIVE",
        [source.partition],
        UNSET,
        UNSET,
    )


def test_a_pruned_parent_is_an_ancestor_still() -> None:
    log = LayoutLog(3)
    source = log.active[0]
    log.done(log.split(source))
    left, _ = log.now.layout.by_id()[source.partition].children
    log.time_ms += 1_200_000
    log.must(log.prune(source.partition))
    table, install = table_order(log.now, log.state, log.at, log.place(1))
    arguments = install(b"table").arguments
    assert arguments[7] == []
    assert (left, [source.partition]) in arguments[8]
    assert next(entry.gone for entry in table.partitions if entry.partition == left) == [
        (source.partition, END_OF_LOG.offset)
    ]


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

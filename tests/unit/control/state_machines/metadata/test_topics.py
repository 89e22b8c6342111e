"""Topics from creation to purge, one rule a test."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import (
    AddSchema,
    Command,
    ConfirmDropped,
    DeleteTopic,
    PurgeTopic,
    RestartNode,
    TruncateTopic,
)
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.nodes import Life
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.results import Done, Refused, SchemaAdded
from ringfence.control.model.schemas import Column, difference, extension_fault
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Assignment, Replica
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.node_orders import (
    ClosePartition,
    DropPartition,
    FencePartition,
    FollowPartition,
    InstallTable,
    InstallTopic,
    OpenPartition,
    RemoveTopic,
    TruncatePartition,
)
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import ID, INIT, NODE, STORE, TEXT, create, entry

HERE = Replica(node=NODE, store=STORE)
T = TopicId(2)


def with_topic(partitions: int = 2) -> MetadataState:
    state, _ = apply(EMPTY, entry(1, INIT))
    state, _ = apply(state, entry(2, create(partitions=partitions)))
    return state


def refused(state: MetadataState, command: Command) -> Code:
    after, result = apply(state, entry(50, command))
    assert isinstance(result, Refused), result
    assert after is state
    return result.code


def test_a_schema_only_grows_by_nullable_columns_at_its_end() -> None:
    assert extension_fault((ID,), (ID, TEXT)) is None
    assert extension_fault((ID,), (ID,)) == "no column is added"
    assert difference((ID, TEXT), (ID, TEXT)) is None
    assert difference((ID,), (ID, TEXT)) == "column 1, text: string, is not there"
    assert difference((ID, TEXT), (ID,)) == "column 'text' is missing"
    assert difference((ID,), (TEXT,)) == "column 0 was id: int64 not null and would be text: string"
    assert extension_fault((ID, TEXT), (ID,)) == "column 'text' is missing"
    assert extension_fault((ID,), (TEXT, ID)) == "column 0 was id: int64 not null and would be text: string"
    strict = Column("n", "int32", nullable=False)
    assert extension_fault((ID,), (ID, strict)) == (
        "the added column 'n' is not nullable, and stored rows have no value for it"
    )
    assert extension_fault((ID,), (ID, TEXT, TEXT)) == "two columns are named 'text'"


def test_schemas_are_added_by_compare_and_set() -> None:
    state = with_topic()
    first = AddSchema(topic=T, schema_id=1, schema=b"2", columns=(ID, TEXT))
    state, result = apply(state, entry(3, first))
    assert result == SchemaAdded(schema_id=1)
    assert refused(state, first) == Code.INVALID_ARGUMENT
    assert refused(state, AddSchema(topic=T, schema_id=2, schema=b"3", columns=(ID,))) == Code.WRONG_SCHEMA


def test_a_log_start_only_moves_up() -> None:
    state = with_topic()
    part = PartitionId(2 << 16)
    state, _ = apply(state, entry(3, TruncateTopic(topic=T, starts={part: 10})))
    lower, result = apply(state, entry(4, TruncateTopic(topic=T, starts={part: 9})))
    assert result == Done()
    assert lower.topics[T].starts == {part: 10}
    assert refused(state, TruncateTopic(topic=T, starts={PartitionId(1): 1})) == Code.UNKNOWN_PARTITION


def test_a_deleted_topic_leaves_a_tombstone_until_its_holders_confirmed() -> None:
    state = with_topic()
    state, _ = apply(state, entry(3, DeleteTopic(topic=T)))
    assert state.topics == {}
    assert state.tombstones[T].holders == (STORE,)
    assert refused(state, PurgeTopic(topic=T)) == Code.INVALID_ARGUMENT
    assert refused(state, ConfirmDropped(topic=T, store=b"x" * 16)) == Code.INVALID_ARGUMENT
    state, _ = apply(state, entry(4, ConfirmDropped(topic=T, store=STORE)))
    state, _ = apply(state, entry(5, PurgeTopic(topic=T)))
    assert state.tombstones == {}


def test_a_name_may_be_taken_again_and_gives_other_ids() -> None:
    state = with_topic()
    old = {part.partition for part in state.topics[T].layout.partitions}
    state, _ = apply(state, entry(3, DeleteTopic(topic=T)))
    state, _ = apply(state, entry(4, create()))
    new = {part.partition for part in state.topics[TopicId(4)].layout.partitions}
    assert not old & new


def test_a_restart_gives_every_partition_a_new_epoch_by_one_entry() -> None:
    state = with_topic(partitions=3)
    restart = RestartNode(node=NODE, store=STORE, addresses=("tcp://h:1",), program="p")
    state, _ = apply(state, entry(9, restart))
    assert [assignment.epoch for assignment in state.topics[T].assignments.values()] == [9, 9, 9]
    wiped = RestartNode(node=NODE, store=b"w" * 16, addresses=(), program="p")
    assert refused(state, wiped) == Code.INVALID_ARGUMENT


def test_a_start_that_comes_late_takes_nothing_from_the_one_that_runs() -> None:
    state = with_topic()
    started = state.nodes[NODE].started
    start = RestartNode(node=NODE, store=STORE, addresses=("tcp://h:1",), program="p", after=started)
    running, _ = apply(state, entry(9, start))
    assert refused(running, start) == Code.TOO_OLD, "a copy, or one of a process that is gone"
    again, _ = apply(running, entry(11, replace(start, after=Index(9))))
    assert again.nodes[NODE].started == 11
    older, _ = apply(again, entry(12, replace(start, after=None)))
    assert older.nodes[NODE].started == 12, "an older program's knows of none"


def test_a_new_topic_is_installed_opened_and_only_then_shown() -> None:
    before, _ = apply(EMPTY, entry(1, INIT))
    after, _ = apply(before, entry(2, create(partitions=2)))
    topic = after.topics[T]
    first, second = PartitionId(2 << 16), PartitionId(2 << 16 | 1)
    assert node_orders.between(before, after, HERE) == (
        (InstallTopic(topic=topic),),
        (
            OpenPartition(topic=T, partition=first, slots=SlotRange(0, 32_767), epoch=Epoch(2)),
            OpenPartition(topic=T, partition=second, slots=SlotRange(32_768, 65_535), epoch=Epoch(2)),
        ),
        (InstallTable(topic=topic),),
    )


def test_another_node_opens_nothing_of_ours() -> None:
    before, _ = apply(EMPTY, entry(1, INIT))
    after, _ = apply(before, entry(2, create()))
    elsewhere = Replica(node=NodeId(2), store=b"t" * 16)
    kinds = {type(order) for phase in node_orders.between(before, after, elsewhere) for order in phase}
    assert kinds == {InstallTopic, InstallTable}


def elsewhere(state: MetadataState, *, keeps_replica: bool = False) -> MetadataState:
    """The state after an entry 60 that makes node 2 the owner of the first partition."""
    topic, part = state.topics[T], PartitionId(2 << 16)
    there = Replica(node=NodeId(2), store=b"t" * 16)
    replicas = (there, HERE) if keeps_replica else (there,)
    moved = Assignment(owner=there, epoch=Epoch(60), replicas=replicas)
    record = replace(state.nodes[NODE], node=there.node, store=there.store)
    return replace(
        state,
        nodes={**state.nodes, there.node: record},
        topics={T: replace(topic, assignments={**topic.assignments, part: moved}, changed=Index(60))},
    )


@pytest.mark.parametrize("keeps_replica", [False, True])
def test_who_owns_no_more_fences_at_the_new_epoch_and_closes_and_keeps_the_rows(keeps_replica: bool) -> None:
    before = with_topic()
    after = elsewhere(before, keeps_replica=keeps_replica)
    part = PartitionId(2 << 16)
    slots = SlotRange(0, 32_767)
    follow = FollowPartition(topic=T, partition=part, slots=slots, epoch=Epoch(60), owner=NodeId(2))
    close = ClosePartition(topic=T, partition=part)
    assert node_orders.between(before, after, HERE) == (
        (FencePartition(topic=T, partition=part, epoch=Epoch(60)),),
        (follow if keeps_replica else close,),
        (InstallTable(topic=after.topics[T]),),
    )
    there = Replica(node=NodeId(2), store=b"t" * 16)
    others = (HERE,) if keeps_replica else ()
    assert node_orders.between(before, after, there) == (
        (OpenPartition(topic=T, partition=part, slots=slots, epoch=Epoch(60), replicas=others),),
        (InstallTable(topic=after.topics[T]),),
    )
    bystander = Replica(node=NodeId(3), store=b"u" * 16)
    assert node_orders.between(before, after, bystander) == ((InstallTable(topic=after.topics[T]),),)


def test_a_log_start_is_moved_on_every_replica_and_again_where_the_owner_is_new() -> None:
    part, there = PartitionId(2 << 16), Replica(node=NodeId(2), store=b"t" * 16)
    start = TruncatePartition(topic=T, partition=part, before_offset=10)

    def starts(before: MetadataState, after: MetadataState, here: Replica) -> list[TruncatePartition]:
        told = (order for phase in node_orders.between(before, after, here) for order in phase)
        return [order for order in told if isinstance(order, TruncatePartition)]

    shared = elsewhere(with_topic(), keeps_replica=True)
    truncated, _ = apply(shared, entry(61, TruncateTopic(topic=T, starts={part: 10})))
    bystander = Replica(node=NodeId(3), store=b"u" * 16)
    assert [starts(shared, truncated, here) for here in (there, HERE, bystander)] == [[start], [start], []]
    before, _ = apply(with_topic(), entry(50, TruncateTopic(topic=T, starts={part: 10})))
    assert starts(before, elsewhere(before), there) == [start]


def test_with_another_store_a_node_opens_nothing() -> None:
    wiped = Replica(node=NODE, store=b"w" * 16)
    kinds = {type(order) for phase in node_orders.between(EMPTY, with_topic(), wiped) for order in phase}
    assert kinds == {InstallTopic, InstallTable}


def test_tables_follow_the_addresses_of_owners_and_nothing_else_of_a_node() -> None:
    before = with_topic()
    node = before.nodes[NODE]
    heavier = replace(before, nodes={NODE: replace(node, weight=200, life=Life.FAILED, changed=Index(50))})
    assert node_orders.between(before, heavier, HERE) == ()
    moved = replace(before, nodes={NODE: replace(node, addresses=("tcp://h:2",))})
    assert node_orders.between(before, moved, HERE) == ((InstallTable(topic=before.topics[T]),),)
    stranger = replace(before, nodes={**before.nodes, NodeId(9): replace(node, node=NodeId(9))})
    assert node_orders.between(before, stranger, HERE) == ()


def test_a_start_repeats_truncations_and_drops_that_may_have_been_lost() -> None:
    state = with_topic()
    part = PartitionId(2 << 16)
    state, _ = apply(state, entry(3, TruncateTopic(topic=T, starts={part: 10})))
    state, _ = apply(state, entry(4, create("public/default/b")))
    state, _ = apply(state, entry(5, DeleteTopic(topic=TopicId(4))))
    told = [order for phase in node_orders.between(EMPTY, state, HERE) for order in phase]
    assert TruncatePartition(topic=T, partition=part, before_offset=10) in told
    assert [order.partition for order in told if isinstance(order, DropPartition)] == [
        4 << 16 | n for n in range(4)
    ]


def test_only_a_tombstone_drops_data() -> None:
    """I16: metadata that lacks a topic gives no order against its rows."""
    state = with_topic()
    told = [order for phase in node_orders.between(state, EMPTY, HERE) for order in phase]
    assert told == []
    deleted, _ = apply(state, entry(3, DeleteTopic(topic=T)))
    assert node_orders.between(state, deleted, HERE)[0] == (RemoveTopic(topic=T),)
    elsewhere = Replica(node=NodeId(2), store=b"t" * 16)
    assert node_orders.between(state, deleted, elsewhere) == ()

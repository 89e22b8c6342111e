"""What the PREPARE of a layout change is refused for, first match, with the values."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import RaiseLevel, SetConfig
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import FinalizeLayout, PrepareLayout
from ringfence.control.model.node_commands import SetNode
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.state_machines.metadata.config import limits_of
from ringfence.native.wire import Code
from tests.fakes.layout_log import LayoutLog

SPLIT, MERGE, REPARTITION = TransitionKind.SPLIT, TransitionKind.MERGE, TransitionKind.REPARTITION


def test_it_is_refused_while_layout_changes_are_switched_off_or_the_level_is_too_low() -> None:
    log = LayoutLog(3)
    ready = log.split(log.active[0])
    log.must(SetConfig(values={"layout_changes_enabled": 0}))
    assert log.refuses(ready, "`layout_changes_enabled`").code == Code.ALREADY_EXISTS
    log.must(SetConfig(values={"layout_changes_enabled": 1}))
    log.must(ready)
    log.must(SetConfig(values={"layout_changes_enabled": 0}))
    log.must(log.hold())  # what is open goes on
    for level in (0, 1):
        older = LayoutLog(3, level=level)
        refusal = older.refuses(older.split(older.active[0]), f"level is {level}", "need 2", "finalize")
        assert refusal.code == Code.ALREADY_EXISTS
        older.refuses(FinalizeLayout(change=ChangeId(3)), "cluster finalize")
        older.refuses(SetConfig(values={"layout_timeout_ms": 5_000}), "from level 2 on")
        assert "layout_timeout_ms" not in limits_of(older.state)
        older.must(RaiseLevel(level=2, nodes=tuple(older.nodes)))
        older.must(older.split(older.active[0]))


def test_unknown_sealed_and_pruned_sources_are_told_apart() -> None:
    log = LayoutLog(3)
    source = log.active[0]
    ready = log.split(source)
    log.done(ready)
    children = [part.partition for part in log.active[:2]]
    refusal = log.refuses(ready, f"partition {source.partition} was sealed by layout change")
    assert str(children[0]) in refusal.message and str(children[1]) in refusal.message
    assert refusal.code == Code.ALREADY_EXISTS
    log.time_ms += 1_200_000
    log.must(log.prune(source.partition))
    refusal = log.refuses(ready, "it was sealed, ended at offset 70, and was pruned")
    assert refusal.code == Code.UNKNOWN_PARTITION
    strange = replace(ready, sources=((PartitionId(7), Epoch(1)),))
    assert log.refuses(strange, "no partition 7").code == Code.UNKNOWN_PARTITION
    assert log.refuses(replace(ready, topic=TopicId(3)), "no topic").code == Code.UNKNOWN_TOPIC


def test_a_source_with_another_owner_epoch_or_in_another_change_is_refused() -> None:
    log = LayoutLog(3)
    ready = log.split(log.active[0])
    owner = log.now.assignments[log.active[0].partition].owner.node
    log.must(log.restart(owner))
    assert log.refuses(ready, "was decided on").code == Code.TOO_OLD
    log.must(log.split(log.active[0]))
    refusal = log.refuses(log.merge(log.active[0], log.active[1]), "is in change", "SEAL, PREPARED")
    assert refusal.code == Code.ALREADY_EXISTS
    log.must(log.split(log.active[1]))  # of another partition: it goes on beside it
    moving = log.active[2].partition
    other = next(node for node in log.nodes if node != log.now.assignments[moving].owner.node)
    log.must(
        PrepareChange(
            topic=log.topic, partition=moving, epoch=log.epoch(moving), owner=other, replicas=(other,)
        )
    )
    log.refuses(log.split(log.active[2]), "MOVE, PREPARED")


def test_of_two_repartitions_at_once_one_wins_and_none_is_prepared_over_an_open_change() -> None:
    log = LayoutLog(3)
    late = log.repartition(tile(7))
    log.must(log.repartition(tile(6)))
    log.refuses(late, "is in change")
    log.must(log.hold())
    log.must(log.commit())
    assert log.refuses(late, "has version 2", "decided on 1").code == Code.TOO_OLD
    log.refuses(log.repartition(tile(5)), "REPARTITION, COMMITTED", "about all partitions")
    log.must(log.split(log.active[0]))  # comes on top of the six
    split = log.number()
    repartition = min(log.state.transitions)
    log.must(log.opened(repartition))
    log.refuses(log.repartition(tile(5)), "is in change")
    whole = log.repartition(tile(12), version=2)  # leaves some alone
    left_alone = replace(
        whole,
        sources=tuple(pair for pair in whole.sources if pair[0] == log.active[3].partition),
        children=tuple(
            child
            for child in whole.children
            if log.active[3].slots.lo <= child.lo and child.hi <= log.active[3].slots.hi
        ),
    )
    log.refuses(left_alone, f"in layout change {split}", "SPLIT, PREPARED")
    log.must(log.abort(split))
    log.must(left_alone)


@pytest.mark.parametrize(
    ("kind", "sources", "ranges", "words"),
    [
        (SPLIT, (0,), ((0, 99), (100, 16_382)), "do not tile"),
        (SPLIT, (0,), ((0, 100), (100, 16_383)), "do not tile"),
        (SPLIT, (0,), ((100, 16_383), (0, 99)), "ascending"),
        (SPLIT, (0,), ((0, 16_383), (16_384, 16_383)), "do not tile"),
        (SPLIT, (0,), ((0, 16_383),), "a split into 1"),
        (SPLIT, (0, 1), ((0, 16_383), (16_384, 32_767)), "name one"),
        (SPLIT, (), ((0, 16_383),), "at least one"),
        (MERGE, (0, 2), ((0, 16_383),), "not adjacent"),
        (MERGE, (0,), ((0, 16_383),), "a merge of 1 into 1"),
        (MERGE, (0, 1), ((0, 9), (10, 32_767)), "a merge of 2 into 2"),
        (MERGE, (0, 0), ((0, 16_383),), "each once"),
        (MERGE, (0, 1), ((0, 32_768),), "do not tile"),
        (REPARTITION, (0,), ((0, 16_383),), "range of a source"),
        (REPARTITION, (0, 1), ((0, 16_383), (16_384, 20_000), (20_001, 32_767)), "leave that source out"),
        (REPARTITION, (0, 2), ((0, 32_767),), "do not tile"),
        (REPARTITION, (0, 1), (), "do not tile"),
    ],
)
def test_impossible_shapes_are_refused(
    kind: TransitionKind, sources: tuple[int, ...], ranges: tuple[tuple[int, int], ...], words: str
) -> None:
    log = LayoutLog(3)
    made = tuple(SlotRange(*pair) for pair in ranges)
    chosen = tuple(log.active[place] for place in sources)
    command = log.prepare(kind, chosen, made, version=1 if kind is REPARTITION else 0)
    assert log.refuses(command, words).code == Code.INVALID_ARGUMENT


def test_sources_that_are_apart_are_repartitioned_together() -> None:
    log = LayoutLog(3)
    one, other = log.active[0], log.active[2]
    cuts = tuple(
        SlotRange(lo, hi)
        for part in (one, other)
        for lo, hi in ((part.slots.lo, part.slots.lo + 9), (part.slots.lo + 10, part.slots.hi))
    )
    log.done(log.prepare(REPARTITION, (one, other), cuts, version=1))
    assert len(log.active) == 6


def test_a_partition_of_one_slot_is_not_split_and_may_be_merged() -> None:
    log = LayoutLog(3)
    log.done(log.split(log.active[0], at=1))
    assert log.active[0].slots == SlotRange(0, 0)
    refusal = log.refuses(
        log.prepare(SPLIT, (log.active[0],), (SlotRange(0, 0), SlotRange(1, 1))), "has one slot"
    )
    assert refusal.code == Code.INVALID_ARGUMENT
    log.done(log.merge(log.active[0], log.active[1]))
    assert log.active[0].slots == SlotRange(0, 16_383)


def test_children_need_places_that_may_take_partitions_and_a_live_owner_to_copy_from() -> None:
    log = LayoutLog(4, replication=3)
    ready = log.split(log.active[0])

    def with_nodes(*nodes: int) -> PrepareLayout:
        first = ready.children[0]._replace(nodes=tuple(NodeId(node) for node in nodes))
        return replace(ready, children=(first, *ready.children[1:]))

    log.refuses(with_nodes(1, 2), "name 3 different ones")
    log.refuses(with_nodes(1, 2, 2), "name 3 different ones")
    log.refuses(with_nodes(1, 2, 99), "node 99 is not a member")
    drained_node = log.nodes[3]
    log.must(SetNode(node=drained_node, draining=True))
    log.refuses(with_nodes(1, 2, drained_node), "is being drained")
    log.must(SetNode(node=drained_node, draining=False))
    failed = log.now.assignments[log.active[0].partition].owner.node
    log.fail(failed)
    rest = tuple(node for node in log.nodes if node != failed)
    others = tuple(child._replace(nodes=rest) for child in ready.children)
    log.refuses(replace(ready, children=others), "only a live owner can seal it")
    log.refuses(ready, f"node {failed} is FAILED")


def test_limits_count_children_of_open_changes_and_sealed_partitions() -> None:
    log = LayoutLog(3)
    log.must(SetConfig(values={"topic_partitions_max": 8}))
    log.must(log.split(log.active[0]))
    number = log.number()
    log.must(log.split(log.active[1]))
    log.refuses(log.split(log.active[2]), "has 8 partitions", "`topic_partitions_max` is 8")
    log.must(log.abort(number))
    log.must(log.split(log.active[2]))
    log.must(SetConfig(values={"topic_partitions_max": 4_096, "partitions_max": 9}))
    log.refuses(log.split(log.active[0]), "the cluster has 8 partitions", "`partitions_max` is 9")
    log.must(SetConfig(values={"partitions_max": 100, "changes_max": 2}))
    log.refuses(log.split(log.active[0]), "2 changes are open")
    moved = log.active[3].partition
    owner = log.now.assignments[moved].owner.node
    other = next(node for node in log.nodes if node != owner)
    move = PrepareChange(
        topic=log.topic, partition=moved, epoch=log.epoch(moved), owner=other, replicas=(other,)
    )
    log.refuses(move, "2 changes are open")
    done = min(log.state.transitions)
    log.must(log.hold(done))
    log.must(log.commit(done))
    log.refuses(move, "2 changes are open")
    log.must(log.opened(done))
    log.must(move)  # an OPENED one holds nobody


def test_a_wide_change_counts_once() -> None:
    log = LayoutLog(3, partitions=90)
    sources = log.active[:70]
    log.must(log.prepare(REPARTITION, sources, (SlotRange(0, sources[-1].slots.hi),), version=1))
    assert len(log.state.changes) == 70
    log.must(SetConfig(values={"changes_max": 2}))
    log.must(log.split(log.active[80]))

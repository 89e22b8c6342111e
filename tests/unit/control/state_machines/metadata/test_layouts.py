"""Commands of layout changes: what each does, what it is refused for, and what other commands do to them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command, DeleteTopic, RaiseLevel, SetConfig, TruncateTopic
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import FinalizeLayout, PrepareLayout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import RemoveFromRing, RemoveNode, SetNode
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    CommitChange,
    ConfirmLeft,
    HoldChange,
    PrepareChange,
)
from ringfence.control.model.reassignments import ChangeId, ChangeKind, ChangePhase, LeftoverKind, Proof
from ringfence.control.model.results import Refused
from ringfence.control.model.scopes import (
    BeginScope,
    CommitScope,
    ConfirmPublished,
    PendingCommit,
    StagedPart,
)
from ringfence.control.state_machines.metadata import drained
from ringfence.native.wire import Code
from tests.fakes.layout_log import END, LayoutLog

SPLIT, MERGE, REPARTITION = TransitionKind.SPLIT, TransitionKind.MERGE, TransitionKind.REPARTITION


# ---- the way of one change --------------------------------------------------------------------------


def test_a_split_makes_the_next_version_under_its_own_number_in_five_entries() -> None:
    log = LayoutLog(3, replication=3)
    source, before = log.active[1], log.now
    log.must(log.split(source))
    number = log.number()
    assert log.now is before, "a PREPARE leaves the topic, and so its table, as it is"
    seal = log.state.changes[source.partition]
    assert (seal.change, seal.kind, seal.phase) == (number, ChangeKind.SEAL, ChangePhase.PREPARED)
    assert [child.partition for child in log.transition.children] == [number << 16, number << 16 | 1]
    log.must(log.hold())
    assert (log.transition.phase, log.state.changes[source.partition].phase) == (ChangePhase.HELD,) * 2
    places = [child.replicas for child in log.transition.children]
    log.must(log.commit())
    assert log.state.changes == {}
    assert (log.transition.version, log.transition.before, log.transition.after) == (2, 4, 5)
    assert (log.transition.adoption_generation, log.transition.stopped_us) == (log.at, 17)
    assert [child.replicas for child in log.transition.children] == [(), ()]
    parts = log.now.layout.by_id()
    sealed, children = parts[source.partition], log.active[1:3]
    assert (sealed.sealed_version, sealed.children) == (2, tuple(part.partition for part in children))
    assert log.now.seal(source.partition) is not None
    assert log.now.seal(source.partition).end == END  # type: ignore[union-attr]
    assert log.now.assignments[source.partition] == before.assignments[source.partition]
    for child, replicas in zip(children, places, strict=True):
        assigned = log.now.assignments[child.partition]
        assert (child.parents, child.created_version) == ((source.partition,), 2)
        assert (assigned.epoch, assigned.owner, assigned.replicas) == (number, replicas[0], replicas)
    assert log.now.changed == log.at
    log.must(log.opened())
    log.must(log.finalize())
    assert (log.state.transitions, log.at) == ({}, number + 4)
    log.agree()


def test_many_sources_and_many_children_are_one_change() -> None:
    log = LayoutLog(3, partitions=6)
    log.done(log.repartition(tile(4)))
    assert [part.slots for part in log.active] == list(tile(4))
    assert (log.now.layout.version, len(log.now.layout.partitions)) == (2, 10)
    assert not {*tile(4)} & {*tile(6)}, "no partition could stay"
    # A child has the sources that overlap it as parents, and no others.
    for part in log.active:
        overlapping = {
            old.partition
            for old in log.now.layout.partitions
            if not old.is_active and old.slots.lo <= part.slots.hi and part.slots.lo <= old.slots.hi
        }
        assert {*part.parents} == (overlapping if part.created_version == 2 else set())


def test_two_splits_commit_in_any_order_and_each_makes_one_version() -> None:
    log = LayoutLog(3)
    log.must(log.split(log.active[0]))
    first = log.number()
    log.must(log.split(log.active[2]))
    second = log.number()
    for number in (second, first):
        log.must(log.hold(number))
        log.must(log.commit(number))
    versions = [log.state.transitions[number].version for number in (first, second)]
    assert versions == [3, 2]
    assert [part.partition for part in log.now.layout.partitions] == sorted(log.now.layout.by_id())


# ---- what a PREPARE is refused for ------------------------------------------------------------------


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


# ---- later steps ------------------------------------------------------------------------------------


def test_each_step_needs_the_phase_before_it() -> None:
    log = LayoutLog(3)
    steps = ("hold", "commit", "opened", "finalize", "abort")
    allowed = {
        ChangePhase.PREPARED: {"hold", "abort"},
        ChangePhase.HELD: {"commit", "abort"},
        ChangePhase.COMMITTED: {"opened"},
        ChangePhase.OPENED: {"finalize"},
    }
    for reached, phase in zip(("prepare", "hold", "commit", "opened"), allowed, strict=True):
        log = LayoutLog(3)
        log.done(log.split(log.active[0]), upto=reached)
        for step in steps:
            if step not in allowed[phase]:
                refusal = log.refuses(getattr(log, step)(), f"is {phase}")
                assert ("only goes forward" in refusal.message) == (not log.transition.may_abort)
    command = log.finalize()
    log.must(command)
    assert log.refuses(command, "is over").code == Code.TOO_OLD


def test_a_commit_needs_the_ends_of_all_sources_and_all_children_under_the_number() -> None:
    log = LayoutLog(3)
    number = log.done(log.merge(log.active[0], log.active[1]), upto="hold")
    ready = log.commit()
    child = ready.created[0][0]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ends": ready.ends[:1]}, "its COMMIT has the ends of"),
        ({"ends": (*ready.ends, ready.ends[0])}, "its COMMIT has the ends of"),
        ({"created": ()}, "its COMMIT has"),
        ({"created": ((child, LogEnd(Epoch(number - 1), 2, 0, 5)),)}, "created under its number"),
        (
            {"ends": tuple((source, replace(END, epoch=Epoch(number + 1))) for source, _ in ready.ends)},
            "fence",
        ),
    ]
    for values, words in wrong:
        assert log.refuses(replace(ready, **values), words).code == Code.INVALID_ARGUMENT
    log.refuses(replace(ready, change=ChangeId(number - 1)), "is over, or never began")
    log.must(ready)


def test_a_seal_is_neither_held_nor_aborted_nor_committed_alone() -> None:
    log = LayoutLog(3)
    number = log.done(log.split(log.active[0]), upto="hold")
    part = log.active[0].partition
    which: dict[str, Any] = {"partition": part, "change": number}
    alone: list[Command] = [
        HoldChange(**which),
        AbortChange(**which, why="test"),
        CommitChange(
            **which, epoch=log.epoch(part), owner=NodeId(1), end=END, proofs=(Proof(log.place(1), END),)
        ),
    ]
    for command in alone:
        log.refuses(command, "part of a layout change")


# ---- aborts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["prepare", "hold"])
def test_an_abort_opens_the_sources_again_and_releases_the_children_everywhere(phase: str) -> None:
    log = LayoutLog(3, replication=3)
    epochs = [log.epoch(part.partition) for part in log.active]
    number = log.done(log.merge(log.active[0], log.active[1]), upto=phase)
    [child] = log.transition.children
    log.must(log.abort())
    opened = [Epoch(log.at)] * 2 if phase == "hold" else epochs[:2]
    assert [log.epoch(part.partition) for part in log.active] == [*opened, *epochs[2:]]
    listed = log.state.leftovers[child.partition]
    assert [(left.place, left.kind) for left in listed] == [
        (place, LeftoverKind.RELEASE) for place in child.replicas
    ]
    assert {(left.change, left.attempt) for left in listed} == {(number, 1)}
    assert log.state.changes == log.state.transitions == {}
    log.must(log.merge(log.active[0], log.active[1]))
    assert log.transition.children[0].partition != child.partition, "ids are not used again"
    for left in listed:
        log.must(ConfirmLeft(partition=child.partition, change=left.change, store=left.place.store))
    assert log.state.leftovers == {}


@pytest.mark.parametrize("replication", [1, 3])
@pytest.mark.parametrize("role", ["source", "child", "follower"])
@pytest.mark.parametrize("how", ["restart", "fail"])
def test_a_restart_or_a_failure_of_an_owner_ends_the_change_by_its_own_entry(
    replication: int, role: str, how: str
) -> None:
    log = LayoutLog(4, replication=replication)
    source, neighbour = log.active[0], log.active[1]
    log.done(log.merge(source, neighbour), upto="hold")
    [child] = log.transition.children
    owners = {log.now.assignments[part.partition].owner.node for part in (source, neighbour)}
    node = {
        "source": log.now.assignments[source.partition].owner.node,
        "child": next(place.node for place in child.replicas),
        "follower": next((place.node for place in child.replicas[1:] if place.node not in owners), NodeId(0)),
    }[role]
    if role == "child" and node in owners:
        log.must(log.abort())
        other = next(number for number in log.nodes if number not in owners)
        rest = tuple(number for number in log.nodes if number != other)[: replication - 1]
        command = log.merge(source, neighbour)
        placed = command.children[0]._replace(nodes=(other, *rest))
        log.done(replace(command, children=(placed,)), upto="hold")
        [child], node = log.transition.children, other
    if not node or (role == "follower" and replication == 1):
        return
    log.must(log.restart(node) if how == "restart" else log.fail(node))
    if role == "follower":
        assert log.transition.phase is ChangePhase.HELD, "a quorum of the child is enough"
        return
    assert log.state.transitions == {}
    assert {left.place for left in log.state.leftovers[child.partition]} == {*child.replicas}
    for part in (source, neighbour):
        owner = log.now.assignments[part.partition].owner.node
        change = log.state.changes.get(part.partition)
        if owner == node and replication > 1:
            assert change is not None and change.kind is ChangeKind.FAILOVER
        else:
            assert log.epoch(part.partition) == log.at, "it opens above the fence (I13)"
    log.agree()


def test_a_removed_node_with_a_place_of_a_child_ends_the_change() -> None:
    log = LayoutLog(4, partitions=1, replication=1)
    free = log.nodes[3]
    command = log.split(log.active[0])
    children = tuple(
        child._replace(nodes=(node,)) for child, node in zip(command.children, (1, free), strict=True)
    )
    log.done(replace(command, children=children), upto="hold")
    refusal = log.refuses(
        RemoveFromRing(node=free, version=log.state.ring.version), "takes part in 1 changes"
    )
    assert refusal.code == Code.ALREADY_EXISTS
    outside = replace(log.state.ring, members=tuple(node for node in log.nodes if node != free))
    log.state = log.twin = replace(log.state, ring=outside)
    log.refuses(RemoveNode(node=free), "takes part in 1 open changes")


def test_after_the_commit_restarts_and_failures_end_nothing() -> None:
    log = LayoutLog(3, replication=3)
    source = log.active[0]
    number = log.done(log.split(source), upto="commit")
    owner = log.now.assignments[source.partition].owner.node
    log.must(log.fail(owner))
    assert log.transition.phase is ChangePhase.COMMITTED
    assert log.now.assignments[source.partition].owner.node != owner, "a SEALED partition has another owner"
    log.must(log.opened(number))
    log.must(log.finalize(number))


# ---- deletions, truncations, scopes -----------------------------------------------------------------


@pytest.mark.parametrize("phase", ["prepare", "hold", "commit", "opened"])
def test_a_deleted_topic_forgets_no_store_of_a_child(phase: str) -> None:
    log = LayoutLog(4, replication=3, partitions=2)
    log.done(log.split(log.active[0]), upto=phase)
    children = {child.partition for child in log.transition.children}
    assigned = log.now.assignments.values()
    stores = {place.store for assignment in assigned for place in assignment.replicas}
    stores |= {place.store for child in log.transition.children for place in child.replicas}
    log.must(DeleteTopic(topic=log.topic))
    tombstone = log.state.tombstones[log.topic]
    assert children <= {*tombstone.partitions}
    assert {*tombstone.holders} == stores
    assert log.state.changes == log.state.transitions == {}
    log.agree()


def test_a_deletion_leaves_what_earlier_tries_left() -> None:
    log = LayoutLog(3)
    log.done(log.split(log.active[0]), upto="hold")
    log.must(log.abort())
    listed = log.state.leftovers
    assert len(listed) == 2
    log.must(DeleteTopic(topic=log.topic))
    assert log.state.leftovers == listed, "stores release the children without the topic"


def test_starts_of_sources_stay_and_children_begin_at_zero() -> None:
    log = LayoutLog(3)
    source = log.active[0].partition
    log.done(log.split(log.active[0]), upto="hold")
    log.must(TruncateTopic(topic=log.topic, starts={source: 5}))
    child = log.transition.children[0].partition
    assert log.refuses(TruncateTopic(topic=log.topic, starts={child: 5})).code == Code.UNKNOWN_PARTITION
    log.must(log.commit())
    assert log.now.starts == {source: 5}
    log.must(TruncateTopic(topic=log.topic, starts={child: 5}))


def scoped(log: LayoutLog) -> tuple[ScopeId, Index]:
    log.must(BeginScope(name="s"))
    return ScopeId(log.at << 16), Index(log.at)


def committed(log: LayoutLog, scope: tuple[ScopeId, Index], epoch: int, *partitions: int) -> CommitScope:
    parts = tuple(StagedPart(log.topic, PartitionId(partition), 3) for partition in partitions)
    return CommitScope(scope=scope[0], driver=scope[1], epoch=epoch, tokens=(b"t" * 16,), parts=parts)


def test_rows_that_were_decided_are_published_before_their_partition_is_sealed() -> None:
    log = LayoutLog(3)
    scope, part = scoped(log), log.active[0].partition
    log.must(committed(log, scope, 1, part))
    log.done(log.split(log.active[0]), upto="hold")
    assert log.refuses(log.commit(), "scope 's'", "wait for their publish").code == Code.ALREADY_EXISTS
    refusal = log.refuses(committed(log, scope, 2, part), "is held by layout change")
    assert refusal.code == Code.HELD
    log.must(committed(log, scope, 2, log.active[1].partition))
    log.must(ConfirmPublished(scope=scope[0], epoch=1, parts=((log.topic, part),)))
    log.must(log.commit())
    refusal = log.refuses(committed(log, scope, 3, part, log.active[0].partition), "stage them again")
    assert refusal.code == Code.MOVED
    log.must(committed(log, scope, 3, *(part.partition for part in log.active[:2])))


def test_a_commit_after_an_abort_goes_on_under_the_new_epoch() -> None:
    log = LayoutLog(3)
    scope, part = scoped(log), log.active[0].partition
    log.done(log.split(log.active[0]), upto="hold")
    log.refuses(committed(log, scope, 1, part))
    log.must(log.abort())
    log.must(committed(log, scope, 1, part))


# ---- finalize and prune -----------------------------------------------------------------------------


class Reader:
    """A registered reader that has read these partitions."""

    def __init__(self, created: int, *read: PartitionId) -> None:
        self.name, self.created, self.read = "group", Index(created), read

    def has_read(self, _: TopicId, partition: PartitionId) -> bool:
        return partition in self.read


def test_registered_readers_hold_finalize_and_prune_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LayoutLog(3)
    source = log.active[0].partition
    number = log.done(log.split(log.active[0]), upto="opened")
    readers = [Reader(1), Reader(log.at + 5)]
    monkeypatch.setattr(drained, "registered_readers", lambda *_: tuple(readers))
    log.refuses(log.finalize(), "registered readers are not through")
    readers[0] = Reader(1, source)
    log.must(log.finalize(number))  # the later reader holds the prune only
    log.time_ms += 1_200_000
    log.refuses(log.prune(source), "readers group are not through it")
    log.time_ms += 86_400_000
    log.must(log.prune(source))


def test_a_reader_that_never_returns_holds_a_finalize_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LayoutLog(3)
    log.done(log.split(log.active[0]), upto="opened")
    monkeypatch.setattr(drained, "registered_readers", lambda *_: (Reader(1),))
    log.refuses(log.finalize())
    log.time_ms += 86_400_000
    log.must(log.finalize())


def test_the_hold_time_of_a_topic_is_checked_from_its_level_on() -> None:
    assert [drained.hold_fault(text) is None for text in ("3600", "86400", "2592000")] == [True] * 3
    for text in ("", "3599", "2592001", "-1", "1e5", "٣٦٠٠", "9" * 30):
        fault = drained.hold_fault(text)
        assert fault is not None and "sealed_hold_s" in fault


def test_parents_are_pruned_first_and_children_note_where_they_ended() -> None:
    log = LayoutLog(3, replication=3)
    first = log.active[0]
    log.done(log.split(first))
    second = log.active[0]
    log.done(log.split(second))
    log.refuses(log.prune(first.partition), "sealed 0 ms ago", "`resolve_keep_s`")
    log.time_ms += 1_200_000
    log.refuses(log.prune(second.partition), f"its parents {first.partition}")
    log.refuses(log.prune(first.partition, second.partition), "its parents")
    log.refuses(log.prune(log.active[0].partition), "is ACTIVE")
    log.refuses(log.prune(), "0 partitions to prune")
    version = log.now.layout.version
    log.must(log.prune(first.partition))
    assert (log.now.layout.version, log.now.changed) == (version, log.at)
    assert first.partition not in log.now.assignments
    assert log.refuses(log.prune(first.partition), "no partition").code == Code.UNKNOWN_PARTITION
    [old] = log.now.pruned_parents(second.partition)
    assert (old.partition, old.offset) == (first.partition, END.offset)
    assert len(log.state.leftovers[first.partition]) == 3
    log.must(log.prune(second.partition))
    assert log.now.pruned_parents(second.partition) == ()
    assert all(len(log.now.pruned_parents(part.partition)) == 1 for part in log.active[:3])
    log.agree()


def test_nothing_is_pruned_that_an_open_change_a_leftover_or_a_scope_needs() -> None:
    log = LayoutLog(3)
    scope, source = scoped(log), log.active[0].partition
    number = log.done(log.split(log.active[0]), upto="opened")
    log.time_ms += 2_000_000
    log.refuses(log.prune(source), "not finalized")
    log.must(log.finalize(number))
    other = next(node for node in log.nodes if node != log.now.assignments[source].owner.node)
    log.must(
        PrepareChange(
            topic=log.topic, partition=source, epoch=log.epoch(source), owner=other, replicas=(other,)
        )
    )
    log.refuses(log.prune(source), "is in an open change")
    log.must(AbortChange(partition=source, change=ChangeId(log.at - 1), why="test"))
    log.refuses(log.prune(source), "a step of one left")
    log.must(ConfirmLeft(partition=source, change=ChangeId(log.at - 3), store=log.place(int(other)).store))
    waiting = PendingCommit(1, (b"t" * 16,), (StagedPart(log.topic, source, 3),))
    before, held = log.state, replace(log.state.scopes[scope[0]], pending=(waiting,))
    log.state = log.twin = replace(log.state, scopes={scope[0]: held})
    log.refuses(log.prune(source), "scope 's'")
    log.state = log.twin = before
    log.must(log.prune(source))


def test_a_failed_command_says_which_step_it_was() -> None:
    log = LayoutLog(3)
    for command in (log.hold(ChangeId(5)), log.opened(ChangeId(5)), log.finalize(ChangeId(5))):
        result = log.do(command)
        assert isinstance(result, Refused)
        assert result.message == "layout change 5 is over, or never began"

"""What aborts, restarts, removals, deletions, truncations and scopes do to layout changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import DeleteTopic, TruncateTopic
from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.node_commands import RemoveFromRing, RemoveNode
from ringfence.control.model.reassignment_commands import ConfirmLeft
from ringfence.control.model.reassignments import ChangeKind, ChangePhase, LeftoverKind
from ringfence.control.model.scopes import ConfirmPublished
from ringfence.native.wire import Code
from tests.fakes.layout_log import LayoutLog, committed, scoped

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
    assert not log.state.changes
    assert not log.state.transitions
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


def test_a_node_with_a_place_of_a_child_is_not_removed() -> None:
    log = LayoutLog(4, partitions=1, replication=1)
    free = log.nodes[3]
    command = log.split(log.active[0])
    children = tuple(
        child._replace(nodes=(node,)) for child, node in zip(command.children, (NodeId(1), free), strict=True)
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
    assert not log.state.changes
    assert not log.state.transitions
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

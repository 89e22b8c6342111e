"""What operators may do with a topic in each phase of a layout change: each refusal leaves every byte."""

from __future__ import annotations

import pytest

from ringfence.control.model.commands import DeleteTopic, TruncateTopic
from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.node_commands import RemoveFromRing, RemoveNode, SetNode
from ringfence.control.model.reassignment_commands import ForceOwner, PrepareChange
from ringfence.control.model.reassignments import ChangePhase
from ringfence.native.wire import Code
from tests.fakes.layout_log import LayoutLog

PHASES = ["prepare", "hold", "commit", "opened"]
BEFORE_COMMIT = PHASES[:2]


def changing(phase: str) -> LayoutLog:
    log = LayoutLog(4, replication=3, partitions=3)
    log.done(log.split(log.active[0]), upto=phase)
    return log


@pytest.mark.parametrize("phase", PHASES)
def test_a_source_is_not_moved_before_the_commit_and_other_partitions_are(phase: str) -> None:
    log = changing(phase)
    source, other = log.transition.sources[0], log.active[-1].partition

    def move(partition: PartitionId) -> PrepareChange:
        assignment = log.now.assignments[partition]
        owner, held = assignment.owner.node, {place.node for place in assignment.replicas}
        free = next(node for node in log.nodes if node not in held)
        kept = sorted(held - {owner})[:1]
        return PrepareChange(
            topic=log.topic,
            partition=partition,
            epoch=assignment.epoch,
            owner=owner,
            replicas=(owner, *kept, free),
        )

    if phase in BEFORE_COMMIT:
        refusal = log.refuses(move(source), f"is in change {log.number()} (SEAL")
        assert refusal.code == Code.ALREADY_EXISTS
    else:
        log.must(move(source))
    log.must(move(other))


@pytest.mark.parametrize("phase", PHASES)
def test_an_owner_is_not_forced_during_a_change(phase: str) -> None:
    log = changing(phase)
    source = log.transition.sources[0]
    other = log.now.assignments[source].replicas[-1].node
    command = ForceOwner(partition=source, change=log.number(), owner=other, accepts="all rows")
    log.refuses(command)
    children = {child.partition for child in log.transition.children}
    for child in sorted(children):
        log.refuses(ForceOwner(partition=child, change=log.number(), owner=other, accepts="all rows"))


@pytest.mark.parametrize("phase", PHASES)
def test_children_are_truncated_once_they_exist_and_sources_always(phase: str) -> None:
    log = changing(phase)
    child = log.transition.children[0].partition
    if phase in BEFORE_COMMIT:
        refusal = log.refuses(TruncateTopic(topic=log.topic, starts={child: 1}), str(child))
        assert refusal.code == Code.UNKNOWN_PARTITION
    else:
        log.must(TruncateTopic(topic=log.topic, starts={child: 1}))
    log.must(TruncateTopic(topic=log.topic, starts={log.transition.sources[0]: 5}))


@pytest.mark.parametrize("phase", PHASES)
def test_a_node_with_a_part_in_the_change_is_drained_and_not_removed(phase: str) -> None:
    log = changing(phase)
    source = log.transition.sources[0]
    node = log.now.assignments[source].owner.node
    log.refuses(RemoveNode(node=node))
    log.refuses(RemoveFromRing(node=node, version=log.state.ring.version))
    log.must(SetNode(node=node, draining=True))
    assert (
        log.transition.phase
        is {
            "prepare": ChangePhase.PREPARED,
            "hold": ChangePhase.HELD,
            "commit": ChangePhase.COMMITTED,
            "opened": ChangePhase.OPENED,
        }[phase]
    ), "a drain ends no change that has begun"
    # And no new child goes there.
    refusal = log.refuses(log.split(log.active[-1], at=log.active[-1].slots.lo + 1))
    assert f"node {node}" in refusal.message


@pytest.mark.parametrize("phase", PHASES)
def test_a_deletion_ends_the_change_in_every_phase(phase: str) -> None:
    log = changing(phase)
    log.must(DeleteTopic(topic=log.topic))
    assert not log.state.transitions
    assert not log.state.changes
    log.agree()


@pytest.mark.parametrize("phase", PHASES)
def test_switching_layout_changes_off_lets_open_ones_go_on(phase: str) -> None:
    log = changing(phase)
    number = log.number()
    log.must(log.config(layout_changes_enabled=0))
    log.refuses(log.split(log.active[-1]), "switched off")
    for name in ("hold", "commit", "opened", "finalize")[PHASES.index(phase) :]:
        log.must(getattr(log, name)(number))
    assert Epoch(number) in {log.now.assignments[part.partition].epoch for part in log.active}
    assert NodeId(1) in log.state.nodes

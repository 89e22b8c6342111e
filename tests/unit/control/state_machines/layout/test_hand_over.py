"""Sealed partitions whose owners lack records are handed over to replicas that have all."""

from __future__ import annotations

import pytest

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.model.reassignments import ChangeKind
from ringfence.control.state_machines.layout import hand_over
from ringfence.control.state_machines.layout.hand_over import HAND_OVERS_MAX, RETRY_MS, LackBoard
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.messages import Ended, LookOpen, OrderDone, Prove
from tests.fakes.layout_log import END, LayoutLog


def sealed(nodes: int = 4, partitions: int = 1) -> tuple[LayoutLog, list[PartitionId]]:
    log = LayoutLog(nodes, replication=3, partitions=partitions)
    sources = [part.partition for part in log.active]
    for part in log.active:
        log.done(log.split(part))
    return log, sources


def owner(log: LayoutLog, partition: PartitionId) -> NodeId:
    return log.now.assignments[partition].owner.node


def others(log: LayoutLog, partition: PartitionId) -> list[NodeId]:
    replicas = log.now.assignments[partition].replicas
    return sorted(place.node for place in replicas if place.node != owner(log, partition))


def test_an_owner_that_lacks_records_is_replaced_by_one_that_proves_the_end() -> None:
    log, [source] = sealed()
    board, before = LackBoard(), owner(log, source)
    assert board.due(log.state, 0) == ()
    board.record(before, [source])
    [command] = board.due(log.state, 0)
    assert (command.owner, command.epoch) == (others(log, source)[0], log.epoch(source))
    log.must(command)
    assert log.state.changes[source].kind is ChangeKind.HAND_OVER
    assert board.due(log.state, RETRY_MS) == (), "it is under way"
    leader = Coordinator()
    leader.begin(0)
    for now_ms in range(100, 4_000, 100):
        found = leader.step(log.state, now_ms)
        for order in found.orders:
            if isinstance(order, Prove) and order.to.node != before:
                leader.observe_answer(order, Ended(end=END))
            if isinstance(order, LookOpen):
                leader.observe_answer(order, OrderDone(first_us=1))
        for entry in found.entries:
            log.must(entry)
        if source not in log.state.changes:
            break
    assert owner(log, source) == command.owner
    log.agree()
    assert board.due(log.state, 2 * RETRY_MS) == (), "the owner that told so is the owner no more"


def test_each_replica_is_tried_and_then_all_again() -> None:
    log, [source] = sealed()
    board = LackBoard()
    board.record(owner(log, source), [source])
    tried = []
    for now_ms in range(0, 5 * RETRY_MS, RETRY_MS // 4):
        tried += [command.owner for command in board.due(log.state, now_ms)]
    one, two = others(log, source)
    assert tried == [one, two, one, two, one], "once in each interval"


def test_nothing_is_begun_that_the_log_would_refuse_or_that_helps_nobody() -> None:
    log, [source] = sealed()
    child = log.active[0].partition
    before = owner(log, source)
    board = LackBoard()
    for node in log.nodes:
        if node != before:
            board.record(node, [source])
    board.record(owner(log, child), [child, PartitionId(12345)])
    assert board.due(log.state, 0) == (), "no owner, no sealed partition, no partition"
    board.record(before, [source])
    for node in others(log, source):
        log.must(log.fail(int(node)))
    assert board.due(log.state, 0) == (), "no other replica is live"
    board.record(before, [])
    assert board.due(log.state, RETRY_MS) == ()


def test_one_round_begins_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    log, sources = sealed(partitions=6)
    monkeypatch.setattr(hand_over, "HAND_OVERS_MAX", 4)
    board = LackBoard()
    for node in log.nodes:
        board.record(node, sources)
    first = board.due(log.state, 0)
    second = board.due(log.state, 1)
    assert (len(first), len(second), board.due(log.state, 2)) == (4, 2, ())
    assert sorted(command.partition for command in (*first, *second)) == sorted(sources)
    assert HAND_OVERS_MAX == 64


def test_entries_are_changes_of_the_log() -> None:
    log, [source] = sealed()
    board = LackBoard()
    board.record(owner(log, source), [source])
    [command] = board.due(log.state, 0)
    assert isinstance(command, PrepareChange)
    assert {*command.replicas} == {place.node for place in log.now.assignments[source].replicas}

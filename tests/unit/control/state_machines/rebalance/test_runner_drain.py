"""A run that empties a node takes up what nobody could plan at its start, until nothing is left there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ringfence.control.model.ids import Index, NodeId, PartitionId
from ringfence.control.model.node_commands import FailNode, SetNode
from ringfence.control.model.reassignment_commands import CommitChange
from ringfence.control.model.reassignments import Change, ChangeKind, ChangePhase, Proof
from ringfence.control.model.rebalance_commands import AmendMoves, CancelRebalance, FinishRebalance
from ringfence.control.model.rebalances import Action, MoveState, Outcome, PlannedMove
from ringfence.control.runtime.membership.node_commands import commands
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.state_machines.metadata.move_records import nodes_down
from ringfence.control.state_machines.rebalance.plans import ChosenMove, left_out, preview
from ringfence.control.state_machines.rebalance.runner import WAIT_MS
from tests.fakes.metadata_log import END, MetadataLog
from tests.fakes.rebalance_leader import Leader, next_step, started

LEAVING = pytest.mark.parametrize("action", [Action.DRAIN, Action.REMOVE_NODE])


def parts(lab: MetadataLog) -> dict[PartitionId, tuple[int, ...]]:
    """Nodes of each partition, the owner first."""
    found: dict[PartitionId, tuple[int, ...]] = {}
    for number, now in sorted(lab.state.topics[lab.topic].assignments.items()):
        others = [place.node for place in now.replicas if place != now.owner]
        found[number] = (now.owner.node, *others)
    return found


def held(lab: MetadataLog, node: int) -> int:
    return sum(node in nodes for nodes in parts(lab).values())


def failed_over(lab: MetadataLog, node: int) -> list[Change]:
    """A node fails; the failovers that are open."""
    lab.must(lab.fail(node))
    return [change for change in lab.state.changes.values() if change.kind is ChangeKind.FAILOVER]


def choose(lab: MetadataLog, change: Change, owner: int) -> None:
    """A failover ends: its other replicas are fenced, one of them is the owner."""
    proofs = tuple(Proof(place, END) for place in change.replicas if place != change.owner)
    lab.must(
        CommitChange(
            partition=change.partition,
            change=change.change,
            epoch=change.epoch,
            owner=NodeId(owner),
            end=END,
            proofs=proofs,
        )
    )


@LEAVING
def test_a_partition_whose_owner_is_being_chosen_is_planned_when_it_is_chosen(action: Action) -> None:
    lab = MetadataLog(6, partitions=2, replication=3)
    owner, leaves = lab.nodes[0], lab.nodes[1]
    changes = failed_over(lab, owner)
    assert len(changes) == 2
    plan = preview(lab.state, action, NodeId(leaves))
    assert plan.command.moves == ()
    assert sorted(plan.waits) == sorted(change.partition for change in changes)
    started(lab, action, leaves)
    leader = Leader(lab)
    assert leader.rebalancer.step(lab.state, 0) == ()
    assert [change.partition for change in left_out(lab.state).changes] == sorted(plan.waits)
    for change in changes:
        choose(lab, change, leaves)
        leader.dies()  # the next leader knows only the log
        while change.partition not in lab.state.moves:
            leader.round()
            assert leader.now_ms < WAIT_MS, lab.state.rebalance
    leader.until_over()
    assert held(lab, leaves) == 0, parts(lab)
    assert lab.state.rebalance.outcome is Outcome.DONE, lab.state.rebalance
    assert (leaves in lab.state.ring.members) == (action is Action.DRAIN)


@LEAVING
def test_what_only_a_failed_node_could_take_is_taken_up_when_it_is_back(action: Action) -> None:
    lab = MetadataLog(4, partitions=3, replication=3)
    leaves, away = lab.nodes[1], lab.nodes[3]
    lab.must(FailNode(node=NodeId(away), changed=lab.state.nodes[NodeId(away)].changed))
    plan = preview(lab.state, action, NodeId(leaves))
    assert plan.refusal is None, plan.refusal
    started(lab, action, leaves)
    leader = Leader(lab)
    for _ in range(3):
        leader.round()
    assert lab.state.rebalance.is_active
    assert left_out(lab.state).nodes == (away,)
    lab.must(lab.restart(away))
    leader.until_over()
    assert held(lab, leaves) == 0, parts(lab)
    assert lab.state.rebalance.outcome is Outcome.DONE, lab.state.rebalance
    assert lab.state.rebalance.why == ""


def test_a_run_does_not_wait_for_ever_and_says_what_is_left() -> None:
    lab = MetadataLog(4, partitions=3, replication=3)
    leaves, away = lab.nodes[1], lab.nodes[3]
    lab.must(FailNode(node=NodeId(away), changed=lab.state.nodes[NodeId(away)].changed))
    started(lab, Action.DRAIN, leaves)
    leader = Leader(lab)
    leader.until_over(rounds=WAIT_MS // 5_000 + 3)
    run = lab.state.rebalance
    assert run.outcome is Outcome.DONE, run
    assert f"node {leaves} has 3 replicas left" in run.why
    assert f"node {away} is FAILED" in run.why
    assert lab.state.nodes[NodeId(leaves)].draining, "it still gets nothing new"


def test_nobody_waits_where_nobody_will_come() -> None:
    lab = MetadataLog(3, partitions=3, replication=3)
    started(lab, Action.DRAIN, lab.nodes[1])
    leader = Leader(lab)
    leader.until_over(rounds=3)
    assert "no other node may take 3 partitions" in lab.state.rebalance.why


def test_what_nobody_else_may_take_is_named_and_the_rest_is_counted() -> None:
    lab = MetadataLog(3, partitions=6, replication=3)
    started(lab, Action.DRAIN, lab.nodes[1])
    Leader(lab).until_over(rounds=3)
    first = lab.partition
    assert f"6 partitions ({first}, {first + 1}, {first + 2}, and 3 more)" in lab.state.rebalance.why


class Proposer:
    """What a refusal is made of: the newest state."""

    def __init__(self, lab: MetadataLog) -> None:
        self.state = lab.state

    async def read_barrier(self) -> None:
        """It is."""


def removal(lab: MetadataLog, node: int) -> str:
    """Why a node is not removed."""
    proposer: Any = Proposer(lab)
    with pytest.raises(RequestRefused) as refused:
        asyncio.run(commands(proposer, NodeId(node), "remove"))
    return refused.value.message


def test_who_removes_a_node_with_replicas_is_told_what_helps() -> None:
    lab = MetadataLog(3, partitions=5, replication=1)
    wiped = lab.nodes[0]
    assert removal(lab, wiped) == (
        f"node {wiped} holds 5 replicas; run `ringfence node drain {wiped} --wait` first"
    )
    started(lab, Action.DRAIN, wiped)
    assert "its drain is under way" in removal(lab, wiped)
    lab.must(CancelRebalance(run=lab.state.rebalance.run))
    lab.must(FinishRebalance(run=lab.state.rebalance.run))
    lab.must(lab.fail(wiped))
    first = lab.partition
    assert removal(lab, wiped) == (
        f"node {wiped} holds 5 replicas; it is FAILED and alone has the rows of 5 partitions "
        f"({first}, {first + 1}, {first + 2}, and 2 more): start it with its data directory again and drain "
        "it; or, if that is lost with its rows, delete the topics (a) with `ringfence topic delete`"
    )


def test_who_removes_a_node_is_not_sent_to_a_drain_that_goes_nowhere() -> None:
    lab = MetadataLog(3, partitions=3, replication=3)
    node, first = lab.nodes[1], lab.partition
    assert removal(lab, node) == (
        f"node {node} holds 3 replicas; no other node may take 3 partitions "
        f"({first}, {first + 1}, {first + 2}): let a node join that can, then run "
        f"`ringfence node drain {node} --wait`"
    )
    alone = MetadataLog(2, partitions=2, replication=1)
    owner, other = alone.nodes
    alone.must(SetNode(node=NodeId(other), draining=True))
    said = removal(alone, owner)
    assert "a drain, which moves them, is refused: " in said
    assert "no other node takes partitions" in said
    assert "run `ringfence node drain" not in said


def test_what_a_drain_left_is_not_told_as_under_way() -> None:
    lab = MetadataLog(3, partitions=3, replication=3)
    started(lab, Action.DRAIN, lab.nodes[1])
    Leader(lab).until_over(rounds=3)
    said = removal(lab, lab.nodes[1])
    assert "its drain has ended and left them" in said
    assert "let a node join" in said


def test_the_last_node_that_takes_partitions_is_not_drained() -> None:
    lab = MetadataLog(2, partitions=2, replication=1)
    first, last = lab.nodes
    lab.must(SetNode(node=NodeId(first), draining=True))
    refusal = preview(lab.state, Action.DRAIN, NodeId(last)).refusal
    assert refusal is not None
    assert "no other node takes partitions" in refusal.message
    lab.must(SetNode(node=NodeId(first), draining=False))
    assert preview(lab.state, Action.DRAIN, NodeId(last)).refusal is None


def test_a_failover_that_never_ends_is_named_when_the_wait_is_over() -> None:
    lab = MetadataLog(6, partitions=1, replication=3)
    [change] = failed_over(lab, lab.nodes[0])
    started(lab, Action.DRAIN, lab.nodes[1])
    rebalancer = Leader(lab).rebalancer
    assert rebalancer.step(lab.state, 0) == ()
    assert rebalancer.step(lab.state, WAIT_MS - 1) == ()
    [end] = rebalancer.step(lab.state, WAIT_MS + 1_000)
    assert isinstance(end, FinishRebalance)
    assert f"partition {change.partition} is in change {change.change} (FAILOVER, PREPARED)" in end.why


def test_a_move_that_another_change_has_done_is_done() -> None:
    lab = MetadataLog(4, partitions=1)
    node = lab.nodes[1]
    started(lab, Action.MOVE, chosen=(ChosenMove(lab.partition, (NodeId(node),)),))
    lab.must(lab.prepare(node))
    change = lab.change
    while change.partition in lab.state.changes:
        lab.must(next_step(lab, lab.state.changes[change.partition]))
    Leader(lab).until_over()
    assert lab.state.rebalance.outcome is Outcome.DONE, lab.state.rebalance
    move = lab.state.moves[lab.partition]
    assert (move.state, move.error) == (MoveState.COMMITTED, "another change had done it")


def test_only_what_is_left_on_the_node_and_settled_may_be_amended() -> None:
    lab = MetadataLog(6, partitions=2, replication=3)
    leaves = lab.nodes[2]
    first, _ = parts(lab)
    spare = tuple(NodeId(node) for node in lab.nodes if node not in parts(lab)[first])
    started(lab, Action.DRAIN, leaves)
    run = lab.state.rebalance.run

    def amend(partition: PartitionId, after: tuple[NodeId, ...] | None = None) -> AmendMoves:
        before = tuple(NodeId(node) for node in parts(lab)[partition])
        move = PlannedMove(lab.topic, partition, before, after or (before[0], before[1], spare[1]))
        return AmendMoves(run=run, moves=(move,))

    lab.refuses(amend(first), "already in the plan")
    lab.refuses(AmendMoves(run=run), "at least one")
    lab.refuses(AmendMoves(run=run, done=(first,)), "is not done")
    lab.refuses(AmendMoves(run=Index(run + 1), done=(first,)), "is over")
    leader = Leader(lab)
    leader.until(lambda: lab.state.moves[first].state is MoveState.COMMITTED, rounds=20)
    lab.refuses(amend(first), f"is not on node {leaves}")
    leader.until_over()
    assert held(lab, leaves) == 0
    [change] = [one for one in failed_over(lab, lab.nodes[0]) if one.partition == first]
    assert change.phase is ChangePhase.PREPARED
    started(lab, Action.DRAIN, lab.nodes[1])
    run = lab.state.rebalance.run
    lab.refuses(amend(first), f"is in change {change.change}")


def fail(lab: MetadataLog, node: int) -> None:
    lab.must(FailNode(node=NodeId(node), changed=lab.state.nodes[NodeId(node)].changed))


def spare_target(lab: MetadataLog, action: Action) -> tuple[int, int]:
    """A run that empties a replica's node has begun; that node, and which of two spare nodes it chose."""
    leaves = parts(lab)[lab.partition][1]
    (move,) = started(lab, action, leaves).moves
    (target,) = {*move.after} - {*move.before}
    return leaves, target


@LEAVING
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_partition_goes_elsewhere_when_its_place_has_failed(action: Action, rounds: int) -> None:
    """Before its move begins, or in the middle of it; without waiting for the node."""
    lab = MetadataLog(5, partitions=1, replication=3)
    leaves, target = spare_target(lab, action)
    leader = Leader(lab)
    for _ in range(rounds):
        leader.round()
    fail(lab, target)
    leader.round(frozenset({lab.partition}))  # aborts what is under way
    leader.dies()
    leader.until_over()
    assert leader.now_ms < WAIT_MS, "nobody waited for the node"
    assert target not in parts(lab)[lab.partition]
    assert held(lab, leaves) == 0, parts(lab)
    assert lab.state.rebalance.outcome is Outcome.DONE, lab.state.rebalance
    assert lab.state.moves[lab.partition].attempts == rounds + 1


def chosen_move_to_a_spare_node() -> tuple[MetadataLog, int]:
    """A run with one move, whose place has failed before it began."""
    lab = MetadataLog(4, partitions=1, replication=3)
    owner, *others = parts(lab)[lab.partition]
    (spare,) = {*lab.nodes} - {owner, *others}
    after = (NodeId(owner), NodeId(others[0]), NodeId(spare))
    started(lab, Action.MOVE, chosen=(ChosenMove(lab.partition, after),))
    fail(lab, spare)
    return lab, spare


def test_a_move_that_nobody_else_may_take_waits_for_its_place() -> None:
    lab, spare = chosen_move_to_a_spare_node()
    leader = Leader(lab)
    for _ in range(WAIT_MS // 5_000 - 1):
        leader.round()
    move = lab.state.moves[lab.partition]
    assert (move.state, move.attempts) == (MoveState.PENDING, 0)
    assert nodes_down(lab.state, move) == (spare,), "what `rebalance status` tells of"
    lab.must(lab.restart(spare))
    leader.until_over()
    assert lab.state.rebalance.outcome is Outcome.DONE, lab.state.rebalance
    assert spare in parts(lab)[lab.partition]


def test_a_place_that_stays_away_costs_the_move_its_tries() -> None:
    lab, spare = chosen_move_to_a_spare_node()
    Leader(lab).until_over(rounds=4 * WAIT_MS // 5_000)
    assert lab.state.rebalance.outcome is Outcome.GIVEN_UP
    assert f"node {spare} is FAILED" in lab.state.moves[lab.partition].error


def test_a_move_is_planned_anew_only_when_its_place_takes_nothing() -> None:
    lab = MetadataLog(5, partitions=1, replication=3)
    leaves, target = spare_target(lab, Action.DRAIN)
    now = parts(lab)[lab.partition]
    (other,) = {*lab.nodes} - {*now, target}
    after = tuple(NodeId(other if node == leaves else node) for node in now)
    planned = PlannedMove(
        topic=lab.topic, partition=lab.partition, before=tuple(map(NodeId, now)), after=after
    )
    amend = AmendMoves(run=lab.state.rebalance.run, moves=(planned,))
    lab.refuses(amend, "PENDING", "already in the plan")
    fail(lab, target)
    lab.must(amend)
    assert lab.state.moves[lab.partition].after == after

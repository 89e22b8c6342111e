"""Rebalances: the commands against a reference model, and runs to their ends under failures of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ringfence.control.model.commands import Command, DeleteTopic, SetConfig
from ringfence.control.model.ids import Index, NodeId, PartitionId
from ringfence.control.model.node_commands import RemoveFromRing, SetNode
from ringfence.control.model.reassignment_commands import CommitChange, PrepareChange, ReleaseKept
from ringfence.control.model.reassignments import Proof
from ringfence.control.model.rebalance_commands import (
    CancelRebalance,
    FinishRebalance,
    PauseRebalance,
    ResumeRebalance,
    StartRebalance,
)
from ringfence.control.model.rebalances import MOVE_TRIES, Action, MoveRecord, MoveState, Outcome, RunState
from ringfence.control.model.results import RebalanceStarted, Refused
from ringfence.control.state_machines.metadata.rebalances import gaps_of
from ringfence.control.state_machines.metadata.state_machine import apply, validate
from ringfence.control.state_machines.rebalance.plans import ChosenMove, preview
from ringfence.control.state_machines.rebalance.runner import Rebalancer
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import entry
from tests.fakes.metadata_log import END, MetadataLog
from tests.fakes.rebalance_leader import Leader, confirm_all, loads, next_step, started


def test_a_balance_evens_what_stands_on_one_node_and_a_second_one_moves_nothing() -> None:
    lab = MetadataLog(4, partitions=12)
    command = started(lab, Action.BALANCE)
    assert len(command.moves) == 9
    Leader(lab).until_over()
    assert set(loads(lab).values()) == {3}
    assert lab.state.rebalance.outcome is Outcome.DONE
    assert lab.state.rebalance.counts == {"COMMITTED": 9}
    again = started(lab, Action.BALANCE)
    assert again.moves == ()
    Leader(lab).until_over()


def test_a_run_begins_and_ends_at_the_times_of_its_own_entries() -> None:
    lab = MetadataLog(4, partitions=12)
    evening_ms, morning_ms = 1_000_000, 40_000_000
    lab.state = replace(lab.state, time_ms=evening_ms)  # nothing was committed for a night
    start = preview(lab.state, Action.BALANCE).command
    state, result = apply(lab.state, entry(lab.at + 1, start, time_ms=morning_ms))
    assert result == RebalanceStarted(run=Index(lab.at + 1))
    assert state.rebalance.started_ms == morning_ms
    cancel, finish = (kind(run=state.rebalance.run) for kind in (CancelRebalance, FinishRebalance))
    state, _ = apply(state, entry(lab.at + 2, cancel, time_ms=morning_ms + 1))
    state, _ = apply(state, entry(lab.at + 3, finish, time_ms=2 * morning_ms))
    over = validate(state, cancel)
    assert over is not None
    assert over.message == f"rebalance {state.rebalance.run} is over, there is nothing to cancel"
    assert (state.rebalance.outcome, state.rebalance.ended_ms) == (Outcome.CANCELLED, 2 * morning_ms)
    late = entry(lab.at + 4, preview(state, Action.BALANCE).command, time_ms=morning_ms)
    assert apply(state, late)[0].rebalance.started_ms == 2 * morning_ms, "a slow clock turns no time back"


@pytest.mark.parametrize("replication", [1, 3])
def test_a_removed_node_ends_empty_and_only_its_partitions_move(replication: int) -> None:
    lab = MetadataLog(5, partitions=10, replication=replication)
    started(lab, Action.BALANCE)
    Leader(lab).until_over()
    before = dict(lab.state.topics[lab.topic].assignments)
    gone, version = lab.nodes[0], lab.state.ring.version
    command = started(lab, Action.REMOVE_NODE, gone)
    assert all(gone in move.before and gone not in move.after for move in command.moves)
    assert lab.state.ring.version == version, "Z17: the ring changes after the moves"
    Leader(lab).until_over()
    assert lab.state.rebalance.outcome is Outcome.DONE, lab.state.rebalance
    assert (gone in lab.state.ring.members, lab.state.ring.version) == (False, version + 1)
    moved = {move.partition for move in command.moves}
    for partition, assignment in lab.state.topics[lab.topic].assignments.items():
        assert gone not in {place.node for place in assignment.replicas}
        assert partition in moved or assignment == before[partition], "Z16: another partition moved"


def test_a_drained_node_stays_in_the_ring_and_takes_nothing() -> None:
    lab = MetadataLog(3, partitions=6)
    started(lab, Action.DRAIN, 1)
    Leader(lab).until_over()
    assert loads(lab)[1] == 0
    assert 1 in lab.state.ring.members
    assert lab.state.nodes[NodeId(1)].draining


def test_a_drained_node_hands_over_what_nobody_else_can_hold() -> None:
    lab = MetadataLog(3, partitions=6, replication=3)
    owned = [part for part, one in lab.state.topics[lab.topic].assignments.items() if one.owner.node == 1]
    assert owned
    command = started(lab, Action.DRAIN, 1)
    assert {move.partition for move in command.moves} == set(owned)
    Leader(lab).until_over()
    assert lab.state.rebalance.outcome is Outcome.DONE
    for assignment in lab.state.topics[lab.topic].assignments.values():
        assert assignment.owner.node != 1
        assert {place.node for place in assignment.replicas} == set(lab.nodes)
    assert lab.state.nodes[NodeId(1)].draining


def test_an_undrain_ends_the_drain_that_is_under_way_and_no_other_run() -> None:
    lab = MetadataLog(3, partitions=6)
    started(lab, Action.DRAIN, 1)
    leader = Leader(lab)
    while not any(move.state is MoveState.COMMITTED for move in lab.state.moves.values()):
        leader.round()
    for command, state in (
        (SetNode(node=NodeId(2), draining=False), RunState.RUNNING),
        (SetNode(node=NodeId(1), weight=50), RunState.RUNNING),
        (SetNode(node=NodeId(1), draining=False), RunState.CANCELLING),
    ):
        lab.must(command)
        assert lab.state.rebalance.state is state, command
    leader.until_over()
    assert lab.state.rebalance.outcome is Outcome.CANCELLED
    assert not lab.state.nodes[NodeId(1)].draining
    assert 0 < loads(lab)[1] < 6, "what was moved stays"


def test_a_run_is_reversed_as_a_whole_or_in_parts_while_it_is_kept() -> None:
    lab = MetadataLog(3, partitions=6, hold_s=300)
    before = {number: one.owner.node for number, one in lab.state.topics[lab.topic].assignments.items()}
    started(lab, Action.DRAIN, 1)
    Leader(lab).until_over()
    moved = sorted(lab.state.kept)
    assert len(moved) == 6
    whole = preview(lab.state, Action.REVERSE)
    assert whole.refusal is not None
    assert "is being drained" in whole.refusal.message
    lab.must(SetNode(node=NodeId(1), draining=False))
    odd = preview(lab.state, Action.REVERSE, chosen=[ChosenMove(PartitionId(7), ())])
    assert odd.refusal is not None
    part = preview(lab.state, Action.REVERSE, chosen=[ChosenMove(moved[0], ())])
    lab.refuses(
        replace(part.command, moves=(replace(part.command.moves[0], after=(NodeId(5),)),)), "plan again"
    )
    lab.must(part.command)
    Leader(lab).until_over()
    assert lab.now.owner.node == before[moved[0]]
    assert {kept.run for kept in lab.state.kept.values()} >= {lab.state.rebalance.run}
    rest = preview(lab.state, Action.REVERSE, chosen=[ChosenMove(number, ()) for number in moved[1:]])
    lab.must(rest.command)
    Leader(lab).until_over()
    after = {number: one.owner.node for number, one in lab.state.topics[lab.topic].assignments.items()}
    assert after == before
    lab.must(ReleaseKept(kept=tuple((number, kept.change) for number, kept in lab.state.kept.items())))
    assert lab.state.kept == {}
    confirm_all(lab)
    nothing = preview(lab.state, Action.REVERSE)
    assert nothing.refusal is not None
    assert "no change can be reversed" in nothing.refusal.message
    lab.refuses(part.command, "plan again")


def test_the_gaps_of_a_run_are_told_by_nearest_rank() -> None:
    lab = MetadataLog(2)
    move = MoveRecord(topic=lab.topic, partition=lab.partition, before=(), after=())
    moves = [replace(move, gap_us=gap) for gap in (None, 5, 1, *range(10, 108))]
    assert gaps_of(moves) == {"count": 100, "p50_us": 57, "p99_us": 106, "max_us": 107}
    assert gaps_of([move]) == {}


def test_a_move_that_fails_three_times_is_given_up_and_the_ring_stays() -> None:
    lab = MetadataLog(4, partitions=4)
    command = started(lab, Action.REMOVE_NODE, 1)
    bad = command.moves[0].partition
    leader = Leader(lab)
    for _ in range(3):
        leader.round(frozenset({bad}))
    leader.dies()
    leader.until_over(frozenset({bad}))
    move = lab.state.moves[bad]
    assert (move.state, move.attempts) == (MoveState.FAILED, MOVE_TRIES)
    assert move.error == "the target's disk is full"
    assert lab.state.rebalance.outcome is Outcome.GIVEN_UP
    assert lab.state.rebalance.counts == {"COMMITTED": 3, "FAILED": 1}
    assert 1 in lab.state.ring.members
    assert not lab.state.nodes[NodeId(1)].draining, "what its start did to the node is taken back"
    started(lab, Action.REMOVE_NODE, 1)
    assert lab.state.moves[bad].attempts == 0, "a fourth try by a new start only"
    Leader(lab).until_over()
    assert 1 not in lab.state.ring.members


def test_a_cancel_aborts_what_runs_keeps_what_is_committed_and_changes_no_ring() -> None:
    lab = MetadataLog(4, partitions=8)
    started(lab, Action.REMOVE_NODE, 1)
    leader = Leader(lab)
    while sum(move.state is MoveState.COMMITTED for move in lab.state.moves.values()) < 2:
        leader.round()
    while not any(change.may_abort for change in lab.state.changes.values()):
        leader.round()
    owned = loads(lab)
    lab.must(CancelRebalance(run=lab.state.rebalance.run))
    lab.must(CancelRebalance(run=lab.state.rebalance.run))
    leader.dies()
    leader.until_over()
    assert lab.state.rebalance.outcome is Outcome.CANCELLED
    assert loads(lab) == owned
    assert 1 in lab.state.ring.members
    assert lab.state.changes == {} == lab.state.leftovers
    assert sum(lab.state.rebalance.counts.values()) == 8, "Z19: the counts sum to the plan"


def test_a_pause_lets_the_running_move_end_and_starts_none() -> None:
    lab = MetadataLog(3, partitions=6)
    started(lab, Action.BALANCE)
    leader = Leader(lab)
    leader.round()
    lab.must(PauseRebalance(run=lab.state.rebalance.run))
    for _ in range(10):
        leader.round()
    assert sum(move.state is MoveState.COMMITTED for move in lab.state.moves.values()) == 1
    assert lab.state.changes == {}
    assert lab.state.rebalance.state is RunState.PAUSED
    lab.must(ResumeRebalance(run=lab.state.rebalance.run))
    leader.until_over()
    assert set(loads(lab).values()) == {2}


def test_concurrency_is_of_the_cluster_and_of_each_node() -> None:
    lab = MetadataLog(4, partitions=12)
    lab.must(SetConfig(values={"moves_concurrent": 8, "node_moves_concurrent": 2}))
    started(lab, Action.BALANCE)
    assert len(Rebalancer().step(lab.state, 0)) == 2, "they all have the same source"
    lab.must(SetConfig(values={"moves_concurrent": 1, "node_moves_concurrent": 2}))
    assert len(Rebalancer().step(lab.state, 0)) == 1


def test_a_topic_deleted_in_the_middle_ends_its_moves() -> None:
    lab = MetadataLog(3, partitions=6)
    started(lab, Action.BALANCE)
    leader = Leader(lab)
    leader.round()
    lab.must(DeleteTopic(topic=lab.topic))
    leader.until_over()
    assert lab.state.rebalance.outcome is Outcome.DONE


def test_chosen_moves_are_checked_and_happen_as_they_were_chosen() -> None:
    lab = MetadataLog(3, partitions=2)
    first, second = sorted(lab.state.topics[lab.topic].assignments)
    unknown = preview(lab.state, Action.MOVE, chosen=(ChosenMove(PartitionId(7), (NodeId(2),)),))
    assert unknown.refusal is not None
    assert "partition 7" in unknown.refusal.message
    nowhere = preview(lab.state, Action.MOVE, chosen=(ChosenMove(first, (NodeId(1),)),))
    assert nowhere.refusal is not None
    assert "nothing would move" in nowhere.refusal.message
    chosen = (ChosenMove(second, (NodeId(5),)), ChosenMove(first, (NodeId(2),)))
    started(lab, Action.MOVE, chosen=chosen)
    Leader(lab).until_over()
    assert loads(lab) == {1: 0, 2: 1, 5: 1}


def test_an_old_plan_is_refused_and_so_is_a_removal_below_the_replication() -> None:
    lab = MetadataLog(3, replication=3)
    refusal = preview(lab.state, Action.REMOVE_NODE, NodeId(1)).refusal
    assert refusal is not None
    assert "2 nodes would be left" in refusal.message
    lab = MetadataLog(3, partitions=3)
    old = preview(lab.state, Action.BALANCE).command
    started(lab, Action.DRAIN, 1)
    Leader(lab).until_over()
    result = lab.do(old)
    assert isinstance(result, Refused)
    assert result.code == Code.TOO_OLD


def test_a_ring_that_cannot_change_ends_the_run_as_given_up() -> None:
    lab = MetadataLog(4, partitions=4)
    started(lab, Action.REMOVE_NODE, 1)
    leader = Leader(lab)
    while lab.state.rebalance.is_active and any(
        move.state is not MoveState.COMMITTED for move in lab.state.moves.values()
    ):
        leader.round()
    lab.must(SetConfig(values={"nodes_min": 4}))
    leader.until_over()
    assert lab.state.rebalance.outcome is Outcome.GIVEN_UP
    assert "the ring stays" in lab.state.rebalance.why
    lab.refuses(RemoveFromRing(node=NodeId(1), version=lab.state.ring.version), "nodes_min")


# ---- a reference model ----------------------------------------------------------------------------------


class Model:
    """What a rebalance is, in as few words as possible: a state, and (state, tries) a move."""

    def __init__(self) -> None:
        self.state, self.moves = "IDLE", dict[PartitionId, tuple[str, int]]()

    def allows(self, call: str, partition: PartitionId | None) -> bool:
        running = [state for state, _ in self.moves.values() if state in {"DUAL_WRITE", "VERIFYING"}]
        over = all(s == "COMMITTED" or (s == "FAILED" and tries == 3) for s, tries in self.moves.values())
        state, tries = ("", 0) if partition is None else self.moves.get(partition, ("", 0))
        match call:
            case "start":
                return self.state == "IDLE"
            case "pause" | "resume":
                return self.state in {"RUNNING", "PAUSED"}
            case "cancel":
                return self.state != "IDLE"
            case "finish":
                return not running and ((self.state == "RUNNING" and over) or self.state == "CANCELLING")
            case "try":
                return self.state == "RUNNING" and (state == "PENDING" or (state == "FAILED" and tries < 3))
            case _:
                return state in {"DUAL_WRITE", "VERIFYING"}

    def do(self, call: str, partition: PartitionId | None, partitions: list[PartitionId]) -> None:
        known = {"pause": "PAUSED", "resume": "RUNNING", "cancel": "CANCELLING", "finish": "IDLE"}
        if call == "start":
            self.state, self.moves = "RUNNING", dict.fromkeys(partitions, ("PENDING", 0))
        elif call in known:
            self.state = known[call]
        else:
            assert partition is not None
            tries = self.moves[partition][1]
            if call == "try":
                self.moves[partition] = ("DUAL_WRITE", tries + 1)
            elif call == "abort":
                self.moves[partition] = ("FAILED", tries)
            else:
                held = self.moves[partition][0] == "DUAL_WRITE"
                self.moves[partition] = ("VERIFYING" if held else "COMMITTED", tries)


CALLS = ["start", "pause", "resume", "cancel", "finish", "try", "try", "try", "abort", "go", "go", "go"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 2)), max_size=40))
def test_any_calls_do_what_a_reference_model_says(calls: list[tuple[str, int]]) -> None:
    lab, model = MetadataLog(3, partitions=3), Model()
    partitions = sorted(lab.state.topics[lab.topic].assignments)
    for call, which in calls:
        partition = partitions[which]
        command = _command(lab, call, partition)
        if command is None:
            assert not model.allows(call, partition), f"{call} is not possible, the model says it is"
            continue
        allowed = model.allows(call, partition)
        refused = isinstance(lab.do(command), Refused)
        assert refused != allowed, f"{command} in {model.state}, {model.moves}"
        if allowed:
            model.do(call, partition, [move.partition for move in lab.state.moves.values()])
            _settle(lab)
        assert lab.state.rebalance.state == model.state
        shown = {part: (str(move.state), move.attempts) for part, move in lab.state.moves.items()}
        assert shown == model.moves


def _command(lab: MetadataLog, call: str, partition: PartitionId) -> Command | None:
    run = lab.state.rebalance.run or Index(1)
    steer: dict[str, Callable[..., Command]] = {
        "pause": PauseRebalance,
        "resume": ResumeRebalance,
        "cancel": CancelRebalance,
        "finish": FinishRebalance,
    }
    if call == "start":
        there = {part: now.owner.node for part, now in lab.state.topics[lab.topic].assignments.items()}
        chosen = tuple(
            ChosenMove(part, (next(NodeId(n) for n in lab.nodes if n != at),)) for part, at in there.items()
        )
        if lab.state.rebalance.is_active:
            return StartRebalance(action=Action.BALANCE)
        return preview(lab.state, Action.MOVE, chosen=chosen).command
    if call in steer:
        return steer[call](run=run)
    if call == "try":
        move = lab.state.moves.get(partition)
        if move is None:
            return None
        epoch = lab.state.topics[lab.topic].assignments[partition].epoch
        return PrepareChange(
            topic=lab.topic,
            partition=partition,
            epoch=epoch,
            owner=move.after[0],
            replicas=move.after,
            run=run,
        )
    change = lab.state.changes.get(partition)
    return None if change is None else next_step(lab, change, fails=call == "abort")


def _settle(lab: MetadataLog) -> None:
    """What follows a COMMIT or an ABORT is done at once."""
    for change in list(lab.state.changes.values()):
        while change.partition in lab.state.changes and lab.state.changes[change.partition].is_committed:
            lab.must(next_step(lab, lab.state.changes[change.partition]))
    confirm_all(lab)


def test_random_failures_and_leaders_end_every_run() -> None:
    for seed in range(25):
        draw = random.Random(seed)
        lab = MetadataLog(4, partitions=6, replication=draw.choice([1, 3]))
        started(lab, Action.BALANCE)
        leader = Leader(lab)
        for _ in range(600):
            if not lab.state.rebalance.is_active:
                break
            if draw.random() < 0.1:
                leader.dies()
            if draw.random() < 0.05:
                owner = draw.choice(lab.nodes)
                lab.must(lab.restart(owner))
                _fail_over(lab)
            bad = frozenset(part for part in lab.state.changes if draw.random() < 0.2)
            leader.round(bad)
        assert not lab.state.rebalance.is_active, lab.state.rebalance
        assert sum(lab.state.rebalance.counts.values()) == len(lab.state.moves)


def _fail_over(lab: MetadataLog) -> None:
    for change in list(lab.state.changes.values()):
        if not change.may_abort and not change.is_committed:
            proofs = tuple(Proof(place, END) for place in change.replicas)
            lab.must(
                CommitChange(
                    partition=change.partition,
                    change=change.change,
                    epoch=change.epoch,
                    owner=change.owner.node,
                    end=END,
                    proofs=proofs,
                )
            )

"""Leader, nodes and followers of the product over modelled native nodes: moves, failovers, rebalances."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import NodeId
from ringfence.control.model.reassignment_commands import AbortChange, HoldChange
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.model.rebalance_commands import CancelRebalance
from ringfence.control.model.rebalances import Action, MoveState, Outcome
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.reassignment import participant
from ringfence.control.state_machines.reassignment.messages import Ended, Fence, OrderVerdict, evaluate_order
from ringfence.control.state_machines.rebalance.loads import Load, LoadReport
from ringfence.control.state_machines.rebalance.plans import ChosenMove, preview
from tests.fakes.reassignment_cluster import ReassignmentCluster, idle, moved, prepare, publish
from tests.fakes.replica_logs import Log


def test_a_move_under_load_loses_nothing_and_leaves_nothing() -> None:
    asyncio.run(moved(3, 1, 2))


def test_a_target_proves_nothing_that_is_not_on_its_disk() -> None:
    """It is killed right behind the commit: what it had appended only would be gone, and is nowhere else."""

    async def work() -> None:
        async with ReassignmentCluster(3) as small:
            assert small.append(1)
            small.disks.nodes[2].is_writing = True
            await small.log.propose(prepare(small, 2))

            def phases() -> list[ChangePhase]:
                return [change.phase for change in small.log.state.changes.values()]

            await small.until(lambda: phases() == [ChangePhase.HELD])
            await asyncio.sleep(0.3)
            assert phases() == [ChangePhase.HELD]
            small.disks.nodes[2].is_writing = False
            await small.until(lambda: idle(small))
            assert small.now().owner.node == 2

    asyncio.run(work())


async def moved_to_and_fro(times: int) -> int:
    """What nodes keep of changes at most."""
    async with ReassignmentCluster(3) as small:
        for turn in range(times):
            await small.log.propose(prepare(small, 2 - turn % 2))
            await small.until(lambda: idle(small))
        return max(len(node._syncing) + len(node._receiving) for node in small.obeys.values())


def test_what_is_known_of_changes_that_are_over_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participant, "FINISHED_MAX", 3)
    assert asyncio.run(moved_to_and_fro(16)) <= 3 + 2 + 1


async def reversed_under_load(*, tells_times: bool) -> None:
    async with ReassignmentCluster(3, hold_s=300) as small:
        for native in small.disks.nodes.values():
            native.tells_times = tells_times
        sent: list[int] = []
        stop = asyncio.Event()
        producer = asyncio.create_task(publish(small, sent, stop))
        await small.until(lambda: len(sent) > 5)
        chosen = [ChosenMove(small.partitions[0], (NodeId(2),))]
        for action, picked, owner in ((Action.MOVE, chosen, 2), (Action.REVERSE, [], 1)):
            plan = preview(small.log.state, action, chosen=picked)
            assert plan.refusal is None, plan
            await small.log.propose(plan.command)
            await small.until(lambda: idle(small))
            count = len(sent)
            await small.until(lambda count=count: len(sent) > count + 5)  # type: ignore[misc]
            run = small.log.state.rebalance
            assert (run.outcome, small.now().owner.node) == (Outcome.DONE, owner)
            (move,) = small.log.state.moves.values()
            assert (move.gap_us is not None) == tells_times
            assert run.gaps == (
                dict.fromkeys(("p50_us", "p99_us", "max_us"), move.gap_us) | {"count": 1}
                if tells_times
                else {}
            )
        stop.set()
        await producer
        assert small.rows(1)[: len(sent)] == sent
        assert [kept.stores[0].node for kept in small.log.state.kept.values()] == [2]
        assert small.disks.nodes[2].logs, "what left last keeps its rows for the hold time"
        await small.log.propose(SetConfig(values={"reverse_hold_s": 0}))
        await small.until(lambda: not small.log.state.kept and idle(small))
        assert not small.disks.nodes[2].logs
        assert preview(small.log.state, Action.REVERSE).refusal is not None


def test_a_finished_move_is_reversed_without_loss_and_each_tells_its_gap() -> None:
    asyncio.run(reversed_under_load(tells_times=True))


def test_a_native_node_that_measures_no_gap_keeps_nobody_waiting() -> None:
    asyncio.run(reversed_under_load(tells_times=False))


def test_another_leader_goes_on_from_any_phase() -> None:
    async def run() -> None:
        for phase in (ChangePhase.PREPARED, ChangePhase.HELD, ChangePhase.COMMITTED):
            async with ReassignmentCluster(3) as small:
                assert small.append(1)
                small.log.listeners.append(
                    lambda _, after, __, small=small, phase=phase: (
                        small.another_leader()
                        if any(change.phase is phase for change in after.changes.values())
                        else None
                    )
                )
                await small.log.propose(prepare(small, 2))
                await small.until(lambda small=small: idle(small))  # type: ignore[misc]
                assert small.rows(2) == [1]

    asyncio.run(run())


def test_a_target_that_fails_is_tried_three_times_and_given_up() -> None:
    async def run() -> None:
        async with ReassignmentCluster(2, partitions=2) as small:
            small.disks.nodes[2].fails["receive_start"] = "disk full: 0 bytes left"
            plan = preview(small.log.state, Action.BALANCE)
            await small.log.propose(plan.command)
            await small.until(lambda: idle(small), 60)
            (move,) = small.log.state.moves.values()
            assert (move.state, move.attempts) == (MoveState.FAILED, 3)
            assert "disk full" in move.error
            assert small.log.state.rebalance.outcome is Outcome.GIVEN_UP
            assert small.append(1) and small.append(2, 1)

    asyncio.run(run())


def test_a_rebalance_evens_and_its_throttle_changes_while_it_runs() -> None:
    async def run() -> None:
        async with ReassignmentCluster(3, partitions=6) as small:
            small.disks.nodes[1].fails["sync"] = ""
            await small.log.propose(preview(small.log.state, Action.BALANCE).command)
            await small.log.propose(SetConfig(values={"sync_bytes_per_s": 1_000}))
            await small.until(lambda: idle(small), 60)
            assert small.log.state.rebalance.outcome is Outcome.DONE
            owners = sorted(small.now(number).owner.node for number in range(6))
            assert owners == [1, 1, 2, 2, 5, 5]

    asyncio.run(run())


def test_a_cancel_in_the_middle_of_a_copy_leaves_the_target_clean() -> None:
    async def run() -> None:
        async with ReassignmentCluster(2, partitions=2) as small:
            small.dead.add(2)
            await small.log.propose(preview(small.log.state, Action.BALANCE).command)
            await small.until(lambda: bool(small.log.state.changes))
            small.dead.discard(2)
            number = small.log.state.rebalance.run
            await small.log.propose(CancelRebalance(run=number))
            await small.until(lambda: idle(small))
            assert small.disks.nodes[2].received == {}
            assert {small.now(number).owner.node for number in (0, 1)} == {1} or (
                small.log.state.rebalance.outcome is Outcome.CANCELLED
            )

    asyncio.run(run())


def test_what_heartbeats_tell_makes_the_policy_even_the_loads() -> None:
    async def run() -> None:
        async with ReassignmentCluster(2, partitions=4) as small:
            now_ms = time.monotonic_ns() // 1_000_000
            hot = tuple(Load(int(number), 1_000, 10) for number in small.partitions)
            small.board.record(NodeId(1), LoadReport(hot), now_ms)
            small.board.record(NodeId(2), LoadReport(), now_ms)
            await small.log.propose(
                SetConfig(values={"policy_enabled": 1, "policy_grace_s": 0, "policy_check_interval_s": 1})
            )
            await small.until(lambda: bool(small.log.state.rebalance.run) and idle(small))
            run = small.log.state.rebalance
            assert run.outcome is Outcome.DONE
            assert run.why.startswith("policy: loads node 1: 4000 B/s, node 2: 0 B/s")
            assert sorted(small.now(number).owner.node for number in range(4)) == [1, 1, 2, 2]
            decision = small.leader.coordinator.decision
            assert decision is not None
            assert decision.why

    asyncio.run(run())


def test_a_copy_that_a_restart_made_nobodys_goes_with_its_change() -> None:
    async def run() -> None:
        async with ReassignmentCluster(3) as small:
            small.dead.add(2)
            await small.log.propose(prepare(small, 2))
            (change,) = small.log.state.changes.values()
            place, native = (int(change.topic), int(change.partition)), small.disks.nodes[2]
            native.logs[place] = Log()  # on its disk; the engine does not know any more what for
            await small.log.propose(AbortChange(partition=change.partition, change=change.change, why="test"))
            await small.settled()
            await small.until(lambda: not small.log.state.leftovers)
            assert place not in native.logs
            assert place in small.disks.nodes[1].logs

    asyncio.run(run())


def test_an_order_of_an_older_term_and_one_of_a_change_that_is_over_do_nothing() -> None:
    async def run() -> None:
        async with ReassignmentCluster(3) as small:
            small.dead.add(2)
            await small.log.propose(prepare(small, 2))
            change = small.log.state.changes[small.partitions[0]]
            await small.until(lambda: bool(small.leader._requests))
            order: Any = next(iter(small.leader._requests))
            await small.log.propose(AbortChange(partition=change.partition, change=change.change, why="test"))
            await small.settled()
            for term in (1, 0):
                refused = None
                try:
                    await small.obeys[2].execute(term, order)
                except Exception as error:  # noqa: BLE001 - looked at below
                    refused = error
                assert refused is not None
            assert small.disks.nodes[2].received == {}

    asyncio.run(run())


def test_an_order_that_is_ahead_of_the_log_is_obeyed_by_the_entry_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[OrderVerdict] = []

    def looked(*arguments: Any) -> OrderVerdict:
        looks.append(evaluate_order(*arguments))
        return looks[-1]

    monkeypatch.setattr(participant, "evaluate_order", looked)

    async def run() -> None:
        async with ReassignmentCluster(3) as small:
            await small.leader.close()  # nobody else decides or asks
            await small.log.propose(prepare(small, 2))
            (change,) = small.log.state.changes.values()
            owner = Replica(node=NodeId(1), store=small.log.state.nodes[NodeId(1)].store)
            order = Fence(to=owner, topic=small.topic, partition=small.partitions[0], change=change.change)
            obeyed = asyncio.create_task(small.obeys[1].execute(1, order))
            await asyncio.sleep(0.05)
            await small.log.propose(HoldChange(partition=change.partition, change=change.change))
            assert isinstance(await obeyed, Ended)

    asyncio.run(run())
    assert looks == [OrderVerdict.LATER, OrderVerdict.EXECUTE], (
        "it looks when an entry was applied, by no clock"
    )

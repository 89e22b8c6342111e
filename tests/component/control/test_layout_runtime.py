"""Layout changes through the product's leader, participants and executors over modelled native nodes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.layout_commands import AbortLayout
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Inherit,
    LayoutOrder,
    LookLayout,
    Seal,
)
from tests.fakes.layout_cluster import LayoutCluster, run

# The first order of each step of a change, as a text: type, and whether it has ends or is committed.
STEPS = ("CreateChild", "Inherit base", "LookLayout", "Seal", "Inherit rest", "LookLayout committed")


def step_of(order: LayoutOrder) -> str:
    match order:
        case Inherit(ends=ends):
            return "Inherit base" if ends is None else "Inherit rest"
        case LookLayout(is_committed=is_committed):
            return "LookLayout committed" if is_committed else "LookLayout"
        case CreateChild():
            return "CreateChild"
        case Seal():
            return "Seal"


def once(world: LayoutCluster, step: str, do: Any) -> None:
    """Call `do` at the first order of this step."""
    done: list[str] = []

    def on_order(order: LayoutOrder) -> None:
        if step_of(order) == step and not done:
            done.append(step)
            do(order)

    world.on_order = on_order


@pytest.mark.parametrize("replication", [1, 3])
def test_a_split_a_merge_and_a_repartition_take_effect(replication: int) -> None:
    async def work(world: LayoutCluster) -> None:
        for row in range(1, 40):
            assert world.append(row)
        for change in (partial(world.split, into=3), world.merge, partial(world.repartition, 5)):
            await change()
            await world.until_over()
        assert world.now.layout.version == 4
        assert len(world.active) == 5
        world.check()

    run(LayoutCluster(4, replication=replication), work)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (64, 128), (128, 3)])
def test_a_change_costs_five_entries_whatever_the_number_of_partitions(before: int, after: int) -> None:
    async def work(world: LayoutCluster) -> None:
        entries: list[int] = []
        world.log.listeners.append(lambda _before, _after, index: entries.append(index))
        number = await world.repartition(after)
        await world.until_over()
        assert len(entries) == 4, "PREPARE, HOLD, COMMIT, OPENED"
        generation = world.state.transitions[number].adoption_generation
        for node in world.nodes:
            told = NodeAdoption(Index(generation), {world.topic: generation})
            world.leader.record_adoption(NodeId(node), told)
        await world.until(lambda: not world.state.transitions)
        assert len(entries) == 5, "FINALIZED"
        assert len(world.active) == after

    run(LayoutCluster(3, partitions=before), work)


def test_many_sources_become_many_children_with_a_limit_of_calls_at_each_node() -> None:
    async def work(world: LayoutCluster) -> None:
        gate = asyncio.Event()
        drivers = [node.driver for node in world.nodes.values()]
        for driver in drivers:
            driver.quorum_gate = gate  # no call ends before each node has as many as it may have
        await world.repartition(200)
        await world.until(lambda: all(driver.under_way >= 64 for driver in drivers))
        await asyncio.sleep(0.2)  # in which a call above the limit would begin
        assert [driver.under_way for driver in drivers] == [64, 64, 64]
        gate.set()
        await world.until_over()
        world.check()
        assert len(world.active) == 200
        assert max(driver.most_under_way for driver in drivers) == 64

    run(LayoutCluster(3, replication=3, partitions=7), work)


@pytest.mark.parametrize("step", STEPS)
def test_another_leader_goes_on_from_every_step(step: str) -> None:
    async def work(world: LayoutCluster) -> None:
        for row in range(1, 20):
            world.append(row)
        once(world, step, lambda _: world.another_leader())
        await world.split(into=2)
        await world.until_over()
        assert world.now.layout.version == 2, "a change of the leader aborts nothing"
        world.check()

    run(LayoutCluster(6, replication=3), work)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", ["source", "child", "follower"])
def test_a_restart_at_every_step_leaves_one_layout_and_no_orphan(step: str, who: str) -> None:
    async def work(world: LayoutCluster) -> None:
        for row in range(1, 20):
            world.append(row)
        restarts: list[asyncio.Task[None]] = []

        def restart(order: LayoutOrder) -> None:
            transition = world.state.transitions[order.change]
            child = transition.children[-1].partition
            replicas = transition.children[-1].replicas or world.now.assignments[child].replicas
            node = {
                "source": world.now.assignments[transition.sources[0]].owner.node,
                "child": replicas[0].node,
                "follower": replicas[-1].node,
            }[who]
            restarts.append(asyncio.ensure_future(world.restart_node(node)))

        once(world, step, restart)
        await world.split(into=2)
        await world.until(lambda: bool(restarts))
        await restarts[0]
        await world.until_over()
        is_committed = world.now.layout.version == 2
        # An owner's restart before the COMMIT aborts by its own entry, whatever it had done.
        assert is_committed == (step == "LookLayout committed" or who == "follower")
        await world.until_served()
        world.check()

    run(LayoutCluster(6, replication=3), work)


@pytest.mark.parametrize("step", STEPS)
def test_an_abort_at_every_step_leaves_no_file_of_the_children(step: str) -> None:
    async def work(world: LayoutCluster) -> None:
        asked: list[asyncio.Task[Any]] = []

        def abort(order: LayoutOrder) -> None:
            command = AbortLayout(change=order.change, why="test")
            asked.append(asyncio.ensure_future(world.refused_or_done(command)))

        once(world, step, abort)
        await world.split(into=4)
        await world.until(lambda: bool(asked))
        refused = await asked[0]
        await world.until_over()
        assert (world.now.layout.version == 2) == refused == (step == "LookLayout committed")
        await world.until_served()
        world.check()

    run(LayoutCluster(3, replication=3), work)


@pytest.mark.parametrize("seed", range(8))
def test_orders_and_answers_may_be_lost_late_and_repeated(seed: int) -> None:
    async def work(world: LayoutCluster) -> None:
        for row in range(1, 30):
            world.append(row)
        for change in (partial(world.split, into=3), world.merge, partial(world.repartition, 4)):
            before = world.now.layout.version
            while world.now.layout.version == before:
                await change()
                await world.until_over()
        world.loss = 0.0
        await asyncio.sleep(0.3)  # what is late arrives
        await world.until_served()
        world.check()

    run(LayoutCluster(4, replication=3, seed=seed, loss=0.15, layout_timeout_ms=60_000), work)


def test_a_dead_owner_of_a_child_aborts_and_a_dead_follower_does_not() -> None:
    async def work(world: LayoutCluster) -> None:
        failed: list[asyncio.Future[Any]] = []

        def fail(order: LayoutOrder, place: int) -> None:
            node = world.state.transitions[order.change].children[-1].replicas[place].node
            world.dead.add(node)
            world.natives.cut.add(node)
            changed = world.state.nodes[NodeId(node)].changed
            failed.append(
                asyncio.ensure_future(world.log.propose(FailNode(node=NodeId(node), changed=changed)))
            )

        once(world, "Seal", lambda order: fail(order, 0))
        await world.split(into=2)
        await world.until(lambda: not world.state.transitions)
        assert world.now.layout.version == 1
        world.dead.clear()
        world.natives.cut.clear()
        await world.until_over()
        await world.until_served()
        world.check()

    run(LayoutCluster(6, replication=3), work)


def test_an_owner_by_force_inherits_again_before_it_takes_rows() -> None:
    """Its log lacks the last pages: one of a source that is there, one of a source that was pruned."""

    async def work(world: LayoutCluster) -> None:
        for row in range(1, 20):
            world.append(row)
        await world.split()
        await world.until_over()
        first = world.active[0].partition
        node = world.nodes[world.now.assignments[first].owner.node]
        log = node.driver.node.parts[world.topic, first]
        known = dict(log.table)
        log.table.clear()
        log.last_pages.clear()
        assert not log.is_served
        assert await node.late_inheritance.look()
        assert (log.is_served, {*known} <= {*log.table}, log.forgets) == (True, True, False)
        assert node.late_inheritance.count == 1
        assert await node.late_inheritance.look()
        assert node.late_inheritance.count == 1, "nothing is missing any more"
        # As above, with the source pruned.
        world.log.time_ms += 2_000_000
        await world.until(lambda: not world.state.transitions)
        for parts in world.natives.parts.values():
            for part in parts.values():
                part.start = part.end.offset if part.sealed else part.start
        await world.leader.prune()
        await world.until_over()
        assert world.now.pruned_parents(first)
        log.table.clear()
        log.last_pages.clear()
        assert await node.late_inheritance.look()
        assert (log.is_served, log.forgets) == (True, True), "forgotten, not new"

    run(LayoutCluster(3, repartition_adoption_timeout_ms=100), work)


def test_an_order_of_an_older_term_and_one_of_a_term_that_nobody_leads_are_refused() -> None:
    async def work(world: LayoutCluster) -> None:
        world.loss = 1.0  # the leader reaches nobody
        await world.split()
        transition = world.transition
        assert transition is not None
        place = transition.owners[0]
        order = CreateChild(to=place, topic=world.topic, change=transition.change)
        participant = world.nodes[place.node].participant
        world.log.replica.term = 6
        await participant.execute(5, order)
        assert await world.refuses(participant.execute(4, order))
        again = await participant.execute(5, order)
        assert again == await participant.execute(6, order), "a repeated order is answered equally"
        # No leader of term 7 is known: a forged order must not lock out the one of term 6.
        for term in (7, 1 << 40):
            assert await world.refuses(participant.execute(term, order))
        assert again == await participant.execute(6, order)

    run(LayoutCluster(1), work)


def test_a_change_ends_once_the_clients_of_all_live_nodes_hold_the_new_table() -> None:
    async def work(world: LayoutCluster) -> None:
        number = await world.split()
        await world.until_over()
        transition = world.state.transitions[ChangeId(number)]
        generation = transition.adoption_generation
        older = Index(generation - 1)
        for node in world.nodes:
            world.leader.record_adoption(NodeId(node), NodeAdoption(generation, {world.topic: older}))
        await asyncio.sleep(0.3)
        assert world.state.transitions, "clients hold an older table"
        for node in world.nodes:
            told = NodeAdoption(Index(generation + 1), {world.topic: generation} if node == 1 else {})
            world.leader.record_adoption(NodeId(node), told)
        await world.until(lambda: not world.state.transitions)
        assert world.leader.timed_out == 0

    run(LayoutCluster(3), work)


def test_what_nodes_told_the_leader_before_counts_for_nothing() -> None:
    async def work(world: LayoutCluster) -> None:
        number = await world.split()
        await world.until_over()
        generation = world.state.transitions[ChangeId(number)].adoption_generation
        world.another_leader()
        told = NodeAdoption(Index(generation + 1), {world.topic: generation})
        for node in (1, 2):
            world.leader.record_adoption(NodeId(node), told)
        await asyncio.sleep(0.3)
        assert world.state.transitions, "one node has not told this leader yet"
        world.leader.record_adoption(NodeId(5), told)
        await world.until(lambda: not world.state.transitions)

    run(LayoutCluster(3), work)


def test_clients_that_do_not_adopt_hold_a_change_for_a_time_only() -> None:
    async def work(world: LayoutCluster) -> None:
        await world.split()
        await world.until(lambda: not world.state.transitions)
        assert world.leader.timed_out == 1

    run(LayoutCluster(3, repartition_adoption_timeout_ms=200), work)


def test_empty_sealed_partitions_go_parents_first_and_their_stores_drop_them() -> None:
    async def work(world: LayoutCluster) -> None:
        for row in range(1, 20):
            world.append(row)
        await world.split()
        await world.until(lambda: not world.state.transitions)
        await world.split()
        await world.until(lambda: not world.state.transitions)
        sealed = [part.partition for part in world.now.layout.partitions if not part.is_active]
        assert len(sealed) == 2
        await world.leader.prune()
        assert len(world.now.layout.partitions) == 5, "clients may still ask for outcomes"
        world.log.time_ms += 2_000_000
        await world.leader.prune()
        assert len(world.now.layout.partitions) == 5, "rows are left"
        for parts in world.natives.parts.values():
            for (_, partition), part in parts.items():
                if partition in sealed:
                    part.start, part.stages = part.end.offset, 1
        await world.leader.prune()
        assert len(world.now.layout.partitions) == 5, "a writer may stage its rows again"
        for parts in world.natives.parts.values():
            for part in parts.values():
                part.stages = 0
        world.dead.add(world.now.assignments[sealed[0]].owner.node)
        await world.leader.prune()
        assert len(world.now.layout.partitions) == 5, "its owner does not answer"
        world.dead.clear()
        for left in (4, 3):
            await world.leader.prune()
            assert len(world.now.layout.partitions) == left, "parents first"
        await world.until_over()
        world.check()
        gone = [
            parent.partition for part in world.active for parent in world.now.pruned_parents(part.partition)
        ]
        assert {*gone} == {*sealed}

    run(LayoutCluster(3, replication=3, repartition_adoption_timeout_ms=100), work)

"""The runtime when something goes wrong: tasks that die, no space, failed disks, overtaken answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command, DeleteTopic, RestartNode
from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import TopicCreated
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.cluster import Cluster
from ringfence.control.runtime.data_plane import retries
from ringfence.control.runtime.handlers import topic_plans
from ringfence.control.runtime.handlers.commands import at_control_address
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.state_machines.placement.placement import place_in
from ringfence.native import messages
from ringfence.native.wire import Code, Opcode
from tests.fakes.node_bench import CREATE, Bench, buried, run, soon

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(
    "place",
    [
        "membership.members.Members._round",
        "reassignment.leader_loop.ReassignmentLeader._round",
        "raft.proposer.RaftProposer._flush_soon",
    ],
)
def test_a_task_that_dies_of_a_broken_assertion_ends_the_node_with_that_reason(
    tmp_path: Path, monkeypatch: Patch, place: str
) -> None:
    def broken(_: object) -> None:
        raise AssertionError("a rule does not hold")

    async def work(bench: Bench) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"ringfence.control.runtime.{place}", broken)
            # Who proposes meets the assertion itself; the task that looks after proposals meets it next.
            bench.native.request(1, Opcode.TOPIC_CREATE, CREATE, 0)
            error = await asyncio.wait_for(asyncio.shield(bench.node.failed), 30)
        assert "a rule does not hold" in str(error)

    run(tmp_path, monkeypatch, work)


def test_a_start_behind_which_a_late_one_came_is_tried_behind_that_one(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The late one is of a process that is gone; another one that runs is met by `transport.incarnations`."""
    commit, late = Cluster.commit, list[Applied]()

    async def overtaken(cluster: Cluster, command: Command) -> Applied:
        if isinstance(command, RestartNode) and not late:
            late.append(await commit(cluster, replace(command, addresses=("tcp://gone:1",), after=None)))
        return await commit(cluster, command)

    monkeypatch.setattr(Cluster, "commit", overtaken)

    async def work(bench: Bench) -> None:
        state, here = bench.node.proposer.state, bench.node.here
        assert state.nodes[here].started == late[0].index + 1
        assert state.nodes[here].addresses != ("tcp://gone:1",)
        assert not bench.node.failed.done()

    run(tmp_path, monkeypatch, work)


def test_a_start_that_finds_no_space_for_its_entry_waits_for_some(tmp_path: Path, monkeypatch: Patch) -> None:
    refused: list[Code] = []
    propose, catch_up = RaftProposer.propose, Cluster.catch_up

    async def told(self: RaftProposer, *args: Any, **options: Any) -> Applied:
        try:
            return await propose(self, *args, **options)
        except RequestRefused as refusal:
            # There is room again when the start has heard that there is none.
            refused.append(refusal.code)
            self.replica.disk_full = False
            raise

    async def full(self: Cluster) -> None:
        await catch_up(self)
        self.proposer.replica.disk_full = True

    monkeypatch.setattr(RaftProposer, "propose", told)
    monkeypatch.setattr(Cluster, "catch_up", full)

    async def work(bench: Bench) -> None:
        assert refused == [Code.DISK_FULL]
        assert bench.node.health.state == "serving"

    run(tmp_path, monkeypatch, work)


def test_a_topic_that_is_deleted_before_its_creation_is_answered_is_told_of(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    # Found by a simulated cluster: both entries came with one batch.
    propose = RaftProposer.propose

    async def both(self: RaftProposer, command: Any, **options: Any) -> Applied:
        applied = await propose(self, command, **options)
        if isinstance(applied.result, TopicCreated):
            await propose(self, DeleteTopic(topic=applied.result.topic))
        return applied

    monkeypatch.setattr(RaftProposer, "propose", both)

    async def work(bench: Bench) -> None:
        assert await bench.refused(Opcode.TOPIC_CREATE, CREATE) == Code.UNKNOWN_TOPIC

    run(tmp_path, monkeypatch, work)


def test_a_topic_whose_node_failed_while_it_was_chosen_is_placed_anew(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    gone, tries = NodeId(99), list[int]()

    def late(state: MetadataState, count: int, *args: Any, **options: Any) -> tuple[tuple[NodeId, ...], ...]:
        tries.append(count)
        return ((gone,),) * count if len(tries) < wanted else place_in(state, count, *args, **options)

    monkeypatch.setattr(topic_plans, "place_in", late)
    wanted = topic_plans.PLACEMENT_TRIES_MAX

    async def work(bench: Bench) -> None:
        nonlocal wanted
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        assert len(tries) == topic_plans.PLACEMENT_TRIES_MAX
        tries.clear()
        wanted = topic_plans.PLACEMENT_TRIES_MAX + 1
        other = replace(CREATE, name="other")
        assert await bench.refused(Opcode.TOPIC_CREATE, other) == Code.TOO_FEW_REPLICAS
        assert len(tries) == topic_plans.PLACEMENT_TRIES_MAX
        commands, plans = bench.node.handlers.commands, bench.node.handlers.topics
        context = at_control_address("topic create", "topic/other", "create topics")
        with pytest.raises(RequestRefused) as refused:
            await commands.submit(plans.creation(replace(other, partitions=0)), context)
        assert refused.value.code == Code.INVALID_ARGUMENT, "what was asked for stays wrong"
        tries.clear()
        wanted = 2
        assert isinstance((await commands.submit(plans.creation(other), context)).result, TopicCreated)

    run(tmp_path, monkeypatch, work)


async def fails_to_drop(bench: Bench, why: str) -> None:
    """A topic is made, and deleted in the metadata alone."""
    await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
    bench.native.refuses["drop"] = why
    assert await bench.refused(Opcode.TOPIC_DELETE, messages.TopicName(name="t")) == Code.INTERNAL


def test_a_drop_that_failed_keeps_the_tombstone_and_is_tried_at_the_next_start(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def first(bench: Bench) -> None:
        await fails_to_drop(bench, "EIO")
        assert bench.node.health.state == "degraded"

    async def second(bench: Bench) -> None:
        assert bench.native.names()[:3] == ["drop", "drop", "drop"]
        await buried(bench)

    run(tmp_path, monkeypatch, first)
    run(tmp_path, monkeypatch, second)


def test_a_drop_that_failed_is_tried_again_until_the_topic_is_gone(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """A disk that was full for a moment: nobody has to start the node again."""
    monkeypatch.setattr(retries, "DELAY_S", 0.01)

    async def work(bench: Bench) -> None:
        await fails_to_drop(bench, "no space")
        await soon(lambda: bench.native.names().count("drop") >= 8)
        del bench.native.refuses["drop"]
        await buried(bench)
        await soon(lambda: bench.node.health.state == "serving")

    run(tmp_path, monkeypatch, work)


def test_a_drop_under_way_when_the_disk_failed_is_not_confirmed_in_this_life(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The engine forgets it before it is on disk: found by a simulated cluster, which kept it for ever."""
    monkeypatch.setattr(retries, "DELAY_S", 0.01)

    async def first(bench: Bench) -> None:
        monkeypatch.setattr(bench.native, "partitions", list)  # it forgets them before that is on disk
        bench.native.tell(("shard_failed", 0, "EIO"))  # it is told of before the orders under way
        await fails_to_drop(bench, "shard 0 failed, the order may be on disk or not: EIO")
        drops = bench.native.names().count("drop")
        bench.native.refuses["drop"] = "partition 5 of topic 2 is not on this store"
        await soon(lambda: bench.native.names().count("drop") >= 2 * drops)
        del bench.native.refuses["drop"]
        await soon(lambda: bench.native.names().count("drop") >= 4 * drops)
        assert bench.node.proposer.state.tombstones

    run(tmp_path, monkeypatch, first)
    run(tmp_path, monkeypatch, buried)

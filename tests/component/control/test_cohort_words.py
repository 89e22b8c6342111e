"""Cohorts of three whole nodes over fake native ones: what owners of gates tell the leader and each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ringfence.control.model.cohorts import COHORT_LEVEL, Cohort
from ringfence.control.model.commands import RaiseLevel
from ringfence.control.model.ids import PartitionId
from ringfence.control.runtime.cohorts.leader import CohortLeader
from ringfence.control.runtime.cohorts.told import GateWords
from ringfence.control.runtime.data_plane import cohort_orders
from ringfence.control.state_machines.metadata.cohort_lineage import heir
from ringfence.native import cohort_messages as cohorts
from ringfence.native.wire import Opcode
from tests.fakes import gated_node, layout_engine
from tests.fakes.admin_api import PLACE, TOPIC
from tests.fakes.gated_node import GatedNode, Rule
from tests.fakes.node_cluster import NodeCluster, run

Patch = pytest.MonkeyPatch
ROWS = 100


class World:
    """Three nodes with topic `t` of three partitions, and a cohort of one member."""

    def __init__(self, cluster: NodeCluster) -> None:
        self.cluster = cluster

    async def begin(self, start: str = "earliest") -> None:
        proposer = self.cluster.leader.proposer
        if proposer.state.level < COHORT_LEVEL:
            await proposer.propose(RaiseLevel(level=COHORT_LEVEL, nodes=tuple(sorted(proposer.state.nodes))))
        created = await self.cluster.apis[1]("POST", "/admin/topics", TOPIC)
        assert created.status == 201, created
        for number, api in self.cluster.apis.items():
            request = cohorts.Join(
                topic="t",
                cohort="etl",
                mode="stream",
                member=f"m-{number}",
                instance=bytes([number]) * 16,
                start=start,
            )
            answer = await api.bench.ok(Opcode.JOIN, request, cohorts.Joined)
            self.native(number).heard.add(answer.session)
        await self.cluster.until(lambda: all(rule.assignee for rule in self.rules()))

    def native(self, number: int) -> GatedNode:
        native = self.cluster.natives[number]
        assert isinstance(native, GatedNode)
        return native

    @property
    def cohort(self) -> Cohort:
        [cohort] = self.cluster.leader.proposer.state.cohorts.values()
        return cohort

    def rules(self) -> list[Rule]:
        return [rule for number in self.cluster.nodes for rule in self.native(number).rules.values()]

    def rule(self, partition: int) -> Rule:
        [rule] = [rule for rule in self.rules() if rule.partition == partition]
        return rule

    def gate(self, partition: int) -> GatedNode:
        """The node that owns the gate of a partition."""
        topic = self.cluster.leader.proposer.state.topics[self.cohort.topic]
        log = heir(topic.layout.by_id(), PartitionId(partition))
        return self.native(topic.assignments[log].owner.node)

    async def split(self, partition: int, into: int = 3) -> list[int]:
        done = await self.cluster.apis[1]("POST", f"{PLACE}/split/{partition}", {"into": into})
        assert done.status == 200, done
        children = [child["partition"] for child in done.body["partitions"]]
        known = {*children, partition}
        await self.cluster.until(lambda: known <= {rule.partition for rule in self.rules()})
        return children

    def settle(self, partition: int, offset: int = ROWS) -> None:
        self.gate(partition).settle(self.cohort.cohort, partition, offset)

    def is_sought(self, partition: int) -> bool:
        return bool(self.rule(partition).flags & cohort_orders.SOUGHT)

    def marks(self) -> set[int]:
        marks = self.cluster.leader.proposer.state.drained_marks.get(self.cohort.cohort, ())
        return {mark.partition for mark in marks}


def with_world(root: Path, monkeypatch: Patch, work: Callable[[World], Awaitable[None]]) -> None:
    gated_node.install(monkeypatch)
    layout_engine.install(monkeypatch)

    async def whole(cluster: NodeCluster) -> None:
        world = World(cluster)
        await world.begin()
        await work(world)

    run(root, monkeypatch, whole)


def test_children_open_when_their_parent_is_drained_and_the_mark_follows(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(world: World) -> None:
        parent = world.rules()[0].partition
        children = await world.split(parent)
        assert all(world.rule(child).waits_for == [parent] for child in children)
        world.settle(parent, ROWS - 1)
        assert world.rule(parent).end == ROWS
        world.settle(parent)
        await world.cluster.until(lambda: not any(world.rule(child).waits_for for child in children))
        await world.cluster.until(lambda: world.marks() == {parent})
        generation = world.cohort.generation
        await world.cluster.until(lambda: world.cohort.generation > generation or not _has(world, parent))
        assert world.rule(children[0]).log == children[0]

    with_world(tmp_path, monkeypatch, work)


def _has(world: World, partition: int) -> bool:
    members = world.cluster.leader.proposer.state.cohort_members[world.cohort.cohort]
    return any(partition in member.slice for member in members.values())


def test_children_open_by_words_while_the_leader_hears_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    """CD5, F25."""
    monkeypatch.setattr(CohortLeader, "take_progress", lambda *_: None)

    async def work(world: World) -> None:
        parent = world.rules()[0].partition
        children = await world.split(parent)
        owners = {world.gate(child).settings["node"] for child in children}
        assert len(owners) > 1, "the parts are spread over the nodes"
        world.settle(parent)
        await world.cluster.until(lambda: not any(world.rule(child).waits_for for child in children))
        assert world.marks() == set()

    with_world(tmp_path, monkeypatch, work)


def test_a_depth_of_three_drains_level_by_level_and_empty_ones_by_themselves(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """P15."""

    async def work(world: World) -> None:
        parent = world.rules()[0].partition
        first, *_ = await world.split(parent, into=2)
        grandchildren = await world.split(first, into=2)
        world.settle(first)  # nobody may read it yet: it is not drained before its parent
        assert all(world.rule(child).waits_for == [first] for child in grandchildren)
        await world.cluster.until(lambda: world.rule(first).waits_for == [parent])
        world.settle(parent)
        await world.cluster.until(lambda: world.marks() == {parent, first})
        await world.cluster.until(lambda: not any(world.rule(child).waits_for for child in grandchildren))

    with_world(tmp_path, monkeypatch, work)


def test_a_seek_closes_relatives_until_all_of_them_have_begun(tmp_path: Path, monkeypatch: Patch) -> None:
    """CD6."""

    async def work(world: World) -> None:
        parent = world.rules()[0].partition
        children = await world.split(parent)
        known = [rule.partition for rule in world.rules()]
        world.settle(parent)
        await world.cluster.until(lambda: world.marks() == {parent})
        late = world.gate(children[0])
        late.begins = False
        for child in children:
            world.settle(child, 5)
        api = world.cluster.apis[1]
        seek = cohorts.CohortSeek(topic="t", cohort="etl", to="earliest")
        sought = await api.bench.ok(Opcode.COHORT_SEEK, seek, cohorts.CohortSought)
        await world.cluster.until(
            lambda: world.cohort.resetting != () and children[0] in world.cohort.resetting
        )
        await world.cluster.until(lambda: len(world.cohort.resetting) < len(world.rules()) - 1)
        assert world.marks() == set()
        assert world.is_sought(parent), "the barrier is up for the relatives of one that has not begun"
        late.begins = True
        late._begin()
        late.tell(("gates",))
        await world.cluster.until(lambda: world.cohort.resetting == ())
        await world.cluster.until(lambda: not any(map(world.is_sought, known)))
        assert world.cohort.incarnation == sought.incarnation

    with_world(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("planted", ["no words to children", "own words only"])
def test_a_planted_silence_leaves_children_closed(planted: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """Without the words the tests above would not end: here the leader's mark is missing as well."""
    monkeypatch.setattr(CohortLeader, "take_progress", lambda *_: None)
    if planted == "no words to children":
        monkeypatch.setattr(GateWords, "_note", lambda *_: None)
    else:

        async def nothing(*_: object) -> None:
            return None

        monkeypatch.setattr(GateWords, "_send", nothing)

    async def work(world: World) -> None:
        parent = world.rules()[0].partition
        children = await world.split(parent)
        world.settle(parent)
        with pytest.raises(TimeoutError):
            await _within(world, lambda: not any(world.rule(child).waits_for for child in children))

    with_world(tmp_path, monkeypatch, work)


async def _within(world: World, what: Callable[[], bool]) -> None:
    async with asyncio.timeout(3):
        await world.cluster.until(what)

"""Looks of the leader: who looks, what owners are asked, what is counted and told."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.layout.auto import AutoLayouts, loads_of_board
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.layout_messages import SketchOf
from ringfence.control.state_machines.layout.hot_keys import Sketch
from ringfence.control.state_machines.layout.plan import BUCKETS
from ringfence.control.state_machines.layout.policy import Why
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.rebalance.loads import (
    Load,
    LoadBoard,
    LoadReport,
    PartitionLoad,
    RowReport,
)
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import cluster, create, entry
from tests.fakes.reassignment_cluster import Metadata

MB = 1_000_000


class Leader:
    """A node that leads and looks when it is told to. Owners answer with `sketch`, or not at all."""

    def __init__(self) -> None:
        state, _ = apply_all(3)
        log: Any = Metadata(state, 12)
        self.log = log
        self.log.now_ms = lambda: 77
        [self.topic] = state.topics
        self.parts = sorted(state.topics[self.topic].assignments)
        self.values: dict[PartitionId, PartitionLoad] = {}
        self.sketch: Sketch | None = Sketch()
        self.asked: list[tuple[int, int]] = []
        self.told: list[dict[str, Any]] = []
        self.auto = AutoLayouts(
            self.log,
            lambda _, __: self.values,
            self.answer,
            lagging=self.lagging,
            on_decision=lambda name, values: self.told.append({"name": name, **values}),
        )
        self.now_ms = 0
        self.lagging_at = set[int]()

    def lagging(self, state: MetadataState) -> tuple[PartitionId, ...]:
        self.lagging_at.add(state.time_ms)
        return ()

    async def answer(self, node: NodeId, call: SketchOf) -> Sketch:
        self.asked.append((int(node), call.partition))
        if self.sketch is None:
            raise RequestRefused(Code.INTERNAL, "no answer")
        return self.sketch

    async def looks(self, seconds: float) -> int:
        """Changes that are begun in this time."""
        begun = len(self.log.state.transitions)
        for _ in range(round(seconds / 2)):
            self.now_ms += 2_000
            await self.auto.look(self.now_ms)
            await asyncio.sleep(0)
        return len(self.log.state.transitions) - begun


def apply_all(nodes: int) -> tuple[MetadataState, int]:
    state, at = replace(cluster(nodes), level=LAYOUT_LEVEL), 3 * nodes
    for command in (
        create(partitions=2, nodes=((1,), (2,))),
        SetConfig(values={"auto_split": 1, "policy_grace_s": 0}),
    ):
        at += 1
        state, _ = apply(state, entry(at, command))
    return state, at


def test_only_the_leader_of_a_cluster_of_the_level_looks_and_each_leader_begins_from_scratch() -> None:
    async def run() -> None:
        one = Leader()
        one.values = {one.parts[0]: PartitionLoad(90 * MB, 1)}
        one.log.replica.leads = False
        assert await one.looks(100) == 0
        assert not one.auto.leads
        one.log.replica.leads = True
        one.log.replica.applied.term = 0
        assert await one.looks(100) == 0, "it may lack entries"
        one.log.replica.applied.term = one.log.replica.term
        assert await one.looks(50) == 0
        assert (one.auto.leads, list(one.auto.said)) == (True, [one.topic])
        one.log.replica.term = one.log.replica.applied.term = 2
        assert await one.looks(58) == 0
        assert await one.looks(8) == 1
        one.log.state = replace(one.log.state, level=1)
        assert await one.looks(2) == 0
        assert (one.auto.leads, one.auto.said) == (False, {})
        await one.auto.close()

    asyncio.run(run())


def test_the_owner_is_asked_where_to_split_and_without_an_answer_it_is_the_middle() -> None:
    async def run() -> None:
        for sketch, cut in ((Sketch((0,) * 768 + (5,) * 256), 28_672), (Sketch(), 16_384), (None, 16_384)):
            one = Leader()
            one.sketch, one.values = sketch, {one.parts[0]: PartitionLoad(90 * MB, 1)}
            assert await one.looks(80) == 1
            [transition] = one.log.state.transitions.values()
            assert transition.children[1].slots.lo == cut
            assert {*one.asked} == {(1, one.parts[0])}
            assert len(one.asked) == (5 if sketch is None else 1), "until it answers, for ten seconds"
            await one.auto.close()
        assert len((0,) * 768 + (5,) * 256) == BUCKETS

    asyncio.run(run())


def test_actions_and_reasons_are_counted_and_told_once() -> None:
    async def run() -> None:
        one = Leader()
        one.values = {one.parts[0]: PartitionLoad(90 * MB, 1)}
        assert await one.looks(70) == 1
        assert one.auto.counts.actions == {"split": 1}
        assert [(told["action"], told["suppressed"]) for told in one.told] == [
            (None, "unclassified"),
            ("split", None),
            (None, "cooldown"),
        ]
        assert {told["name"] for told in one.told} == {"public/default/a"}
        before = dict(one.auto.counts.suppressed)
        await one.looks(20)
        assert one.auto.counts.suppressed == before, "a reason counts when it begins"

    asyncio.run(run())


def test_a_refused_proposal_is_counted_and_waits_for_the_cool_down() -> None:
    async def run() -> None:
        one = Leader()
        one.values = {one.parts[0]: PartitionLoad(90 * MB, 1)}
        true, tries = one.log.propose, []

        async def refuse(command: Any) -> Any:
            tries.append(one.now_ms)
            if len(tries) == 1:
                raise RequestRefused(Code.ALREADY_EXISTS, "overtaken")
            return await true(command)

        one.log.propose = refuse
        assert await one.looks(70) == 0
        assert one.auto.counts.suppressed[Why.REFUSED] == 1
        assert await one.looks(70) == 1
        assert tries[1] - tries[0] >= 60_000

    asyncio.run(run())


def test_loads_of_heartbeats_are_those_of_topics_with_automatic_changes() -> None:
    one, board = Leader(), LoadBoard()
    board.record(NodeId(1), LoadReport((Load(one.parts[0], 5, 1),)), 0, RowReport((7,)))
    loads = loads_of_board(board)
    assert loads(one.log.state, 0) == {one.parts[0]: PartitionLoad(5, 7)}, "node 2 has sent nothing"
    off = replace(one.log.state, config={})
    assert loads(off, 0) == {}


def test_readers_are_looked_at_with_the_time_that_an_entry_would_have() -> None:
    """In an idle log the state's time stands still: their partitions would be held for good."""

    async def run() -> None:
        one = Leader()
        assert one.log.state.time_ms < 77
        await one.looks(4)
        assert one.lagging_at == {77}
        one.log.state = replace(one.log.state, time_ms=99)
        await one.looks(4)
        assert one.lagging_at == {77, 99}

    asyncio.run(run())

"""A COMMIT of rows in a source of a layout change: asked again while it is held, told once it is sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.layout_commands import AbortLayout, CommitLayout, HoldLayout, PrepareLayout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState, canonical_bytes
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.transactions import staged_row_counts
from ringfence.control.runtime.transactions.requests import TransactionRequests
from ringfence.control.runtime.transactions.unpublished import UnpublishedEpochs
from ringfence.control.state_machines.layout import plan
from ringfence.native.cluster_messages import ScopeCommit, ScopeCommitted
from ringfence.native.wire import Code
from tests.fakes.committing_node import OTHER, TOKEN, TOPIC, CommittingNode


class SplittingNode(CommittingNode):
    """A split of the one partition, brought to its HOLD; `later` are done while somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.own(NodeId(1), self.epoch)
        self.state = replace(self.state, level=LAYOUT_LEVEL)
        topic = self.state.topics[TOPIC]
        prepared = plan.split(self.state, topic, self.partition)
        assert isinstance(prepared, PrepareLayout)
        self.change = self.must(prepared).change
        self.must(HoldLayout(change=self.change))
        self.own(OTHER, self.epoch)
        self.later: list[Callable[[], Any]] = []
        self.refusals: list[Refused] = []
        here: Any = SimpleNamespace(node=self.here)
        proposer: Any = self
        driver: Any = SimpleNamespace()
        self.requests = TransactionRequests(
            proposer, driver, here, self.checks, UnpublishedEpochs(Health(), self.here), lambda _: None
        )

    @property
    def applied(self) -> Any:
        return SimpleNamespace(index=self.index)

    async def until_applied(self, index: int) -> None:
        assert index == self.index + 1
        if not self.later:
            await asyncio.Event().wait()
        self.later.pop(0)()

    async def propose(self, command: Command) -> Any:
        result = self.do(self.refused_once(command))
        if isinstance(result, Refused):
            self.refusals.append(result)
            raise RequestRefused(result.code, result.message)
        return SimpleNamespace(result=result)

    def refused_once(self, command: Command) -> Command:
        return command

    def must(self, command: Command) -> Any:
        result = self.do(command)
        assert not isinstance(result, Refused), result
        return result

    def abort(self) -> None:
        self.must(AbortLayout(change=self.change, why="test"))
        self.epoch = self.state.topics[TOPIC].assignments[self.partition].epoch

    def seal(self) -> None:
        transition = self.state.transitions[self.change]
        epoch = self.state.changes[self.partition].epoch
        end = LogEnd(Epoch(epoch), 9, 8, 7)
        created = tuple(
            (child.partition, LogEnd(Epoch(self.change), 1, 0, 1)) for child in transition.children
        )
        self.own(NodeId(1), epoch)
        self.must(CommitLayout(change=self.change, ends=((self.partition, end),), created=created))

    def request(self) -> ScopeCommit:
        return ScopeCommit(
            scope_id=self.begun.scope,
            driver=self.begun.driver,
            epoch=1,
            tokens=[TOKEN],
            parts=[(TOPIC, self.partition, 5)],
        )

    def committed(self) -> Any:
        async def commit() -> Any:
            waits: Any = self.requests._watches
            waits.until_published = _published
            return await self.requests.commit(self.request())

        return asyncio.run(commit())


async def _published(*_: object) -> None:
    await asyncio.sleep(0)


def test_a_held_commit_is_asked_again_and_decided_once_the_source_opens() -> None:
    world = SplittingNode()

    def opened() -> None:
        world.abort()
        world.own(OTHER, world.epoch)
        world.answers = [world.counted(5)]

    world.later = [opened]
    assert world.committed() == ScopeCommitted()
    assert world.state.scopes[world.begun.scope].committed == 1


def test_a_held_commit_that_is_sealed_is_told_which_partitions_moved() -> None:
    world = SplittingNode()
    world.later = [world.seal]
    with pytest.raises(RequestRefused) as caught:
        world.committed()
    assert caught.value.code is Code.MOVED
    assert caught.value.details["partitions"] == [world.partition]
    assert world.asked == [], "no owner is asked about rows that nobody can publish"
    assert world.state.scopes[world.begun.scope].committed == 0


def test_a_commit_that_stays_held_ends_without_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_row_counts, "CHECK_S", 0.05)
    world = SplittingNode()
    before = canonical_bytes(world.state)
    with pytest.raises(RequestRefused) as caught:
        world.committed()
    assert caught.value.code is Code.DEADLINE
    assert "nothing was committed" in caught.value.message
    assert f"layout change {world.change}" in caught.value.message
    assert canonical_bytes(world.state) == before


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_hold_between_the_owners_answers_and_the_entry_is_asked_again(is_sealed: bool) -> None:
    """The owners have answered, then a split is prepared and held: the entry is refused."""

    class Overtaken(SplittingNode):
        held: MetadataState

        def refused_once(self, command: Command) -> Command:
            if not self.refusals:
                self.state = self.held
            return command

    world = Overtaken()
    world.held = world.state
    transition = world.state.transitions[world.change]
    world.must(AbortLayout(change=world.change, why="as if it had not begun yet"))
    world.epoch = world.state.topics[TOPIC].assignments[world.partition].epoch
    world.own(OTHER, world.epoch)
    world.answers = [world.counted(5)]
    assert transition.sources == (world.partition,)

    def opened() -> None:
        world.abort()
        world.own(OTHER, world.epoch)
        world.answers = [world.counted(5)]

    world.later = [world.seal if is_sealed else opened]
    if is_sealed:
        with pytest.raises(RequestRefused) as caught:
            world.committed()
        assert caught.value.code is Code.MOVED
        assert caught.value.details["partitions"] == [world.partition]
    else:
        assert world.committed() == ScopeCommitted()
    assert [refusal.code for refusal in world.refusals] == [Code.HELD]

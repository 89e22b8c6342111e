"""PRODUCER_OPEN of a name beside layout changes: it ends once each slot is covered, whatever the versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.ranges import SlotCover, SlotRange
from ringfence.control.model.results import ProducersOpened
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers import producers
from ringfence.control.runtime.handlers.producers import ProducerRequests
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.runtime.rpc import messages as calls
from ringfence.native import messages
from ringfence.native.wire import Code
from tests.fakes.layout_log import LayoutLog

NAME = "public/default/a"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No open ends by its deadline because the machine is busy; a test of the deadline sets a short one."""
    monkeypatch.setattr(producers, "OPEN_S", 600.0)


class Opening:
    """A node that opens a name in a cluster; `before` happens before the n-th raise, `refused` fail."""

    def __init__(self, partitions: int = 2) -> None:
        self.log = LayoutLog(3, partitions=partitions)
        self.raised: list[PartitionId] = []
        self.epochs: dict[PartitionId, int] = {}
        self.before: dict[int, Callable[[PartitionId], Any]] = {}
        self.waits: list[Callable[[], Any]] = []
        peers: Any = self
        proposer: Any = self
        self.here = NodeId(99)
        self.requests = ProducerRequests(proposer, SimpleNamespace(), peers)  # type: ignore[arg-type]

    # ---- of the proposer and of other nodes ----------------------------------------------------------

    @property
    def state(self) -> Any:
        return self.log.state

    @property
    def applied(self) -> Any:
        return SimpleNamespace(index=self.log.at)

    async def propose(self, command: Any) -> Applied:
        self.log.must(command)
        result: Any = SimpleNamespace()
        if type(command).__name__ == "OpenNamedProducer":
            named = self.state.producers[self.log.topic]["loader"]
            result = ProducersOpened(producer=named.producer, epoch=named.epoch)
        return Applied(self.log.at, result)

    async def read_barrier(self) -> None:
        await asyncio.sleep(0)

    async def until_applied(self, index: int) -> None:
        del index
        if not self.waits:
            await asyncio.Event().wait()
        self.waits.pop(0)()

    async def open_producer(self, node: NodeId, call: calls.OpenProducer) -> dict[str, Any]:
        del node
        await asyncio.sleep(0)
        partition = PartitionId(call.partition)
        hook = self.before.pop(len(self.raised), None)
        self.raised.append(partition)
        if hook is not None:
            hook(partition)
        change = self.state.changes.get(partition)
        is_held = change is not None and change.phase == "HELD"
        if self.now.seal(partition) is not None or is_held:
            raise RequestRefused(Code.INTERNAL, "held or sealed", retry_after_ms=1_000)
        self.epochs[partition] = call.epoch
        return {}

    # ---- short ways -----------------------------------------------------------------------------------

    @property
    def now(self) -> Topic:
        return self.log.now

    def commit_split(self, partition: PartitionId) -> None:
        """A whole split at once; children inherit what their source has."""
        part = self.now.layout.by_id()[partition]
        number = self.log.done(self.log.split(part), "opened")
        if part.partition in self.epochs:
            for child in self.log.state.transitions[number].children:
                self.epochs[child.partition] = self.epochs[part.partition]

    def opened(self) -> messages.ProducerOpened:
        body = messages.ProducerOpen(topic=NAME, name="loader")
        return asyncio.run(self.requests.open(body))

    def check(self, opened: messages.ProducerOpened) -> None:
        """Each partition that takes rows knows the epoch: no row of the predecessor gets through."""
        for part in self.log.active:
            assert self.epochs.get(part.partition) == opened.producer_epoch, f"{part.partition} lacks it"


def test_slots_are_covered_by_ranges_that_overlap() -> None:
    cover = SlotCover()
    assert not cover.has(SlotRange(0, 0))
    cover.add([SlotRange(5, 9), SlotRange(0, 3)])
    assert not cover.has(SlotRange(3, 5))
    cover.add([SlotRange(4, 4)])
    assert cover.has(SlotRange(0, 9))
    assert not cover.has(SlotRange(0, 10))
    cover.add([SlotRange(8, 20), SlotRange(30, 40)])
    assert cover.has(SlotRange(0, 20))
    assert not cover.has(SlotRange(21, 29))
    assert cover.has(SlotRange(30, 40))
    assert cover.missing(SlotRange(0, 20)) == []
    assert cover.missing(SlotRange(15, 50)) == [SlotRange(21, 29), SlotRange(41, 50)]
    assert cover.missing(SlotRange(22, 25)) == [SlotRange(22, 25)]


def test_a_split_after_the_raise_needs_no_raise_of_its_children() -> None:
    world = Opening()
    first = world.log.active[0].partition
    world.before = {1: lambda _: world.commit_split(first)}
    world.check(world.opened())
    assert len(world.raised) == 2


def test_a_split_before_the_raise_is_raised_in_its_children() -> None:
    world = Opening()
    world.before = {0: world.commit_split}
    opened = world.opened()
    world.check(opened)
    assert len(world.raised) == 4, "the sealed one, the other one, and two children"


def test_more_layout_changes_than_any_count_of_rounds_end_the_open() -> None:
    world = Opening(partitions=1)
    world.before = dict.fromkeys(range(12), world.commit_split)
    opened = world.opened()
    world.check(opened)
    assert world.now.layout.version > 8


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_held_partition_is_waited_for(is_aborted: bool) -> None:
    world = Opening()
    world.log.done(world.log.split(world.log.active[0]), "hold")

    def end() -> None:
        if is_aborted:
            world.log.must(world.log.abort())
        else:
            world.log.must(world.log.commit())
            world.log.must(world.log.opened())

    world.waits = [end]
    world.check(world.opened())


def test_a_partition_that_stays_held_ends_the_open_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "OPEN_S", 0.05)
    world = Opening()
    world.log.done(world.log.split(world.log.active[0]), "hold")
    with pytest.raises(RequestRefused) as caught:
        world.opened()
    assert "is not open" in caught.value.message
    assert caught.value.retry_after_ms


def test_below_the_level_a_refusal_ends_the_open_as_before() -> None:
    world = Opening()
    world.log.done(world.log.split(world.log.active[0]), "hold")
    world.log.state = replace(world.log.state, level=1)
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(
            world.requests._reach_all(world.now, "loader", producers._call_of(_drawn(), b"loader", 0))  # type: ignore[arg-type]
        )
    assert caught.value.code is Code.INTERNAL
    assert len(world.raised) == 2


def test_sealed_partitions_that_count_as_raised_are_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ProducerRequests._fence_predecessor

    async def open_once(self: Any, topic: Topic, partitions: Any, *more: Any) -> Any:
        reached, forgotten, faults = await original(self, topic, partitions, *more)
        sealed: list[Any] = [(part, {}) for part in partitions if part.partition in faults]
        return [*reached, *sealed], forgotten, {}

    monkeypatch.setattr(ProducerRequests, "_fence_predecessor", open_once)
    world = Opening()
    world.before = {0: world.commit_split}
    with pytest.raises(AssertionError, match="lacks it"):
        world.check(world.opened())


def _drawn() -> Any:
    return SimpleNamespace(producer=1, epoch=77)

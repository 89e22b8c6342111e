"""Bugs planted into the runtime of layout changes, and the run that finds each.

The same runs end well without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.control.model.layout_changes import Child, Transition
from ringfence.control.model.layout_commands import AbortLayout
from ringfence.control.runtime.layout import participant as participants
from ringfence.control.runtime.layout.inheritance import Inheritance
from ringfence.control.runtime.layout.order_sender import LayoutOrderSender
from ringfence.control.runtime.layout.participant import LayoutParticipant
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.state_machines.layout.messages import CreateChild
from tests.fakes.layout_cluster import Engine, LayoutCluster, run

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def nothing(_: Patch) -> None:
    """Without a bug the run ends well."""


# ---- a created child is durable ----------------------------------------------------------------------


def work_is_not_cancelled(patch: Patch) -> None:
    """No bug: the check in the turn of the call is enough."""
    patch.setattr(LayoutParticipant, "apply", lambda *_: None)


def create_unchecked(patch: Patch) -> None:
    work_is_not_cancelled(patch)
    patch.setattr(LayoutParticipant, "_permit", lambda *_: lambda: True)


@pytest.mark.parametrize("plant", [nothing, work_is_not_cancelled, create_unchecked])
@pytest.mark.parametrize("name", ["open", "follow"])
def test_an_abort_while_an_order_waits_for_the_engine_leaves_no_orphan(
    plant: Plant, name: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)

    async def work(world: LayoutCluster) -> None:
        for node in world.nodes.values():
            node.driver.gates[name] = asyncio.Event()
        number = await world.split()
        await world.until(lambda: len(world.sent) >= 3)
        await asyncio.sleep(0.05)  # the orders have been judged, and wait
        await world.log.propose(AbortLayout(change=number, why="test"))
        await world.until(lambda: not world.state.leftovers)
        for node in world.nodes.values():
            node.driver.gates.pop(name).set()
        await asyncio.sleep(0.05)
        world.check()

    expect(plant, "which nothing names", LayoutCluster(3, replication=3), work)


def test_a_node_that_starts_executes_no_order_before_its_own_start_is_applied(monkeypatch: Patch) -> None:
    """Its log may be of a time when the change was open, and it has confirmed the drop of a child since."""

    async def work(world: LayoutCluster) -> None:
        world.loss = 1.0
        number = await world.split()
        transition = world.state.transitions[number]
        place = transition.owners[0]
        order = CreateChild(to=place, topic=world.topic, change=transition.change)
        gate = StartGate()
        peers: Any = SimpleNamespace(here=place.node)
        node = world.nodes[place.node]
        sender = LayoutOrderSender(peers, node.participant, node.answers, gate)
        with pytest.raises(RequestRefused):
            await sender.send(1, order)
        children = {child.partition for child in transition.children}
        assert not {partition for _, partition in node.driver.node.parts} & children
        gate.open()
        await sender.send(1, order)
        assert {partition for _, partition in node.driver.node.parts} & children

    run(LayoutCluster(1), work)


# ---- creation ----------------------------------------------------------------------------------------


def create_without_set_peer(patch: Patch) -> None:
    async def locate(*_: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(LayoutParticipant, "_locate", locate)


@pytest.mark.parametrize("plant", [nothing, create_without_set_peer])
def test_children_are_created_on_nodes_that_share_nothing_yet(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    async def work(world: LayoutCluster) -> None:
        await world.split()
        await world.until_over()
        assert world.now.layout.version == 2, "aborted"
        world.check()

    expect(plant, "aborted", LayoutCluster(6, replication=3, layout_timeout_ms=1_000), work)


def owned_children_first(patch: Patch) -> None:
    original = LayoutParticipant._parts

    def parts(self: Any, state: Any, transition: Transition, order: Any) -> Any:
        found = original(self, state, transition, order)
        owners = {child.partition: child.replicas[0] for child in transition.children}
        return dict(sorted(found.items(), key=lambda part: owners.get(part[0]) != self._here))

    patch.setattr(LayoutParticipant, "_parts", parts)


@pytest.mark.parametrize("plant", [nothing, owned_children_first])
def test_owners_do_not_wait_for_followers_that_wait_for_a_place(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(participants, "CALLS_MAX", 2)

    async def work(world: LayoutCluster) -> None:
        await world.repartition(12)
        await world.until_over()
        assert world.now.layout.version == 2, "aborted"
        world.check()

    expect(plant, "aborted", LayoutCluster(3, replication=3, layout_timeout_ms=2_000), work)


# ---- inheritance -------------------------------------------------------------------------------------


def rest_since_the_last_page(patch: Patch) -> None:
    original = Inheritance._copy_base_table

    async def copy(self: Any, transition: Transition, child: Child, heritage: Any, permit: Any) -> None:
        await original(self, transition, child, heritage, permit)
        key = transition.change, child.partition, heritage.source
        if key in self._base_records:
            page = await self._page(transition, child, heritage, since=0, after=0)
            self._base_records[key] = page.records

    patch.setattr(Inheritance, "_copy_base_table", copy)


def rest_left_out(patch: Patch) -> None:
    async def copy(self: Any, transition: Any, child: Any, heritage: Any, end: Any, permit: Any) -> None:
        page = await self._page(transition, child, heritage, since=end.records + 1, after=0)
        await self._append(transition, child, heritage, page, is_final=True, permit=permit)

    patch.setattr(Inheritance, "_copy_rest_table", copy)


def one_source_only(patch: Patch) -> None:
    original = Inheritance._copy_rest_table

    async def copy(self: Any, transition: Any, child: Any, heritage: Any, end: Any, permit: Any) -> None:
        if heritage.gates != ():
            await original(self, transition, child, heritage, end, permit)

    patch.setattr(Inheritance, "_copy_rest_table", copy)


def last_page_first(patch: Patch) -> None:
    original = Inheritance._append

    async def append(self: Any, *arguments: Any, is_final: bool, permit: Any) -> None:
        await original(self, *arguments, is_final=True, permit=permit)

    patch.setattr(Inheritance, "_append", append)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (nothing, ""),
        (rest_since_the_last_page, "are unknown"),
        (rest_left_out, "are unknown"),
        (one_source_only, "^$"),
        (last_page_first, "gates after the last page"),
    ],
)
def test_a_child_inherits_what_is_written_while_its_base_is_copied(
    plant: Plant, words: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)

    async def work(world: LayoutCluster) -> None:
        for row in range(100, 140):
            assert world.append(row)
        for part in world.active:
            owner = world.natives.parts[1][world.topic, part.partition]
            owner.gates[part.partition] = b"gates of its readers"
        pages: list[int] = []

        def between_pages(engine: Any, source: int, after: int) -> None:
            """Producers with ids that this copy has passed already."""
            if after and len(pages) < 3 and world.state.transitions[number].phase != "HELD":
                pages.append(after)
                del engine
                for row in (len(pages), 50 + len(pages)):
                    world.natives.append(1, (world.topic, source), row)

        monkeypatch.setattr(Engine, "on_table_out", between_pages)
        number = await world.repartition(2)
        await world.until_over()
        aborts = [command.why for command in world.log.commands if isinstance(command, AbortLayout)]
        assert aborts == []
        assert world.now.layout.version == 2
        assert len(pages) == 3
        heir = world.natives.parts[1][world.topic, world.active[0].partition]
        assert len(heir.gates) == 2, "it has the lowest slot of two of the sources"
        world.check()

    expect(plant, words, LayoutCluster(1, partitions=3), work)


def expect(plant: Plant, words: str, world: LayoutCluster, work: Any) -> None:
    """The run ends well without a bug, and fails with these words with one."""
    if plant in {nothing, work_is_not_cancelled}:
        run(world, work)
        return
    with pytest.raises((AssertionError, TimeoutError), match=words):
        run(world, work)

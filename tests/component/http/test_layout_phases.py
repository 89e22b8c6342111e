"""Requests of operators in each phase of a layout change, at whole nodes over fake engines.

What the state machine refuses is tested beside it (test_layout_checks_operators.py). Here the same requests
come over HTTP and by commands, at a node that does not lead, and not a byte of the metadata changes (I15).
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.commands import RaiseLevel
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.state import canonical_bytes
from ringfence.control.state_machines.layout.messages import LookLayout
from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC, Answer
from tests.fakes.node_cluster import NodeCluster, run

Patch = pytest.MonkeyPatch
PHASES = ["PREPARED", "HELD", "COMMITTED", "OPENED"]
BEFORE_COMMIT = PHASES[:2]


class Scene:
    """A split that stays in one phase; requests go to a node that does not lead."""

    def __init__(self, cluster: NodeCluster) -> None:
        self.cluster = cluster
        self.number = self.topic = self.source = self.other = 0
        self.children: list[int] = []
        self.may_look = asyncio.Event()

    @property
    def state(self) -> Any:
        return self.cluster.leader.proposer.state

    @property
    def phase(self) -> str:
        return str(self.state.transitions[self.number].phase)

    @property
    def owner(self) -> int:
        return int(self.state.topics[self.topic].assignments[self.source].owner.node)

    def hold(self, *orders: str) -> None:
        for native in self.cluster.natives.values():
            native.holds |= {*orders}

    def release(self) -> None:
        self.may_look.set()
        for native in self.cluster.natives.values():
            native.holds.clear()
            native.release()

    async def until(self, phase: str) -> None:
        await self.cluster.until(lambda: self.number in self.state.transitions and self.phase == phase)

    async def begin(self, phase: str) -> None:
        cluster = self.cluster
        proposer = cluster.leader.proposer
        if proposer.state.level < LAYOUT_LEVEL:
            nodes = tuple(sorted(proposer.state.nodes))
            await proposer.propose(RaiseLevel(level=LAYOUT_LEVEL, nodes=nodes))
        # No change and no node ends because the machine is busy.
        limits = {"hold_timeout_ms": 600_000, "layout_timeout_ms": 600_000, "failure_ms": 600_000}
        await self.ok("PATCH", "/admin/config", {"values": limits}, if_match="*")
        self.topic = (await self.ok("POST", "/admin/topics", TOPIC)).body["topic"]
        parts = (await self.ok("GET", f"{PLACE}/layout?linearizable=true")).body["partitions"]
        self.source, self.other = parts[0]["partition"], parts[-1]["partition"]
        for native in cluster.natives.values():
            native.floors[self.topic] = 1  # a client holds an old table: OPENED lasts
        self.hold("open" if phase == "PREPARED" else "hold")
        begun = await self.ask("POST", f"{PLACE}/split/{self.source}", {"wait_s": 0})
        assert begun.status == 202, begun
        self.number = begun.body["change"]
        await self.until(phase if phase in BEFORE_COMMIT else "HELD")
        self.children = [child.partition for child in self.state.transitions[self.number].children]
        if phase in BEFORE_COMMIT:
            return
        if phase == "COMMITTED":
            self.ask_no_children()
        self.end_hold()
        await self.until(phase)

    def ask_no_children(self) -> None:
        """The leader's question whether children take rows gets no answer until `may_look` is set."""
        leader: Any = self.cluster.leader.parts.layouts.leader
        true = leader._send

        async def send(term: int, order: Any) -> Any:
            if isinstance(order, LookLayout) and order.is_committed:
                await self.may_look.wait()
            return await true(term, order)

        leader._send = send

    def end_hold(self) -> None:
        """The sources are fenced, and end at their 100 rows."""
        end = {"epoch": 0, "records": 1, "end_offset": 100, "chain": 7, "stopped_us": 1_000}
        for native in self.cluster.natives.values():
            native.holds.clear()
            for number in native.held:
                native.tell(("order", number, None, end))
            native.held.clear()

    async def ask(self, method: str, path: str, given: Any = None, **headers: str) -> Answer:
        leader = int(self.cluster.leader.here)
        other = next(api for number, api in self.cluster.apis.items() if number != leader)
        return await other(method, path, given, **headers)

    async def ok(self, method: str, path: str, given: Any = None, **headers: str) -> Answer:
        answer = await self.ask(method, path, given, **headers)
        assert answer.status < 300, (path, answer)
        return answer

    async def refused(self, method: str, path: str, given: Any, *statuses: int) -> None:
        before = canonical_bytes(self.state)
        answer = await self.ask(method, path, given)
        assert answer.status in statuses, (path, answer)
        assert answer.slug
        assert canonical_bytes(self.state) == before, f"I15: {path}"

    async def command_refused(self, *arguments: str) -> None:
        before = canonical_bytes(self.state)
        http = next(iter(self.cluster.apis.values())).address
        code = await asyncio.to_thread(run_command, [*arguments, "--http", http])
        assert code in {Exit.REFUSED, Exit.USAGE}, (arguments, code)
        assert canonical_bytes(self.state) == before, f"I15: {arguments}"


def in_phase(root: Path, monkeypatch: Patch, phase: str, work: Callable[[Scene], Awaitable[None]]) -> None:
    layout_engine.install(monkeypatch)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    async def whole(cluster: NodeCluster) -> None:
        scene = Scene(cluster)
        await scene.begin(phase)
        await work(scene)
        scene.release()

    run(root, monkeypatch, whole)


@pytest.mark.parametrize("phase", PHASES)
def test_what_cannot_be_asked_during_a_change_is_refused_and_changes_no_byte(
    phase: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(scene: Scene) -> None:
        owner, source = scene.owner, scene.source
        free = next(number for number in scene.cluster.apis if number != owner)
        for partition in (source, *scene.children):
            path = f"/admin/partitions/{partition}/force-owner"
            body = {"change": scene.number, "owner": free, "accepts": "all rows"}
            await scene.refused("POST", path, body, 404, 409, 422)
            force = ("partition", "force-owner", str(partition), "--owner", str(free), "--yes")
            await scene.command_refused(*force)
        await scene.refused("DELETE", f"/admin/nodes/{owner}", None, 409, 422)
        await scene.command_refused("node", "remove", str(owner))
        again = {"wait_s": 1}
        await scene.refused("POST", f"{PLACE}/split/{source}", again, 409)
        await scene.refused("POST", f"{PLACE}/merge/{source}/{scene.other}", again, 409, 422)
        if phase in BEFORE_COMMIT:
            await scene.refused("POST", f"{PLACE}/repartition", {"partitions": 9}, 409)
            for child in scene.children:
                body = {"partition": child, "before_offset": 1}
                await scene.refused("POST", f"{PLACE}/truncate", body, 404)
        else:
            await scene.refused("POST", f"/admin/transitions/{scene.number}/abort", {}, 409)
        assert scene.phase == phase, "none of it has moved the change"
        # A run of moves takes the source, and waits until the change has left it.
        move = {"action": "move", "moves": [{"partition": source, "nodes": [free]}]}
        await scene.ok("POST", "/admin/rebalance", move)
        if phase in BEFORE_COMMIT:
            await asyncio.sleep(0.5)
            assert scene.state.changes[source].kind == "SEAL"
            assert [one.attempts for one in scene.state.moves.values()] == [0]
        await scene.ok("POST", "/admin/rebalance/cancel")

    in_phase(tmp_path, monkeypatch, phase, work)


@pytest.mark.parametrize("phase", PHASES)
def test_a_drain_and_a_truncation_leave_a_change_as_it_is(
    phase: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(scene: Scene) -> None:
        await scene.ok("POST", f"{PLACE}/truncate", {"partition": scene.source, "before_offset": 5})
        assert scene.state.topics[scene.topic].starts[scene.source] == 5
        await scene.ok("PATCH", "/admin/config", {"values": {"layout_changes_enabled": 0}}, if_match="*")
        await scene.refused("POST", f"{PLACE}/split/{scene.other}", {}, 409)
        assert scene.phase == phase
        scene.end_hold()
        scene.release()
        for native in scene.cluster.natives.values():
            native.floors[scene.topic] = 1 << 40  # clients have the newest table
        await scene.cluster.until(lambda: not scene.state.transitions)
        layout = scene.state.topics[scene.topic].layout
        assert {part.partition for part in layout.active()} >= {*scene.children}, "it goes on when it is off"

    in_phase(tmp_path, monkeypatch, phase, work)


@pytest.mark.parametrize("phase", PHASES)
def test_a_topic_that_is_deleted_in_any_phase_leaves_nothing(
    phase: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(scene: Scene) -> None:
        deleted = await scene.ask("DELETE", PLACE)
        assert deleted.status in {200, 202}, deleted
        scene.release()
        await scene.cluster.until(lambda: not scene.state.tombstones)
        assert not scene.state.transitions
        assert not scene.state.changes
        for native in scene.cluster.natives.values():
            assert not native.hosted, "parents and children are dropped everywhere"

    in_phase(tmp_path, monkeypatch, phase, work)

"""`ringfence node drain` through either door: what it waits for is told at once, asked again it is joined."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import FailNode
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from tests.fakes.admin_api import Api, joined, served, until_run
from tests.fakes.metadata_commands import create
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch
DOORS = pytest.mark.parametrize("door", ["http", "control"])


class Desk:
    """A cluster of two, one of them FAILED, with two partitions; and the command line."""

    def __init__(self, api: Api, capsys: pytest.CaptureFixture[str], door: tuple[str, str]) -> None:
        self.api, self._capsys, self._door = api, capsys, door
        self.failed = 0

    async def prepare(self) -> None:
        proposer = self.api.bench.node.proposer
        node = NodeId(await joined(self.api, 7))
        await proposer.propose(RingConsensus.propose_add(proposer.state, node))
        await proposer.propose(create(partitions=2, nodes=((int(node),), (int(node),))))
        if proposer.state.nodes[node].takes_partitions:  # nobody beats for it, so the node may be quicker
            await proposer.propose(FailNode(node=node, changed=proposer.state.nodes[node].changed))
        self.failed = int(node)

    async def cli(self, *arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run_command, [*arguments, *self._door])
        return code, self._capsys.readouterr().out

    async def drain(self, *options: str) -> tuple[int, str]:
        return await self.cli("node", "drain", str(self.failed), *options)


def told(said: str) -> Any:
    """The line of JSON among those of the node's log, which runs in this process."""
    [line] = [line for line in said.splitlines() if line.startswith("{")]
    return json.loads(line)


def with_desk(
    root: Path,
    monkeypatch: Patch,
    capsys: pytest.CaptureFixture[str],
    door: str,
    work: Callable[[Desk], Awaitable[None]],
) -> None:
    control = f"tcp://127.0.0.1:{free_port()}"

    async def whole(api: Api) -> None:
        desk = Desk(api, capsys, (f"--{door}", api.address if door == "http" else control))
        await desk.prepare()
        await work(desk)

    served(root, monkeypatch, whole, control=control)


@DOORS
def test_a_drain_of_a_failed_node_says_at_once_what_it_waits_for(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], door: str
) -> None:
    async def work(desk: Desk) -> None:
        waits = f"for node {desk.failed}, which is FAILED"
        code, said = await desk.drain()
        assert code == Exit.OK
        [line] = [line for line in said.splitlines() if line.startswith("waiting for: ")]
        assert line.count(waits) == 2
        code, said = await desk.drain("--json")
        assert (code, [text[-len(waits) :] for text in told(said)["waits"]]) == (Exit.OK, [waits, waits])

    with_desk(tmp_path, monkeypatch, capsys, door, work)


@DOORS
def test_a_drain_that_is_under_way_is_joined_and_waited_for(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], door: str
) -> None:
    async def work(desk: Desk) -> None:
        code, said = await desk.drain("--json")
        first = told(said)["run"]
        assert (await desk.api.get("/admin/rebalance"))["run"] == first
        for _ in range(2):
            code, said = await desk.drain("--json")
            assert (code, told(said)["run"]) == (Exit.OK, first)
        assert (await desk.cli("rebalance", "pause"))[0] == Exit.OK
        assert told((await desk.drain("--json"))[1])["run"] == first
        # Another node's is not joined, and nothing but a drain is.
        assert (await desk.cli("node", "drain", "1"))[0] == Exit.REFUSED
        assert (await desk.cli("rebalance", "start", "balance"))[0] == Exit.REFUSED
        waiting = asyncio.ensure_future(desk.drain("--wait", "--json"))
        await asyncio.sleep(0.6)
        assert not waiting.done()
        assert (await desk.api("POST", f"/admin/nodes/{desk.failed}/undrain")).status == 200
        code, said = await waiting
        assert (code, told(said)["run"]) == (Exit.DEGRADED, first)

    with_desk(tmp_path, monkeypatch, capsys, door, work)


def test_who_joins_a_drain_is_held_to_the_condition(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(desk: Desk) -> None:
        path = f"/admin/nodes/{desk.failed}"
        begun = await desk.api("POST", f"{path}/drain")
        assert begun.status == 200
        tag = (await desk.api("GET", path)).headers["etag"]
        again = await desk.api("POST", f"{path}/drain", if_match=tag)
        assert (again.status, again.body["index"]) == (200, begun.body["index"])
        assert (await desk.api("POST", f"{path}/drain", if_match='"1-1"')).status == 412

    with_desk(tmp_path, monkeypatch, capsys, "http", work)


def test_behind_an_undrain_nothing_is_told_as_to_be_moved(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.drain())[0] == Exit.OK
        shown = await until_run(desk.api, "RUNNING")
        assert (shown["held"], len(shown["waits"]), shown["counts"]) == (2, 2, {"PENDING": 2})
        assert (await desk.cli("node", "undrain", str(desk.failed)))[0] == Exit.OK
        shown = await until_run(desk.api, "IDLE")
        assert (shown["outcome"], shown["held"], shown["waits"]) == ("CANCELLED", 0, [])
        assert [move["state"] for move in shown["moves"]] == ["CANCELLED"] * 2
        [ended] = (await desk.api.get("/admin/rebalance/history"))["runs"]
        assert shown["counts"] == ended["counts"] == {"CANCELLED": 2}
        _, said = await desk.cli("rebalance", "status")
        for words in ("still has", "waiting for", "PENDING"):
            assert words not in said

    with_desk(tmp_path, monkeypatch, capsys, "http", work)

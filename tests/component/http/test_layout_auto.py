"""Automatic splits and merges of a whole node over a fake native one: set, explained, told, counted."""

from __future__ import annotations

import asyncio
import io
import json
import re
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.state import canonical_bytes
from ringfence.control.runtime.layout import auto
from ringfence.control.runtime.layout.auto import AutoLayouts
from ringfence.control.runtime.layout.engine import NativeEngine
from ringfence.control.runtime.layout.sources import SourceAnswers
from ringfence.control.state_machines.layout.plan import BUCKETS
from ringfence.control.state_machines.rebalance.loads import PartitionLoad
from ringfence.native.layout_messages import LayoutChange, LayoutChanged
from ringfence.native.wire import Code, Opcode
from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
# Lines of the node's own log, which is in the same process.
NODE_LINE = re.compile(r"\d{4}-\d\d-\d\d ")
Cli = Callable[..., Awaitable[tuple[int, str]]]
MB = 1_000_000


def with_node(
    root: Path, monkeypatch: Patch, capsys: Capture, work: Callable[[Api, Cli], Awaitable[None]]
) -> None:
    """A node with a topic of three partitions; commands go over HTTP, or to the control address."""
    layout_engine.install(monkeypatch)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    # The tests look themselves, at times of their own.
    monkeypatch.setattr(auto, "LOOK_S", 3_600.0)
    control = f"tcp://127.0.0.1:{free_port()}"

    async def whole(api: Api) -> None:
        async def cli(*arguments: str, by_control: bool = False) -> tuple[int, str]:
            door = ("--control", control) if by_control else ("--http", api.address)
            code = await asyncio.to_thread(run_command, [*arguments, *door])
            said = capsys.readouterr()
            lines = (said.out + said.err).splitlines(keepends=True)
            return code, "".join(line for line in lines if not NODE_LINE.match(line))

        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        await work(api, cli)

    served(root, monkeypatch, whole, control=control)


async def active(api: Api) -> list[PartitionId]:
    parts = (await api.get(f"{PLACE}/layout"))["partitions"]
    found = sorted((part for part in parts if part["state"] == "ACTIVE"), key=lambda part: int(part["lo"]))
    return [PartitionId(part["partition"]) for part in found]


class Loads:
    """Loads in place of those of heartbeats, and looks at them at chosen times."""

    def __init__(self, api: Api) -> None:
        self.auto: AutoLayouts = api.bench.node.parts.layouts.auto
        self.auto._loads = lambda _, __: self.values
        self.values: dict[PartitionId, PartitionLoad] = {}
        self.now_ms = 1_000

    async def look(self, seconds: float) -> None:
        for _ in range(round(seconds / 2)):
            self.now_ms += 2_000
            await self.auto.look(self.now_ms)
            await asyncio.sleep(0)


def test_a_split_is_decided_proposed_told_counted_and_explained(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        parts = await active(api)
        code, said = await cli("topic", "explain", "t")
        assert (code, "automatic splits and merges are off" in said) == (0, True), said
        code, said = await cli("config", "set", "auto_split=1", "policy_grace_s=0", "auto_window_s=10")
        assert code == 0, said
        loads, listener = Loads(api), api.bench.node.cluster_events.listen(None)
        assert listener is not None
        loads.values = {part: PartitionLoad(MB, 1) for part in parts}
        await loads.look(4)
        explained = await api.get(f"{PLACE}/explain")
        assert (explained["split"], explained["merge"], explained["action"]) == (True, False, None)
        assert explained["why"] == "none of 3 partitions is hot; loads of 3 are known"
        loads.values[parts[1]] = PartitionLoad(80 * MB, 1)
        await loads.look(8)
        explained = await api.get(f"{PLACE}/explain")
        [candidate] = explained["candidates"]
        assert (candidate["partitions"], candidate["suppressed"]) == ([parts[1]], "window")
        await loads.look(80)
        for _ in range(500):
            if len(await active(api)) == 4:
                break
            await asyncio.sleep(0.01)
        assert len(await active(api)) == 4
        kinds = []
        while not listener.waiting.empty():
            event = listener.waiting.get_nowait()
            if event.kind == "layout policy":
                kinds.append((event.values["action"], event.values["suppressed"], event.values["name"]))
        name = "public/default/t"
        assert kinds[:3] == [(None, "unclassified", name), (None, "cooldown", name), ("split", None, name)]
        metrics = (await api("GET", "/metrics")).text
        assert 'ringfence_auto_actions{action="split"} 1.0' in metrics
        assert 'ringfence_auto_suppressed{why="cooldown"}' in metrics
        assert 'ringfence_transition_phase_seconds_count{phase="prepared"} 1.0' in metrics
        ended = (await api.get("/admin/transitions"))["transitions"]
        assert [one["why"][:8] for one in ended] in ([], ["policy: "])

    with_node(tmp_path, monkeypatch, capsys, work)


def test_a_topic_is_set_over_http_commands_the_control_address_and_the_data_address(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        state = api.bench.node.proposer

        def own() -> dict[str, str]:
            [topic] = state.state.topics.values()
            return {name.removeprefix("ringfence.auto."): text for name, text in topic.properties.items()}

        set_ = {"values": {"auto_split": 1, "auto_partitions_max": 9}}
        assert (await api("PATCH", f"{PLACE}/auto", set_)).status == 200
        assert own() == {"split": "1", "partitions_max": "9"}
        code, said = await cli("topic", "auto", "t", "split=0", "merge=1")
        assert (code, own()) == (0, {"split": "0", "merge": "1", "partitions_max": "9"}), said
        code, said = await cli("topic", "auto", "t", "split=default", "partitions_min=2", by_control=True)
        assert (code, own()) == (0, {"merge": "1", "partitions_max": "9", "partitions_min": "2"}), said
        request = LayoutChange(topic="t", action="auto", auto={"auto_merge": None, "auto_split": 1})
        await api.bench.ok(Opcode.LAYOUT_CHANGE, request, LayoutChanged)
        assert own() == {"split": "1", "partitions_max": "9", "partitions_min": "2"}
        code, said = await cli("topic", "explain", "t", "--json", by_control=True)
        assert json.loads(said)["settings"]["partitions_max"] == 9
        before = canonical_bytes(state.state)
        wrong = {"auto_split": 2, "auto_window_s": 1, "auto_partitions_max": 0}
        for name, value in wrong.items():
            bad: dict[str, int | None] = {name: value}
            answer = await api("PATCH", f"{PLACE}/auto", {"values": bad})
            assert (answer.status, answer.slug != "") == (422, True), answer
            refused = LayoutChange(topic="t", action="auto", auto=bad)
            assert await api.bench.refused(Opcode.LAYOUT_CHANGE, refused) == Code.INVALID_ARGUMENT
            for by_control in (False, True):
                code, said = await cli("topic", "auto", "t", f"{name}={value}", by_control=by_control)
                # The command knows the names of a topic's settings itself.
                assert code == (Exit.USAGE if name == "auto_window_s" else Exit.REFUSED), said
        bodies: list[Any] = [
            {},
            {"values": {}},
            {"values": {"auto_split": -1}},
            {"values": {"auto_split": "1"}},
        ]
        for body in bodies:
            assert (await api("PATCH", f"{PLACE}/auto", body)).status == 422
        assert (await api("PATCH", f"{PLACE[:-1]}x/auto", set_)).status == 404
        assert (await cli("topic", "auto", "t", "split=yes"))[0] == Exit.USAGE
        code, said = await cli("topic", "auto", "t", "spilt=1")
        assert (code, "no setting is named 'spilt'; they are split, merge" in said) == (Exit.USAGE, True), (
            said
        )
        assert canonical_bytes(state.state) == before

    with_node(tmp_path, monkeypatch, capsys, work)


def test_a_split_without_slots_takes_place_where_the_owners_sketch_has_half_of_the_load(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        first, second, third = await active(api)
        weights = [0] * (BUCKETS // 2) + [9] * (BUCKETS // 2)
        native = api.bench.native
        next(c for (_, part), c in native.hosted.items() if part == first)["sketch"] = struct.pack(
            f"<{BUCKETS}I", *weights
        )
        done = await api("POST", f"{PLACE}/split/{first}", {})
        ranges = [(part["lo"], part["hi"]) for part in done.body["partitions"]]
        assert ranges == [(0, 16_383), (16_384, 21_844)]
        code, said = await cli("topic", "split", "t", str(second), "--into", "3")
        assert (code, "3 new partitions" in said) == (0, True), said
        sizes = [part["hi"] - part["lo"] for part in (await api.get(f"{PLACE}/layout"))["partitions"][5:8]]
        assert max(sizes) - min(sizes) <= 1, "without a sketch the parts are equal"

        async def silent(*_: Any) -> Any:
            raise AssertionError("only a split without slots asks the owner")

        monkeypatch.setattr(SourceAnswers, "sketch_of", silent)
        assert (await api("POST", f"{PLACE}/split/{third}", {"at": [50_000]})).status == 200

    with_node(tmp_path, monkeypatch, capsys, work)


def test_the_gap_and_the_phases_of_a_change_are_shown(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        first, *_ = await active(api)
        node = api.bench.node
        true = NativeEngine.hold

        async def hold(*given: Any) -> Any:
            end, _ = await true(*given)
            return end, node.proposer.now_ms() * 1_000

        monkeypatch.setattr(NativeEngine, "hold", hold)
        true_figures = layout_engine.FakeEngine.figures

        def figures(engine: Any, places: Any) -> Any:
            acknowledged = node.proposer.now_ms() * 1_000 + 7_000
            known = true_figures(engine, places)
            return {place: one._replace(first_acknowledged_us=acknowledged) for place, one in known.items()}

        monkeypatch.setattr(layout_engine.FakeEngine, "figures", figures)
        done = await api("POST", f"{PLACE}/split/{first}", {})
        assert 7_000 <= done.body["gap_us"] < 5_000_000, done.body
        assert {"PREPARED", "HELD"} <= done.body["phases_ms"].keys()
        number = str((await active(api))[0])
        code, said = await cli("topic", "split", "t", number, by_control=True)
        assert (code, "gap: " in said, "phases: PREPARED " in said) == (0, True, True), said
        for _ in range(500):
            shown = await api.get("/admin/transitions")
            if not shown["transitions"]:
                break
            await node.proposer.propose(SetConfig(values={"repartition_adoption_timeout_ms": 0}))
            await asyncio.sleep(0.01)
        code, said = await cli("topic", "transitions", "t", "--ended", "--json")
        ended = [json.loads(line) for line in said.splitlines()]
        assert [one["result"] for one in ended] == ["finalized"] * 2, said
        assert all(one["gap_us"] >= 7_000 for one in ended)
        code, said = await cli("topic", "transitions", "--ended", by_control=True)
        assert (code, said.count("finalized")) == (0, 2), said
        metrics = (await api("GET", "/metrics")).text
        assert "ringfence_transition_gap_seconds_count 2.0" in metrics
        assert 'ringfence_transition_gap_seconds_bucket{le="+Inf"} 2.0' in metrics

    with_node(tmp_path, monkeypatch, capsys, work)

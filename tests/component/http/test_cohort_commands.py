"""The commands about cohorts over a whole node with a gated native side: output, exit codes, refusals."""

from __future__ import annotations

import asyncio
import io
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from ringfence.control.cli import cohort as command
from ringfence.control.cli.cohort_api import moment_of, read_positions
from ringfence.control.cli.cohort_tables import age_text, note_of, partition_note
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.native.cohort_messages import Join, Joined
from ringfence.native.wire import Opcode
from tests.fakes import gated_node
from tests.fakes.admin_api import TOPIC, Api, served
from tests.fakes.gated_node import GatedNode
from tests.fakes.node_bench import soon

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
# Lines of the node's own log, which is in the same process.
NODE_LINE = re.compile(r"\d{4}-\d\d-\d\d ")
Cli = Callable[..., Awaitable[tuple[int, str]]]


def with_commands(
    root: Path, monkeypatch: Patch, capsys: Capture, work: Callable[[Api, GatedNode, Cli], Awaitable[None]]
) -> None:
    gated_node.install(monkeypatch)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    async def whole(api: Api) -> None:
        async def cli(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(run_command, ["cohort", *arguments, "--http", api.address])
            said = capsys.readouterr()
            lines = (said.out + said.err).splitlines(keepends=True)
            return code, "".join(line for line in lines if not NODE_LINE.match(line))

        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        native = api.bench.native
        assert isinstance(native, GatedNode)
        await work(api, native, cli)

    served(root, monkeypatch, whole)


async def member(api: Api, name: str) -> Joined:
    request = Join(topic="t", cohort="etl", mode="stream", member=name, instance=secrets.token_bytes(16))
    return await api.bench.ok(Opcode.JOIN, request, Joined)


def test_a_cohort_from_its_creation_to_its_deletion(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, native: GatedNode, cli: Cli) -> None:
        assert await cli("create", "t", "etl", "--mode", "stream") == (
            Exit.OK,
            "etl of public/default/t: stream, from earliest\n",
        )
        assert (await cli("create", "t", "etl", "--mode", "stream"))[0] == Exit.OK
        code, said = await cli("create", "t", "etl", "--mode", "queue")
        assert code == Exit.REFUSED, said
        assert "mode STREAM" in said
        joined = await member(api, "m-1")
        await soon(lambda: {rule.assignee for rule in native.rules.values()} == {joined.session})
        part = min(rule.partition for rule in native.rules.values())
        native.settle(joined.cohort, part, 90)
        code, said = await cli("list")
        assert (code, re.search(r"etl +stream +1 +210 ", said) is not None) == (Exit.OK, True), said
        code, said = await cli("show", "t", "etl", "--partitions")
        assert re.search(rf"{part} +ACTIVE +m-1 +90 +100 +10 +-", said), said
        code, said = await cli("show", "t", "etl", "--json")
        assert json.loads(said)["lag_rows"] == 210
        code, said = await cli("members", "t", "etl", "--json")
        assert json.loads(said)["member"] == "m-1"
        code, said = await cli("change", "t", "etl", "--handover", "90s")
        assert (code, "handover_ms 90000" in said) == (Exit.OK, True), said
        await soon(lambda: native.cohorts[joined.cohort][5] == 90_000)
        assert await cli("evict", "t", "etl", "m-1") == (Exit.OK, "m-1 evicted\n")
        assert (await cli("evict", "t", "etl", "m-1"))[0] == Exit.REFUSED
        code, said = await cli("list", "t")
        assert "no members for " in said
        assert (await cli("delete", "t", "etl"))[0] != Exit.OK, "it asks, and nobody answers"
        assert await cli("delete", "t", "etl", "--yes") == (Exit.OK, "etl deleted\n")
        assert (await cli("show", "t", "etl"))[0] == Exit.REFUSED

    with_commands(tmp_path, monkeypatch, capsys, work)


def test_a_cohort_is_reset_to_rows_times_and_positions(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, native: GatedNode, cli: Cli) -> None:
        del api
        await cli("create", "t", "etl", "--mode", "stream")
        assert (await cli("reset", "t", "etl", "latest", "--yes"))[0] == Exit.OK
        await soon(lambda: {entry.offset for entry in native.entries.values()} == {100})
        parts = sorted(rule.partition for rule in native.rules.values())
        asked: list[Any] = []

        def at(_: Any, topic: str, moment: datetime) -> list[dict[str, int]]:
            asked.append((topic, moment))
            return [{"partition": part, "offset": 9, "epoch": 0} for part in parts]

        monkeypatch.setattr(command, "positions_at", at)
        code, said = await cli("reset", "t", "etl", "--time", "2026-01-31T12:00+00:00", "--yes")
        assert (code, asked) == (Exit.OK, [("t", datetime(2026, 1, 31, 12, tzinfo=UTC))]), said
        await soon(lambda: {rule.offset for rule in native.rules.values()} == {9})
        file = tmp_path / "positions"
        file.write_text(f'{{"partition": {parts[0]}, "offset": 3}}\n\n')
        code, said = await cli("reset", "t", "etl", "--positions", str(file), "--yes")
        assert (code, "have nothing to do with the positions" in said) == (Exit.REFUSED, True), said
        code, said = await cli("reset", "t", "etl", "--positions", str(file), "--rest", "earliest", "--yes")
        assert (code, said.startswith("etl begins again")) == (Exit.OK, True), said
        await soon(lambda: sorted(rule.offset for rule in native.rules.values()) == [0, 0, 3])
        for wrong in ((), ("latest", "--positions", str(file)), ("latest", "--rest", "latest")):
            assert (await cli("reset", "t", "etl", *wrong, "--yes"))[0] == Exit.USAGE, wrong

    with_commands(tmp_path, monkeypatch, capsys, work)


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[1]", '{"partition": 1}', '{"partition": "a", "offset": 1}', "null"]
)
def test_a_file_of_positions_is_read_as_a_whole_or_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "positions"
    file.write_text(text)
    with pytest.raises(click.UsageError, match="--positions"):
        read_positions(file)


@pytest.mark.parametrize("text", ["noon", "2026-01-31T12:00", ""])
def test_a_time_has_a_zone(text: str) -> None:
    with pytest.raises(click.UsageError, match="--time"):
        moment_of(text)


def test_notes_name_what_keeps_a_cohort_from_reading(monkeypatch: Patch) -> None:
    quiet = {"members": 1, "idle_since_ms": 0, "unknown": [], "unassigned": 0, "blocked": 0, "paused": 0}
    assert note_of(quiet) == "-"
    assert note_of(quiet | {"unknown": [1, 2], "blocked": 3}) == "lag of 2 partitions not known, 3 blocked"
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    for ago, text in ((5, "5 s"), (61, "1 min"), (7_200, "2 h"), (90_000, "1 d")):
        assert age_text(round((1_000_000 - ago) * 1_000)) == text
    part = {
        "reason": "",
        "drained": False,
        "waits_for": [7],
        "sought": True,
        "missed": [[3, 9]],
        "paused": "ranges",
    }
    assert partition_note(part) == (
        "waits for 7; a seek is not over; not read before they were removed: 3; paused: ranges"
    )

"""The commands about layouts over a whole node with a fake native side: output, exit codes, refusals."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.layout import tree_lines
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.state import canonical_bytes
from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC, Api, served

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
# Lines of the node's own log, which is in the same process.
NODE_LINE = re.compile(r"\d{4}-\d\d-\d\d ")
Cli = Callable[..., Awaitable[tuple[int, str]]]


def with_commands(
    root: Path, monkeypatch: Patch, capsys: Capture, work: Callable[[Api, Cli], Awaitable[None]]
) -> None:
    layout_engine.install(monkeypatch)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    async def whole(api: Api) -> None:
        async def cli(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(run_command, [*arguments, "--http", api.address])
            said = capsys.readouterr()
            lines = (said.out + said.err).splitlines(keepends=True)
            return code, "".join(line for line in lines if not NODE_LINE.match(line))

        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        await work(api, cli)

    served(root, monkeypatch, whole)


async def active(api: Api) -> list[dict[str, Any]]:
    parts = (await api.get(f"{PLACE}/layout"))["partitions"]
    return sorted((part for part in parts if part["state"] == "ACTIVE"), key=lambda part: int(part["lo"]))


def test_partitions_are_split_and_merged_by_either_group(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        first = (await active(api))[0]
        code, said = await cli("topic", "split", "t", str(first["partition"]), "--json")
        shown = json.loads(said)
        assert (code, shown["version"], len(shown["partitions"])) == (0, 2, 2)
        one, other = (part["name"] for part in (await active(api))[:2])
        code, said = await cli("topic", "merge", "t", one, other)
        assert (code, "version 3, 1 new partition" in said) == (0, True), said
        number = str((await active(api))[0]["partition"])
        code, said = await cli("partition", "split", number, "--at", "5", "--at", "9")
        assert (code, "3 new partitions" in said) == (0, True), said
        one, other = (str(part["partition"]) for part in (await active(api))[:2])
        code, said = await cli("partition", "merge", one, other, "--no-wait")
        assert (code, "layout change" in said) == (0, True), said

    with_commands(tmp_path, monkeypatch, capsys, work)


def test_a_preview_prints_ranges_and_nodes_and_changes_nothing(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        before = canonical_bytes(api.bench.node.proposer.state)
        code, said = await cli("topic", "repartition", "t", "5", "--preview")
        assert (code, "from slot" in said, "13107" in said.replace(",", "")) == (0, True, True), said
        code, said = await cli("topic", "repartition", "t", "3", "--preview")
        assert (code, "nothing is to be changed" in said) == (0, True)
        code, said = await cli("topic", "repartition", "t", "3")
        assert (code, "nothing is to be changed" in said) == (0, True)
        assert canonical_bytes(api.bench.node.proposer.state) == before

    with_commands(tmp_path, monkeypatch, capsys, work)


def test_the_layout_is_shown_as_a_table_a_tree_and_json(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        first = (await active(api))[0]
        await cli("topic", "split", "t", str(first["partition"]))
        code, said = await cli("topic", "layout", "t")
        assert (code, "SEALED" in said, "version 2" in said) == (0, True, True), said
        code, said = await cli("topic", "layout", "t", "--tree")
        lines = said.splitlines()
        at = next(place for place, line in enumerate(lines) if "SEALED, ends at 100" in line)
        assert [line.startswith("  ") for line in lines[at + 1 : at + 4]] == [True, True, False]
        code, said = await cli("topic", "layout", "t", "--json")
        assert json.loads(said)["version"] == 2
        code, said = await cli("topic", "partition", "t", first["name"], "--json")
        assert len(json.loads(said)["descendants"]) == 2
        code, said = await cli("topic", "partition", "t", str(first["partition"]))
        assert (code, "sealed_ms" in said) == (0, True)
        assert f" {first['partition']}\n" in said, "ids are given to other commands: no thousands separators"

    with_commands(tmp_path, monkeypatch, capsys, work)


def test_open_changes_are_listed_with_what_they_wait_for_and_aborted(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        code, said = await cli("topic", "transitions")
        assert (code, said.strip()) == (0, "no layout change is open")
        api.bench.native.holds.add("open")
        first = str((await active(api))[0]["partition"])
        code, said = await cli("topic", "split", "t", first, "--no-wait")
        assert (code, "is PREPARED" in said) == (0, True), said
        code, said = await cli("topic", "split", "t", first, "--wait", "0.3")
        assert (code, "is in change" in said) == (Exit.REFUSED, True), said
        other = str((await active(api))[1]["partition"])
        code, said = await cli("topic", "split", "t", other, "--wait", "0.3")
        assert (code, "goes on" in said) == (Exit.UNKNOWN_OUTCOME, True), said
        code, said = await cli("topic", "transitions", "t", "--json")
        changes = [json.loads(line)["change"] for line in said.splitlines()]
        assert len(changes) == 2
        code, said = await cli("topic", "transitions")
        assert said.count("waits for: an answer of nodes 1") == 2
        for options in ((), ("--ended",), ("--json",)):
            code, said = await cli("topic", "transitions", "nope", *options)
            assert (code, "nope" in said) == (Exit.REFUSED, True), said
        code, said = await cli("topic", "abort-transition", str(changes[0]))
        assert code == Exit.USAGE, "it asks first"
        for change in changes:
            code, said = await cli("topic", "abort-transition", str(change), "--why", "test", "--yes")
            assert (code, "is aborted" in said) == (0, True), said
        code, said = await cli("topic", "abort-transition", str(changes[0]), "--yes")
        assert (code, "is aborted" in said) == (0, True), "a repeat of what was done is done"
        code, said = await cli("topic", "abort-transition", "99", "--yes")
        assert (code, "no open layout change" in said) == (Exit.REFUSED, True), said
        code, said = await cli("topic", "transitions", "--ended", "--json")
        ended = {one["change"]: one["why"] for one in map(json.loads, said.splitlines())}
        assert {ended[change] for change in changes} == {"test"}, "aborted by hand, with its reason"
        api.bench.native.holds.clear()
        api.bench.native.release()

    with_commands(tmp_path, monkeypatch, capsys, work)


def test_a_repartition_waits_for_the_end_of_another_change(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        api.bench.native.holds.add("open")
        first = (await active(api))[0]["partition"]
        begun = await api("POST", f"{PLACE}/split/{first}", {"wait_s": 0})
        code, said = await cli("topic", "repartition", "t", "6", "--wait", "1.5")
        assert (code, "is in change" in said) == (Exit.REFUSED, True), said

        async def end() -> None:
            await asyncio.sleep(1.5)
            await api("POST", f"/admin/transitions/{begun.body['change']}/abort")
            api.bench.native.holds.clear()
            api.bench.native.release()

        ending = asyncio.create_task(end())
        code, said = await cli("topic", "repartition", "t", "6", "--wait", "20")
        await ending
        assert (code, len(await active(api))) == (0, 6), said
        # A refusal that no other change explains is not tried again.
        code, said = await asyncio.wait_for(cli("topic", "repartition", "missing", "6"), 10)
        assert code == Exit.REFUSED

    with_commands(tmp_path, monkeypatch, capsys, work)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("split", "t", "99"), Exit.REFUSED, "no partition '99'"),
        (("split", "t", "99", "--at", "1", "--into", "2"), Exit.USAGE, "exclude each other"),
        (("split", "t", "99", "--at", "65536"), Exit.USAGE, "65535"),
        (("merge", "t", "98", "99"), Exit.REFUSED, "no partition '98'"),
        (("repartition", "t", "0"), Exit.USAGE, "4096"),
        (("layout", "missing"), Exit.REFUSED, "missing"),
        (("partition", "t", "99"), Exit.REFUSED, "no partition '99'"),
        (("transitions", "a/b"), Exit.REFUSED, "a/b"),
    ],
)
def test_what_is_refused_leaves_the_metadata_as_it_is(
    arguments: tuple[str, ...],
    exit_code: Exit,
    words: str,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Capture,
) -> None:
    async def work(api: Api, cli: Cli) -> None:
        before = canonical_bytes(api.bench.node.proposer.state)
        code, said = await cli("topic", *arguments)
        assert (code, words in said) == (exit_code, True), said
        assert canonical_bytes(api.bench.node.proposer.state) == before

    with_commands(tmp_path, monkeypatch, capsys, work)


def test_a_tree_names_further_parents_and_partitions_without_parents() -> None:
    def part(number: int, lo: int, parents: list[int], children: list[int]) -> dict[str, Any]:
        sealed = bool(children)
        return {
            "partition": number,
            "name": f"p{number}",
            "lo": lo,
            "state": "SEALED" if sealed else "ACTIVE",
            "parents": parents,
            "children": children,
            "end_offset": 7 if sealed else None,
            "owner": 1,
        }

    parts = [part(1, 0, [], [3]), part(2, 50, [], [3, 4]), part(3, 0, [1, 2], []), part(4, 60, [2], [])]
    assert tree_lines(parts) == [
        "p1 SEALED, ends at 7",
        "  p3 ACTIVE, node 1, also of 2",
        "p2 SEALED, ends at 7",
        "  p4 ACTIVE, node 1",
    ]

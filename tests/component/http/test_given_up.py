"""A transaction's rows that are lost are given up: over HTTP and on the command line through either door."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.scopes import BeginScope, CommitScope, StagedPart
from tests.fakes.admin_api import Api, served
from tests.fakes.metadata_commands import create
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch
TOKEN, ACCEPTS = b"t" * 16, "rows of the night of the fire"


async def losing(api: Api, *, epochs: int) -> tuple[int, int]:
    """A partition, and a scope whose epochs are decided with rows that nobody has staged there."""
    propose = api.bench.node.proposer.propose
    await propose(create(partitions=1))
    (topic,) = api.bench.node.proposer.state.topics.values()
    (partition,) = topic.assignments
    api.bench.native.refuses["publish"] = "fewer rows are staged"
    begun: Any = (await propose(BeginScope(name="nightly"))).result
    for epoch in range(1, epochs + 1):
        parts = (StagedPart(topic.topic, partition, 100 + epoch),)
        await propose(
            CommitScope(scope=begun.scope, driver=begun.driver, epoch=epoch, tokens=(TOKEN,), parts=parts)
        )
    return int(partition), int(begun.scope)


async def unpublished(api: Api, partition: int) -> list[int]:
    return [one["epoch"] for one in (await api.get(f"/admin/partitions/{partition}"))["unpublished"]]


def test_what_is_lost_is_given_up_once_by_who_says_so(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        partition, scope = await losing(api, epochs=2)
        path = f"/admin/partitions/{partition}/give-up"
        shown = (await api.get(f"/admin/partitions/{partition}"))["unpublished"]
        assert shown[0] == {"scope": scope, "name": "nightly", "epoch": 1, "rows": 101}
        sound = {"scope": scope, "epoch": 1, "accepts": ACCEPTS}
        for wrong in ({**sound, "epoch": 3}, {**sound, "scope": scope + 1}, {**sound, "accepts": "yes"}):
            assert (await api("POST", path, wrong)).status == 422, wrong
        assert await unpublished(api, partition) == [1, 2]
        done = await api("POST", path, sound, idempotency_key="k")
        assert done.status == 200, done
        again = await api("POST", path, sound, idempotency_key="k")
        assert (again.status, again.text) == (200, done.text)
        assert await unpublished(api, partition) == [2]
        refused = await api("POST", path, sound)
        assert (refused.status, "pending there: 2 of" in refused.text) == (422, True)
        assert (await api("POST", path, {**sound, "epoch": 2})).status == 200
        assert await unpublished(api, partition) == []
        lines = [json.loads(line) for line in (tmp_path / "audit" / "audit.log").read_text().splitlines()]
        assert [ACCEPTS in line["action"] for line in lines if "give-up" in line["action"]][-1]

    served(tmp_path, monkeypatch, work)


def test_what_its_owner_does_not_tell_is_not_given_up(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        partition, scope = await losing(api, epochs=1)

        native = api.bench.native
        native.staged = 101
        path, sound = (
            f"/admin/partitions/{partition}/give-up",
            {"scope": scope, "epoch": 1, "accepts": ACCEPTS},
        )
        refused = await api("POST", path, sound)
        assert (refused.status, "has all of its 101 rows" in refused.text) == (409, True)
        native.staged, native.refuses["count_staged"] = 0, "partition 7: it is not open here"
        refused = await api("POST", path, sound)
        assert (refused.status, "cannot count its rows" in refused.text) == (409, True)
        assert await unpublished(api, partition) == [1]

    served(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("door", ["http", "control"])
def test_the_command_line_says_what_is_lost_before_it_gives_it_up(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], door: str
) -> None:
    control = f"tcp://127.0.0.1:{free_port()}"

    async def work(api: Api) -> None:
        partition, scope = await losing(api, epochs=1)
        address = api.address if door == "http" else control

        async def cli(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(run_command, ["partition", *arguments, f"--{door}", address])
            said = capsys.readouterr()
            return code, said.out + said.err

        number, chosen = str(partition), ("--scope", str(scope), "--epoch", "1")
        code, said = await cli("show", number)
        assert (code, "not published yet" in said, "nightly" in said) == (0, True, True)
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert (await cli("give-up", number, *chosen))[0] == Exit.INTERRUPTED
        code, said = await cli("give-up", number, "--scope", str(scope), "--epoch", "9", "--yes")
        assert (code, f"waiting epochs: epoch 1 of {scope}" in said) == (Exit.REFUSED, True)
        assert await unpublished(api, partition) == [1]
        code, said = await cli("give-up", number, *chosen, "--yes", "--json")
        assert code == 0, said
        [receipt] = [line for line in said.splitlines() if line.startswith('{"partition"')]
        assert json.loads(receipt) == {"partition": partition, "scope": scope, "epoch": 1, "lost_rows": 101}
        assert await unpublished(api, partition) == []

    served(tmp_path, monkeypatch, work, control=control)

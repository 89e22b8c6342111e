"""Every refusal of a layout change through every door: HTTP, commands, control address, data address.

The same wish is refused at each with the same reason, and not a byte of the metadata changes (I15). The data
address is what `client.admin` asks; tests/unit/client/test_layout_admin.py has the errors there.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.commands import CreateToken, SetConfig
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.state import canonical_bytes
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.layout import auto
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.layout_messages import ChangeLayout
from ringfence.control.state_machines.layout import plan
from ringfence.control.transport.question import ask_address
from ringfence.native.layout_messages import LayoutChange
from ringfence.native.messages import Refused, decode
from ringfence.native.wire import Opcode, Status
from tests.fakes import layout_engine
from tests.fakes.admin_api import PLACE, TOPIC, Api, served
from tests.fakes.layout_level import lower_program
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
# Lines of the node's own log, which is in the same process.
NODE_LINE = re.compile(r"\d{4}-\d\d-\d\d ")


class Wish(NamedTuple):
    """A layout change as all doors ask for it. `into` of a repartition is the number of partitions."""

    verb: str
    partitions: tuple[Any, ...] = ()
    at: tuple[int, ...] = ()
    into: int = 0
    topic: str = "t"


class Doors:
    """One node with all doors; `refused` asks at each."""

    def __init__(self, api: Api, control: str, capsys: Capture) -> None:
        self.api, self.control, self._capsys = api, control, capsys

    async def refused(self, wish: Wish, status: int, *words: str, has_data_door: bool = True) -> None:
        before = canonical_bytes(self.api.bench.node.proposer.state)
        texts = [await self._http(wish, status)]
        texts += [await self._command(wish, "--http", self.api.address)]
        texts += [await self._command(wish, "--control", self.control)]
        texts += [await self._question(wish)]
        if has_data_door:
            texts += [await self._data(wish)]
        for text in texts:
            assert all(word in text for word in words), (wish, text)
        assert canonical_bytes(self.api.bench.node.proposer.state) == before, "I15: a refusal left something"

    async def _http(self, wish: Wish, status: int) -> str:
        place = PLACE.replace("/t", f"/{wish.topic}") if wish.topic != "t" else PLACE
        path = "/".join((place, wish.verb, *map(str, wish.partitions)))
        body: dict[str, Any] = {"partitions": wish.into} if wish.verb == "repartition" else {}
        if wish.verb == "split":
            body = {"at": list(wish.at)} if wish.at else {"into": wish.into} if wish.into else {}
        answer = await self.api("POST", path, body)
        assert answer.status == status, (wish, answer)
        assert answer.slug
        return str(answer.body["detail"])

    async def _command(self, wish: Wish, *door: str) -> str:
        more = [text for slot in wish.at for text in ("--at", str(slot))]
        if wish.verb == "split" and wish.into:
            more = ["--into", str(wish.into)]
        counts = [str(wish.into)] if wish.verb == "repartition" else []
        arguments = ["topic", wish.verb, wish.topic, *map(str, wish.partitions), *counts, *more]
        code = await asyncio.to_thread(run_command, [*arguments, "--wait", "1", *door])
        said = self._capsys.readouterr()
        assert code == Exit.REFUSED, (wish, door, said)
        lines = (said.out + said.err).splitlines(keepends=True)
        return "".join(line for line in lines if not NODE_LINE.match(line))

    async def _question(self, wish: Wish) -> str:
        call = ChangeLayout(
            verb=wish.verb,
            topic=wish.topic,
            partitions=tuple(map(str, wish.partitions)),
            at=wish.at,
            into=wish.into,
        )
        body = await asyncio.to_thread(ask_address, self.control, messages.encode(call), 10.0)
        reply = messages.decode_reply(body)
        assert isinstance(reply, messages.Refusal), (wish, reply)
        return reply.message

    async def _data(self, wish: Wish) -> str:
        request = LayoutChange(
            topic=wish.topic,
            action=wish.verb,
            partitions=list(wish.partitions),
            at=list(wish.at),
            into=wish.into,
            wait_ms=1_000,
        )
        header, body = await self.api.bench.ask(Opcode.LAYOUT_CHANGE, request)
        assert header.status == Status.REFUSED, wish
        return decode(Refused, body).message

    async def active(self) -> list[dict[str, Any]]:
        parts = (await self.api.get(f"{PLACE}/layout"))["partitions"]
        return sorted((part for part in parts if part["state"] == "ACTIVE"), key=lambda part: int(part["lo"]))

    async def configured(self, **values: int) -> None:
        await self.api.bench.node.proposer.propose(SetConfig(values=values))

    async def quiet(self) -> None:
        """Wait until no layout change holds a partition."""
        for _ in range(1_000):
            if all(one.phase == "OPENED" for one in self.api.bench.node.proposer.state.transitions.values()):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("a layout change is open")


def with_doors(
    root: Path,
    monkeypatch: Patch,
    capsys: Capture,
    work: Callable[[Doors], Awaitable[None]],
    *,
    knows_layouts: bool = True,
) -> None:
    if not knows_layouts:
        lower_program(monkeypatch)
    layout_engine.install(monkeypatch)
    monkeypatch.setattr(auto, "LOOK_S", 3_600.0)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    control = f"tcp://127.0.0.1:{free_port()}"

    async def whole(api: Api) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        await work(Doors(api, control, capsys))

    served(root, monkeypatch, whole, control=control)


def test_what_no_state_allows(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    async def work(doors: Doors) -> None:
        first, _, third = (part["partition"] for part in await doors.active())
        await doors.refused(Wish("split", (first,), topic="missing"), 404, "missing")
        await doors.refused(Wish("repartition", into=2, topic="missing"), 404, "missing")
        await doors.refused(Wish("split", (99,)), 404, "no partition '99'")
        await doors.refused(Wish("split", (first,), at=(21_845,)), 422, "slot 21845", "1 to 21844")
        await doors.refused(Wish("merge", (first, third)), 422, "not adjacent")
        await doors.refused(Wish("merge", (first, first)), 422, "each once")

    with_doors(tmp_path, monkeypatch, capsys, work)


def test_sealed_partitions_and_those_of_one_slot(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    async def work(doors: Doors) -> None:
        first, second, _ = await doors.active()
        cut = await doors.api("POST", f"{PLACE}/split/{first['partition']}", {"at": [1]})
        await doors.quiet()
        children = [part["partition"] for part in cut.body["partitions"]]
        await doors.refused(Wish("split", (children[0],)), 422, "one slot")
        await doors.refused(Wish("split", (first["partition"],)), 409, "was sealed by", *map(str, children))
        merge = Wish("merge", (first["partition"], second["partition"]))
        await doors.refused(merge, 409, "was sealed by", *map(str, children))
        # The data address names partitions by their ids only.
        by_name = Wish("split", (first["name"],))
        await doors.refused(by_name, 409, "was sealed by", *map(str, children), has_data_door=False)

    with_doors(tmp_path, monkeypatch, capsys, work)


def test_what_another_change_or_a_limit_excludes(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    async def work(doors: Doors) -> None:
        first, second, _ = (part["partition"] for part in await doors.active())
        doors.api.bench.native.holds.add("open")
        begun = await doors.api("POST", f"{PLACE}/split/{first}", {"wait_s": 0})
        change = begun.body["change"]
        await doors.refused(Wish("split", (first,)), 409, f"change {change}")
        await doors.refused(Wish("merge", (first, second)), 409, f"change {change}")
        await doors.refused(Wish("repartition", into=9), 409, f"change {change}")
        await doors.configured(changes_max=1)
        await doors.refused(Wish("split", (second,)), 409, "changes_max")
        await doors.api("POST", f"/admin/transitions/{change}/abort")
        doors.api.bench.native.holds.clear()
        doors.api.bench.native.release()
        await doors.configured(changes_max=64, topic_partitions_max=4)
        await doors.refused(Wish("split", (second,)), 409, "topic_partitions_max")
        await doors.configured(topic_partitions_max=4_096, layout_changes_enabled=0)
        for wish in (Wish("split", (second,)), Wish("merge", (first, second)), Wish("repartition", into=9)):
            await doors.refused(wish, 409, "switched off", "layout_changes_enabled")

    with_doors(tmp_path, monkeypatch, capsys, work)


def test_a_repartition_that_another_one_overtook(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    true = plan.repartition

    def stale(*given: Any, **more: Any) -> Any:
        command = true(*given, **more)
        assert isinstance(command, PrepareLayout)
        return replace(command, version=command.version - 1)

    monkeypatch.setattr(plan, "repartition", stale)

    async def work(doors: Doors) -> None:
        await doors.refused(Wish("repartition", into=9), 409, "version 1")

    with_doors(tmp_path, monkeypatch, capsys, work)


def test_a_cluster_with_an_older_node(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    async def work(doors: Doors) -> None:
        first, second, _ = (part["partition"] for part in await doors.active())
        way_out = ("level is 1", "need 2", "cluster finalize")
        for wish in (Wish("split", (first,)), Wish("merge", (first, second)), Wish("repartition", into=9)):
            await doors.refused(wish, 409, *way_out)
        before = canonical_bytes(doors.api.bench.node.proposer.state)
        answer = await doors.api("PATCH", f"{PLACE}/auto", {"values": {"auto_split": 1}})
        assert (answer.status, "level is 1" in answer.body["detail"]) == (409, True), answer
        assert (await doors.api("PATCH", "/admin/config", {"values": {"auto_split": 1}})).status == 422
        assert canonical_bytes(doors.api.bench.node.proposer.state) == before

    with_doors(tmp_path, monkeypatch, capsys, work, knows_layouts=False)


def test_the_control_address_serves_layouts_until_the_cluster_has_tokens(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    async def work(doors: Doors) -> None:
        async def cli(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(run_command, ["topic", *arguments, "--control", doors.control])
            said = capsys.readouterr()
            return code, said.out + said.err

        first, second, third = (str(part["partition"]) for part in await doors.active())
        code, said = await cli("split", "t", first, "--preview")
        assert (code, "from slot" in said) == (0, True), said
        code, said = await cli("split", "t", first)
        assert (code, "2 new partitions" in said) == (0, True), said
        code, said = await cli("merge", "t", second, third)
        assert (code, "1 new partition" in said) == (0, True), said
        code, said = await cli("repartition", "t", "5", "--wait", "20")
        assert (code, len(await doors.active())) == (0, 5), said
        code, said = await cli("layout", "t", "--tree")
        assert (code, "SEALED" in said) == (0, True), said
        code, said = await cli("partition", "t", first)
        assert (code, "descendants" in said) == (0, True), said
        number = str((await doors.active())[0]["partition"])
        code = await asyncio.to_thread(
            run_command, ["partition", "split", number, "--control", doors.control]
        )
        assert code == 0, capsys.readouterr()
        await doors.quiet()
        doors.api.bench.native.holds.add("open")
        number = str((await doors.active())[0]["partition"])
        code, said = await cli("split", "t", number, "--no-wait")
        assert (code, "is PREPARED" in said) == (0, True), said
        [change] = [
            number
            for number, one in doors.api.bench.node.proposer.state.transitions.items()
            if one.phase == "PREPARED"
        ]
        code, said = await cli("transitions", "t")
        assert (code, f"layout change {change}: SPLIT PREPARED" in said) == (0, True), said
        code, said = await cli("abort-transition", str(change), "--yes", "--why", "not now")
        assert (code, "is aborted" in said) == (0, True), said
        code, said = await cli("abort-transition", str(change), "--yes")
        assert (code, "is aborted" in said) == (0, True), "a repeat of what was done is done"
        code, said = await cli("abort-transition", "99", "--yes")
        assert (code, "no open layout change" in said) == (Exit.REFUSED, True), said
        doors.api.bench.native.holds.clear()
        doors.api.bench.native.release()
        for call in (ChangeLayout(verb="close", topic="t"), ChangeLayout(verb="partition", topic="t")):
            body = await asyncio.to_thread(ask_address, doors.control, messages.encode(call), 10.0)
            assert isinstance(messages.decode_reply(body), messages.Refusal)
        token = CreateToken(name="admin", role=Role.ADMIN, hash=bytes(32))
        await doors.api.bench.node.proposer.propose(token)
        before = canonical_bytes(doors.api.bench.node.proposer.state)
        for words in (("split", "t", number), ("auto", "t", "split=1"), ("abort-transition", "9", "--yes")):
            code, said = await cli(*words)
            assert (code, "the cluster has tokens" in said) == (Exit.REFUSED, True), said
        assert canonical_bytes(doors.api.bench.node.proposer.state) == before

    with_doors(tmp_path, monkeypatch, capsys, work)

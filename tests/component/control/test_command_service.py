"""The path of every change: who may, what a key has answered, what is planned again, what is audited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import Done
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.audit import Line
from ringfence.control.runtime.handlers.commands import (
    Door,
    Outcome,
    Plan,
    Principal,
    RequestContext,
    at_control_address,
    plan_of,
    refuse_faults,
)
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native.wire import Code
from tests.fakes.node_bench import Bench, run

KEY = RequestKey("ann\nk1", b"d" * 16)
SLOWER = SetConfig(values={"failure_ms": 9_000})


def context(key: RequestKey | None = None, condition: Condition | None = None) -> RequestContext:
    door = Door("POST", "/admin/config", "127.0.0.1:1", 201)
    return RequestContext(key, condition, Principal("ann", Role.ADMIN), "config", door)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """Lines of the audit log."""
    written: list[Line] = []

    async def add(_: object, line: Line) -> None:
        written.append(line)

    monkeypatch.setattr("ringfence.control.runtime.handlers.audit.Audit.add", add)
    return written


async def forbidden() -> Plan:
    raise AssertionError("nothing is planned")


def test_a_repeated_key_gets_the_first_answer_and_other_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    async def work(bench: Bench) -> None:
        commands = bench.node.handlers.commands
        first = await commands.submit(lambda: plan_of(SLOWER), context(KEY))
        again = await commands.submit(forbidden, context(KEY))
        assert again == Outcome(first.index, first.result, repeated=True)
        with pytest.raises(RequestRefused) as refused:
            await commands.submit(forbidden, context(RequestKey(KEY.key, b"e" * 16)))
        assert refused.value.code == Code.CONFLICT
        assert [(line.status, line.index) for line in lines] == [
            (201, first.index),
            (201, first.index),
            (422, 0),
        ]
        assert lines[0] == Line(
            "ann", "admin", "127.0.0.1:1", "POST", "/admin/config", "config", 201, first.index
        )

    run(tmp_path, monkeypatch, work)


def test_a_plan_that_the_state_has_overtaken_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    refusals: list[Code] = []

    async def is_overtaken(refusal: RequestRefused) -> bool:
        refusals.append(refusal.code)
        return len(refusals) < 3

    async def build() -> Plan:
        return Plan((SetConfig(values={"unknown": 1}),), is_overtaken=is_overtaken)

    async def work(bench: Bench) -> None:
        with pytest.raises(RequestRefused):
            await bench.node.handlers.commands.submit(build, context())
        assert refusals == [Code.INVALID_ARGUMENT] * 3
        assert [line.status for line in lines] == [422], "one line for all tries"

    run(tmp_path, monkeypatch, work)


def test_what_changes_nothing_has_no_line_and_still_checks_its_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    async def build() -> Plan:
        return Plan(done=Outcome(0, Done()))

    async def work(bench: Bench) -> None:
        assert (await bench.node.handlers.commands.submit(build, context())).index == 0
        assert not lines
        with pytest.raises(RequestRefused) as refused:
            await bench.node.handlers.commands.submit(build, context(condition=Condition("config", "old")))
        assert refused.value.code == Code.TOO_OLD
        assert [line.status for line in lines] == [412]

    run(tmp_path, monkeypatch, work)


def test_faults_are_a_202_or_a_refusal_that_names_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    async def late(_: int, __: Plan) -> Sequence[str]:
        return ("node 2 is late", "node 3 is late")

    async def work(bench: Bench) -> None:
        commands = bench.node.handlers.commands
        pending = await commands.submit(lambda: plan_of(SLOWER), context(), late)
        assert pending.faults == ("node 2 is late", "node 3 is late")
        wait = refuse_faults(late, "it is changed", Code.UNKNOWN_OUTCOME)
        with pytest.raises(RequestRefused) as refused:
            await commands.submit(lambda: plan_of(SLOWER), context(), wait)
        assert refused.value.message == "it is changed: node 2 is late"
        told = [(line.status, line.index, line.detail) for line in lines]
        assert told == [
            (202, pending.index, "node 2 is late; node 3 is late"),
            (504, pending.index + 1, "it is changed: node 2 is late"),
        ]

    run(tmp_path, monkeypatch, work)


def test_a_request_that_ends_without_an_answer_has_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forever(_: int, __: Plan) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    async def work(bench: Bench) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await bench.node.handlers.commands.submit(lambda: plan_of(SLOWER), context(), forever)

    run(tmp_path, monkeypatch, work)
    assert '"detail":"no answer was given: CancelledError"' in (tmp_path / "audit" / "audit.log").read_text()


def test_the_control_address_changes_nothing_once_there_are_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    async def work(bench: Bench) -> None:
        monkeypatch.setattr(
            type(bench.node.proposer.state), "tokens", property(lambda _: {"ann": None}), raising=False
        )
        with pytest.raises(RequestRefused) as refused:
            await bench.node.handlers.commands.submit(
                forbidden, at_control_address("node drain", "node/1", "change nodes")
            )
        assert refused.value.code == Code.UNAUTHORIZED
        assert "change nodes through the admin API with a token" in refused.value.message
        assert not lines

    run(tmp_path, monkeypatch, work)

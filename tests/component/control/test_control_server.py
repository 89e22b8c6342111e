"""The control address: a handler for each type of question, and refusals while the node starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from ringfence.control.runtime.control_server import ControlServer, Question
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.envelope import Envelope, Kind
from ringfence.native.wire import Code
from tests.fakes.node_bench import Bench, run


def asked(server: ControlServer, call: messages.Call) -> messages.Reply:
    envelope = Envelope(
        version=1,
        kind=Kind.ASK,
        cluster=b"",
        sender=0,
        to=1,
        address="",
        number=1,
        body=messages.encode(call),
    )
    return messages.decode_reply(asyncio.run(server.answer(envelope)))


def test_a_node_that_starts_answers_some_questions_only() -> None:
    gate, pulses = StartGate(), list[int]()

    async def done(_: messages.Call) -> messages.Done:
        return messages.Done()

    questions: dict[type[messages.Call], Question] = {
        messages.PromiseLevel: Question(done, while_starting=True),
        messages.ShowExecutedIndex: Question(done),
    }
    server = ControlServer(questions, gate, lambda: pulses.append(1))
    assert asked(server, messages.PromiseLevel(level=1)) == messages.Done()
    refusal = asked(server, messages.ShowExecutedIndex())
    assert refusal == messages.Refusal(code=Code.STOPPING, message="the node is starting", retry_after_ms=500)
    gate.open()
    assert asked(server, messages.ShowExecutedIndex()) == messages.Done()
    assert len(pulses) == 3


def test_a_defect_of_a_handler_fails_its_question_alone() -> None:
    async def broken(_: messages.Call) -> messages.Done:
        raise ZeroDivisionError

    server = ControlServer(
        {messages.ListNodes: Question(broken, while_starting=True)}, StartGate(), lambda: None
    )
    refusal = asked(server, messages.ListNodes())
    assert isinstance(refusal, messages.Refusal)
    assert refusal.code == Code.INTERNAL


def test_every_type_of_question_has_a_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        assert set(bench.node.handlers.control_server._questions) == set(get_args(messages.Call))

    run(tmp_path, monkeypatch, work)

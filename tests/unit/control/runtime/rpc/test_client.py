"""What a request hears of the orders of other nodes: failed, late, or silent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import EXECUTION_ATTEMPTS_MAX, PeerClient
from ringfence.control.transport.hub import NoAnswerError
from ringfence.native.wire import Code

INDEX = 40
STARTING = messages.Refusal(code=Code.STOPPING, message="the node is starting", retry_after_ms=500)


class Other:
    """Node 2: it answers questions in the order of `settles` and `carried`; None is no answer."""

    def __init__(self, settles: list[messages.Reply | None], carried: list[messages.Reply | None]) -> None:
        self.settles, self.carried = settles, carried

    async def ask(self, _address: str, body: bytes, timeout_s: float, *, to: int) -> bytes:
        kind = (
            self.settles if isinstance(messages.decode_call(body), messages.AwaitExecution) else self.carried
        )
        reply = kind.pop(0)
        if reply is None:
            raise NoAnswerError(f"no answer from {to} within {timeout_s:g} s")
        return messages.encode(reply)


def settled(
    settles: list[messages.Reply | None], carried: list[messages.Reply | None], *, late_is_fault: bool = True
) -> list[str]:
    nodes = {NodeId(number): SimpleNamespace(life=Life.LIVE) for number in (1, 2)}
    hub: Any = Other(settles, carried)
    peers: Any = SimpleNamespace(address=lambda _: "tcp://two:1")
    proposer: Any = SimpleNamespace(state=SimpleNamespace(nodes=nodes))
    others = PeerClient(hub, peers, proposer, NodeId(1))
    faults = asyncio.run(others.await_execution([NodeId(1), NodeId(2)], INDEX, late_is_fault=late_is_fault))
    assert not hub.settles, "each question was asked"
    assert not hub.carried, "each question was asked"
    return faults


def at(index: int) -> messages.Reply:
    return messages.ExecutedIndex(index=index)


def test_orders_that_failed_are_told() -> None:
    assert settled([messages.Done(faults=("a full disk",))], []) == ["a full disk"]


def test_a_node_that_answers_and_does_not_get_on_is_a_fault() -> None:
    [fault] = settled([None, None], [at(30), at(30)])
    assert fault.startswith("node 2 has not executed entry 40 yet, it is at 30: node 2: no answer")


@pytest.mark.parametrize("end", [[messages.Done()], [messages.Done(faults=("a full disk",))]])
def test_a_node_that_gets_on_is_waited_for(end: list[messages.Done]) -> None:
    assert settled([None, None, *end], [at(30), at(35)]) == list(end[0].faults)


def test_a_node_that_gets_on_is_not_waited_for_for_ever() -> None:
    told = [at(30 + number) for number in range(EXECUTION_ATTEMPTS_MAX)]
    [fault] = settled([None] * EXECUTION_ATTEMPTS_MAX, [*told])
    assert "has not executed entry 40 yet" in fault


def test_a_node_that_is_starting_answers() -> None:
    [fault] = settled([STARTING, STARTING], [STARTING, STARTING])
    assert fault == "node 2 has not executed entry 40 yet, it is at 0: the node is starting"


def test_a_node_that_does_not_answer_is_not_waited_for() -> None:
    assert settled([None], [None]) == []


def test_who_only_makes_something_does_not_ask_how_late_a_node_is() -> None:
    assert settled([None], [], late_is_fault=False) == []

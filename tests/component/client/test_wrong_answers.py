"""Answers that no node gives: they count for nothing, and their connection ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ringfence
from ringfence.native import wire
from ringfence.native.wire import Code, Opcode
from tests.fakes.client_topic import SCHEMA, ids_of, rows
from tests.fakes.socket_node import FakeNode, Refuse


class Hostile(FakeNode):
    """`spoil` says how often the next answers to an opcode are wrong, and `wrong` makes them so."""

    wrong: Callable[[list[bytes]], list[bytes]] = staticmethod(lambda frames: frames)
    opcode: int | None = None
    spoil: tuple[Opcode, int] = (Opcode.HELLO, 0)
    spoiled = 0  # requests up to the last one that was answered wrongly

    def _answer(
        self, header: wire.RequestHeader, status: int, body: bytes = b"", **fields: int
    ) -> list[bytes]:
        of, times = self.spoil
        if header.opcode != of or not times:
            return super()._answer(header, status, body, **fields)
        self.spoil, self.spoiled = (of, times - 1), len(self.seen)
        told = header if self.opcode is None else header._replace(opcode=self.opcode)
        return self.wrong(super()._answer(told, status, body, **fields))


@contextmanager
def hostile(**options: Any) -> Iterator[tuple[Hostile, ringfence.Client]]:
    with Hostile(**options) as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        yield node, client


def check_left(node: Hostile) -> None:
    """The connection that the wrong answer came over is used no more; how many there are is not said."""
    later = node.ways[node.spoiled :]
    assert later
    assert node.ways[node.spoiled - 1] not in later


def check_sent_anew(node: Hostile, client: ringfence.Client) -> None:
    """Over another connection, with the same sequence: stored once."""
    first, again = node.sent(Opcode.PUBLISH)
    check_left(node)
    assert (first.sequence, first.producer_id) == (again.sequence, again.producer_id)
    assert ids_of(client) == [0, 1, 2]


@pytest.mark.parametrize("opcode", [Opcode.STAGE, Opcode.FETCH, 200])
def test_an_ok_of_another_opcode_is_not_stored(opcode: int) -> None:
    with hostile() as (node, client), client.producer("t") as producer:
        node.opcode, node.spoil = opcode, (Opcode.PUBLISH, 1)
        assert producer.send(rows(0, 3)).result(10)[0].rows == 3
        check_sent_anew(node, client)


def test_an_ok_of_a_publish_answers_nothing_else() -> None:
    with hostile() as (node, client):
        layout = client.layout("t")
        node.opcode, node.spoil = Opcode.PUBLISH, (Opcode.END_OFFSETS, 1)
        with pytest.raises(
            ringfence.ProtocolError, match="the opcode of an answer differs from that of its request"
        ) as refused:
            client.count("t")
        assert (refused.value.opcode, refused.value.asked) == (Opcode.PUBLISH, Opcode.END_OFFSETS)
        assert refused.value.address == node.address
        assert client.count("t") == 0, "over a connection of its own"
        check_left(node)
        assert client.layout("t").generation == layout.generation


def test_if_all_of_them_are_wrong_the_send_is_not_stored_as_far_as_anybody_knows() -> None:
    with hostile() as (node, client):
        node.opcode, node.spoil = Opcode.STAGE, (Opcode.PUBLISH, 1_000_000)
        producer = client.producer("t", timeout_s=1)
        with pytest.raises(ringfence.UnknownOutcomeError):
            producer.send(rows(0)).result(20)
        node.spoil = (Opcode.PUBLISH, 0)
        with pytest.raises(ringfence.UnknownOutcomeError):
            producer.close()


def without_body(frames: list[bytes]) -> list[bytes]:
    assert len(frames) == 2
    return frames[:1]


def test_an_answer_without_the_body_that_it_names_ends_the_connection_and_the_send_is_made_anew() -> None:
    refusals = iter([Refuse(Code.HELD)])
    with hostile() as (node, client), client.producer("t") as producer:
        node.hook = lambda header: next(refusals, None) if header.opcode == Opcode.PUBLISH else None
        node.wrong, node.spoil = without_body, (Opcode.PUBLISH, 1)
        assert producer.send(rows(0, 3)).result(10)[0].rows == 3
        check_sent_anew(node, client)


def test_who_asked_hears_that_the_body_is_missing() -> None:
    with hostile() as (node, client):
        node.wrong, node.spoil = without_body, (Opcode.TABLE, 1)
        with pytest.raises(
            ringfence.ProtocolError, match="an answer has no body although its header announces one"
        ) as refused:
            client.layout("t")
        assert refused.value.address == node.address
        assert client.layout("t").name == "public/default/t", "over a connection of its own"
        check_left(node)

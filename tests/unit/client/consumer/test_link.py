"""A member on its I/O thread: connections, lost answers, and nodes that are too old."""

from __future__ import annotations

import pytest

import ringfence
from ringfence.consumer import link
from ringfence.native import wire
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import until
from tests.fakes.cohort_topic import MANY, all_settled, cohort_topic, ids, opened
from tests.fakes.socket_node import Drop, Fault


def test_answers_that_are_lost_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOIN_S", "CALL_S", "SETTLE_S", "ANSWER_GRACE_S"):
        monkeypatch.setattr(link, name, 0.2)
    dropped = dict.fromkeys((Opcode.JOIN, Opcode.ATTACH, Opcode.ACKNOWLEDGE), 1)

    def lose(header: wire.RequestHeader) -> Fault:
        if dropped.get(Opcode(header.opcode), 0):
            dropped[Opcode(header.opcode)] -= 1
            return Drop(served=True)
        return None

    with cohort_topic() as (node, client):
        node.hook = lose
        with opened(client) as consumer:
            assert ids(consumer) == list(range(MANY))
            consumer.next(0.1)
            until(lambda: all_settled(node), 30)


def test_a_node_that_is_older_than_cohorts_is_named() -> None:
    old = int(wire.Features.LINEAGE)
    with cohort_topic(features=old) as (_, client), opened(client) as consumer, pytest.raises(
        ringfence.ProtocolError, match="older than cohorts: update all nodes"
    ):  # fmt: skip
        consumer.next(5.0)

"""Nodes that left the cluster lose their connections, and nothing that was sent to them is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import ringfence
from ringfence.common.token import Token
from ringfence.native.wire import Opcode
from ringfence.network import peers as peers_module
from ringfence.network.peers import LOOK_AGAIN_S, UNUSED_S, Peers
from ringfence.network.request import PendingRequest, Request
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.fakes.socket_node import Drop, FakeNode
from tests.fakes.still_thread import StillThread


class StillSocket:
    """The connection of a peer; it notes that it was closed."""

    def __init__(self, *requests: Request) -> None:
        self.socket = self.monitor = object()
        self.is_closed = False
        self._requests = requests

    def pending(self) -> list[PendingRequest]:
        thread: Any = None
        return [PendingRequest(thread, thread, request, 0.0) for request in self._requests]

    def close(self) -> None:
        self.is_closed = True


class Poller:
    def unregister(self, socket: object) -> None:
        del socket


def connected(*nodes: int) -> tuple[StillThread, Peers, dict[int, StillSocket]]:
    thread: Any = StillThread()
    poller: Any = Poller()
    peers = Peers(thread, poller, ("tcp://a:0",), Token())
    sockets: dict[int, Any] = {node: StillSocket() for node in nodes}
    for node, socket in sockets.items():
        peers.of((f"tcp://a:{node}",), node).connection = socket
    return thread, peers, sockets


def closed(sockets: dict[int, StillSocket]) -> set[int]:
    return {node for node, socket in sockets.items() if socket.is_closed}


def test_a_node_that_no_table_names_any_more_loses_its_connection_after_half_a_minute() -> None:
    thread, peers, sockets = connected(1, 2, 3)
    peers.keep({1, 2, 3})
    thread.pass_s(UNUSED_S * 2)
    assert closed(sockets) == set()
    peers.keep({1, 3})
    thread.pass_s(UNUSED_S - 0.1)
    assert closed(sockets) == set()
    thread.pass_s(0.2)
    assert closed(sockets) == {2}
    assert set(peers.by_node) == {None, 1, 3}, "it is not connected again either"


def test_a_node_that_is_named_again_in_time_keeps_its_connection() -> None:
    thread, peers, sockets = connected(1, 2)
    peers.keep({1})
    thread.pass_s(UNUSED_S / 2)
    peers.keep({1, 2})
    thread.pass_s(UNUSED_S * 3)
    assert closed(sockets) == set()


def test_a_node_to_which_requests_are_routed_keeps_its_connection_until_they_end() -> None:
    """Reads of a topic that no producer uses: its table is fetched for each read."""
    thread, peers, sockets = connected(1, 2)
    peers.keep({1})
    for _ in range(10):
        thread.pass_s(UNUSED_S / 2)
        peers.of(("tcp://a:2",), 2)
    assert closed(sockets) == set()
    thread.pass_s(UNUSED_S + 0.1)
    assert closed(sockets) == {2}


def test_a_node_that_is_used_first_after_it_left_is_closed_as_well() -> None:
    thread, peers, sockets = connected(1)
    peers.keep({1})
    late: Any = StillSocket()
    peers.of(("tcp://a:2",), 2).connection = late
    thread.pass_s(UNUSED_S + 0.1)
    assert (closed(sockets), late.is_closed) == (set(), True)


def test_without_a_table_in_use_nothing_is_closed() -> None:
    thread, peers, sockets = connected(1, 2)
    peers.keep(set())
    thread.pass_s(UNUSED_S * 2)
    assert closed(sockets) == set()


def test_a_request_that_must_not_be_repeated_keeps_its_connection() -> None:
    thread, peers, _ = connected(1)
    once = Request(Opcode.TOPIC_TRUNCATE, b"", 0.0)
    once.once = True
    waits: Any = StillSocket(once)
    peers.of(("tcp://a:2",), 2).connection = waits
    peers.keep({1})
    thread.pass_s(UNUSED_S * 3)
    assert not waits.is_closed
    waits._requests = ()
    thread.pass_s(LOOK_AGAIN_S * 2)
    assert waits.is_closed


def test_requests_that_were_not_sent_go_to_another_node() -> None:
    thread, peers, _ = connected(1)
    request = Request(Opcode.FETCH, b"", 0.0, node=2)
    peers.of(("tcp://a:2",), 2).waiting.append(request)
    peers.keep({1})
    thread.pass_s(UNUSED_S + 0.1)
    assert thread.requests == [request]


# ---- real sockets ---------------------------------------------------------------------------------------


def test_the_socket_of_a_node_that_left_is_closed_and_its_outcomes_are_settled_at_the_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers_module, "UNUSED_S", 0.3)
    with (
        FakeNode(node=1) as first,
        FakeNode(node=2) as second,
        ringfence.connect(first.address, timeout_s=10) as client,
    ):
        client.create_topic("t", schema=SCHEMA, partitions=2, key=("id",))
        topic = first.topic_of("t")
        second.topics, second.owners = first.topics, first.owners
        first.addresses, second.addresses = {2: [second.address]}, {1: [first.address]}
        moving = max(topic.logs)
        first.owners[moving] = 2
        producer = client.producer("t")
        producer.send(rows(0, 50)).result(10)
        io_thread = client._io_thread
        assert set(io_thread._peers.by_node) == {None, 2}
        # The node stores what it gets, and never answers again: then it leaves.
        second.hook = lambda header: Drop(served=True) if header.opcode == Opcode.PUBLISH else None
        future = producer.send(rows(50, 50))
        until(lambda: any(one.partition == moving for one in second.sent(Opcode.PUBLISH)[1:]))
        del first.owners[moving]
        first.addresses.clear()
        topic.logs[moving].epoch += 1
        first.generation = second.generation = 99
        io_thread.call(lambda: client._tables.fetch(topic.topic, lambda *_: None))
        assert sum(part.rows for part in future.result(10)) == 50
        until(lambda: set(io_thread._peers.by_node) == {None})
        producer.send(rows(100, 50)).result(10)
        assert set(io_thread._peers.by_node) == {None}
        producer.close()
        assert client.count("t") == 150, "each row once"


def test_a_node_that_is_left_keeps_the_newer_connection_for_it_refuses_members_on_the_older_one() -> None:
    thread, peers, sockets = connected(1)
    newer: Any = StillSocket()
    newer.address, newer.ready = "tcp://a:0", SimpleNamespace(node=1)
    peers.first.connection = newer
    assert peers.leave_first(thread.now, ["tcp://a:2"])
    assert closed(sockets) == {1}
    assert not newer.is_closed
    assert peers.at(1).connection is newer

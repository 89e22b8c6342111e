"""A node that says nothing: what is asked elsewhere, what waits, and that nothing is sent twice for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import cast

import msgspec
import pytest

import ringfence
from ringfence.admin import Admin
from ringfence.common import failure_detector
from ringfence.common.codec import Answer
from ringfence.native import wire
from ringfence.native.cluster_messages import ScopeBegin, ScopeBegun
from ringfence.native.messages import Refused
from ringfence.native.wire import Code, Opcode
from ringfence.network.io_thread import IoThread
from ringfence.network.request import Request
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.fakes.socket_node import Drop, FakeNode, Fault, Refuse

# ---- what may be served late ----------------------------------------------------------------------------


class Kept:
    """A link that only keeps what is asked for."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def request(self, request: Request) -> Future[Answer]:
        self.requests.append(request)
        request.future.set_exception(ringfence.ConnectError("nobody"))
        return request.future


def test_all_tries_of_one_begin_are_one_driver_and_another_begin_is_another() -> None:
    io_thread = Kept()
    admin = Admin(cast("IoThread", io_thread), 1.0)
    for instance in (b"", b"", b"job"):
        with pytest.raises(ringfence.ConnectError):
            admin.begin(ScopeBegin(scope="s", instance=instance), admin.deadline())
    asked = [msgspec.msgpack.decode(request.body) for request in io_thread.requests]
    first, second, named = [each["instance"] for each in asked]
    assert first
    assert second not in {b"", first}
    assert named == b"job"
    assert [(each["after"], each["drawn"]) for each in asked] == [(0, True), (0, True), (0, False)]
    assert all(request.harmless_late for request in io_thread.requests)


class Contested(FakeNode):
    """A scope whose drivers are replaced as soon as one is told of: `drivers`, one a BEGIN."""

    def __init__(self, drivers: list[int]) -> None:
        super().__init__()
        self.drivers, self.begins = drivers, list[dict[str, object]]()

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        if header.opcode != Opcode.BEGIN:
            return super()._serve(header, body)
        self.begins.append(msgspec.msgpack.decode(body))
        if not self.drivers:
            return self._reply(header, ScopeBegun(scope_id=5, driver=99))
        told = Refused(message="another has it", details={"driver": self.drivers.pop(0)})
        return self._reply(header, told, wire.Status.REFUSED, code=Code.CONFLICT)


def test_a_begin_asks_again_behind_the_driver_that_it_is_told_of() -> None:
    with Contested([7, 8]) as node, ringfence.connect(node.address, timeout_s=10) as client:
        assert client.scopes.begin("s").driver == 99
        assert [each["after"] for each in node.begins] == [0, 7, 8]
        assert len({bytes(cast("bytes", each["instance"])) for each in node.begins}) == 1


def test_a_begin_that_is_refused_twice_for_the_same_driver_ends() -> None:
    with Contested([7, 7]) as node, ringfence.connect(node.address, timeout_s=10) as client:
        with pytest.raises(ringfence.ConflictError):
            client.scopes.begin("s")
        assert len(node.begins) == 2


def test_a_begin_that_loses_to_ever_more_rivals_pauses_and_ends_with_its_deadline() -> None:
    with Contested(list(range(7, 10_000))) as node, ringfence.connect(node.address, timeout_s=2) as client:
        began = time.monotonic()
        with pytest.raises(ringfence.DeadlineError, match="its own scope") as caught:
            client.scopes.begin("s")
        assert 0.9 < time.monotonic() - began < 5
    assert 6 <= len(node.begins) <= 22, (
        "two tries a pause, which doubles up to a second, half of that at least"
    )
    assert caught.value.values() == {
        "scope": "s",
        "driver": 6 + len(node.begins),
        "tries": len(node.begins),
        "retriable": True,
    }


def test_the_opening_of_a_named_producer_waits_for_its_node() -> None:
    io_thread = Kept()
    admin = Admin(cast("IoThread", io_thread), 1.0)
    for name in (None, "p"):
        with pytest.raises(ringfence.ConnectError):
            admin.open_producer("t", name)
    assert [request.harmless_late for request in io_thread.requests] == [True, False]


# ---- over sockets ---------------------------------------------------------------------------------------


def mute(_: wire.RequestHeader) -> Fault:
    return Drop(served=False)


@contextmanager
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeNode, FakeNode, ringfence.Client]]:
    """A client that is connected to the first of two, and takes it for silent after 0.9 s."""
    monkeypatch.setattr(failure_detector, "PROBE_S", 0.3)
    monkeypatch.setattr(failure_detector, "SILENT_S", 0.9)
    with (
        FakeNode(node=1) as first,
        FakeNode(node=2) as second,
        ringfence.connect(f"{first.address},{second.address}", timeout_s=20) as client,
    ):
        client.topics()
        assert not second.seen
        yield first, second, client


def test_what_any_node_may_serve_is_asked_for_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with two_nodes(monkeypatch) as (first, second, client):
        first.hook = mute
        began = time.monotonic()
        client.topics()
        assert time.monotonic() - began < 5, "the heartbeat would end it after 10 to 30 s"
        assert len(first.sent(Opcode.TABLE)) == 1, "one probe"
        assert len(second.sent(Opcode.TOPIC_LIST)) == 1


def test_what_a_late_copy_would_harm_waits_for_the_node_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with two_nodes(monkeypatch) as (first, second, client):
        first.hook = mute
        failed: list[BaseException] = []

        def create() -> None:
            try:
                client.create_topic("late", schema=SCHEMA)
            except BaseException as error:  # noqa: BLE001 - the test shows it
                failed.append(error)

        creating = threading.Thread(target=create)
        creating.start()
        until(lambda: bool(second.sent(Opcode.HELLO)), 10)
        client.topics()
        assert second.sent(Opcode.TOPIC_LIST)
        assert not second.sent(Opcode.TOPIC_CREATE)
        client.close()
        creating.join(10)
        assert [type(error) for error in failed] == [ringfence.ClosedError]


def test_a_batch_at_a_silent_owner_goes_on_at_the_one_that_another_node_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with two_nodes(monkeypatch) as (first, second, client):
        client.create_topic("t", schema=SCHEMA, partitions=1)
        with client.producer("t") as producer:
            producer.send(rows(0)).result(5)
            second.topics, second.generation = first.topics, first.generation + 1  # it has the same rows
            for log in second.topic_of("t").logs.values():
                log.epoch += 1
            before = len(first.sent(Opcode.PUBLISH))
            first.hook = mute
            began = time.monotonic()
            producer.send(rows(1)).result(15)
            assert time.monotonic() - began < 9
        assert len(first.sent(Opcode.PUBLISH)) == before + 1, "a silent owner gets one copy"
        assert [one.sequence for one in second.sent(Opcode.PUBLISH)] == [1], "the sequence is the same"


def test_an_owner_that_holds_a_batch_gets_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers probes, and so is not silent: no table is asked for, nothing is sent again."""
    with two_nodes(monkeypatch) as (first, second, client):
        client.create_topic("t", schema=SCHEMA, partitions=1)
        with client.producer("t") as producer:
            producer.send(rows(0)).result(5)
            before = len(first.sent(Opcode.PUBLISH))

            def holds(header: wire.RequestHeader) -> Fault:
                return Drop(served=False) if header.opcode == Opcode.PUBLISH else None

            first.hook = holds
            sending = producer.send(rows(1))
            time.sleep(2.5)
            first.hook = lambda _: Refuse(Code.HELD)
            assert not sending.done()
            assert len(first.sent(Opcode.PUBLISH)) == before + 1
            assert not second.seen
            assert len([one for one in first.sent(Opcode.TABLE) if one.topic == 0]) >= 2, "probes"
            first.hook = None
            producer._sender._io_thread.call(
                lambda: producer._sender.lost(1, 1)
            )  # as the try's own limit does
            sending.result(10)


def test_a_begin_of_a_topics_scope_ends_with_the_clients_time_where_nobody_answers() -> None:
    with FakeNode() as node, ringfence.connect(node.address, timeout_s=1) as client:
        client.create_topic("t", schema=SCHEMA)
        node.hook = lambda _: Drop(served=False)
        began = time.monotonic()
        with pytest.raises(ringfence.ConnectError):
            client.scopes.begin("s", topic="t")
        assert time.monotonic() - began < 10

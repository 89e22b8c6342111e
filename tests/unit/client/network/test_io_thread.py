"""Connections: lazy, found again, honest after a fork, silent about nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import zmq

import ringfence
from ringfence.common.codec import control_body
from ringfence.native import wire
from ringfence.native.messages import TopicList
from ringfence.native.wire import Code, Opcode
from ringfence.network.connection import Connection
from ringfence.network.io_thread import TICK_S
from ringfence.network.peer import Peer
from ringfence.network.request import Request
from tests.fakes.client_topic import SCHEMA, ids_of, node_with_topic, rows, send_all, until
from tests.fakes.socket_node import Drop, FakeNode, Refuse
from tests.harness.proxy import Proxy


def test_the_import_loads_neither_spark_nor_the_server() -> None:
    code = (
        "import sys, ringfence; ringfence.connect; ringfence.spark; ringfence.aio; "
        "heavy = {'pyspark', 'fastapi', 'uvicorn', 'click', 'rich', 'structlog', 'ringfence.control'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_bare_import_is_light() -> None:
    code = "import sys, ringfence; sys.exit(str({'pyarrow', 'zmq', 'numpy'} & set(sys.modules) or ''))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.strip() in {"", "set()"}


def test_every_name_in_all_exists_and_no_other() -> None:
    for name in ringfence.__all__:
        assert getattr(ringfence, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ringfence.nothing


def test_nobody_there_is_a_clear_error_within_the_timeout() -> None:
    began = time.monotonic()
    with (
        ringfence.connect("tcp://127.0.0.1:1", timeout_s=0.5) as client,
        pytest.raises(ringfence.ConnectError) as caught,
    ):
        client.topics()
    assert time.monotonic() - began < 5
    assert "ringfence serve" in str(caught.value)
    assert "tcp://127.0.0.1:1" in str(caught.value)


def test_who_does_not_answer_is_told_by_how_far_one_came() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        for address, told in (
            ("tcp://127.0.0.1:1", "refuses connections: check that `ringfence serve` runs there"),
            (f"tcp://127.0.0.1:{port}", "accepts connections but sends no handshake"),
            ("tcp://no-such-host.invalid:7411", "no response from .*: check the host name"),
        ):
            with (
                ringfence.connect(address, timeout_s=1) as client,
                pytest.raises(ringfence.ConnectError, match=told),
            ):
                client.topics()


def test_the_second_address_is_tried_when_the_first_is_dead() -> None:
    with FakeNode() as node, ringfence.connect(f"tcp://127.0.0.1:1,{node.address}", timeout_s=10) as client:
        assert client.topics() == []


def test_a_refused_handshake_is_told_at_once() -> None:
    with (
        FakeNode(
            hook=lambda header: Refuse(Code.UNAUTHORIZED) if header.opcode == Opcode.HELLO else None
        ) as node,
        ringfence.connect(node.address, timeout_s=30) as client,
        pytest.raises(ringfence.UnauthorizedError),
    ):
        client.topics()


def test_control_requests_are_asked_again_until_answered() -> None:
    planted = [Refuse(Code.INTERNAL), Refuse(Code.STOPPING)]
    with FakeNode() as node, ringfence.connect(node.address, timeout_s=20) as client:
        node.hook = lambda header: planted.pop() if header.opcode == Opcode.TOPIC_LIST and planted else None
        assert client.topics() == []
        assert planted == []


def test_a_create_whose_answer_was_lost_is_not_taken_for_a_taken_name() -> None:
    with (
        FakeNode() as node,
        Proxy(node.address) as proxy,
        ringfence.connect(proxy.address, timeout_s=20) as client,
    ):
        client.topics()
        proxy.cut_answers()
        made = threading.Thread(
            target=lambda: client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        )
        made.start()
        made.join(20)
        assert not made.is_alive()
        assert client.topic("t").key == ["id"]


def test_a_truncate_up_to_now_whose_answer_was_lost_is_not_asked_for_again() -> None:
    """Once more it would take the rows that came since."""
    with (
        FakeNode() as node,
        Proxy(node.address) as proxy,
        ringfence.connect(proxy.address, timeout_s=20) as client,
    ):
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        proxy.cut_answers()
        with pytest.raises(ringfence.UnknownOutcomeError, match="also remove rows that arrived since"):
            client.truncate("t")
        assert [header.opcode for header in node.seen].count(Opcode.TOPIC_TRUNCATE) == 1


def test_connections_that_break_lose_and_double_nothing() -> None:
    with (
        FakeNode() as node,
        Proxy(node.address) as proxy,
        ringfence.connect(proxy.address, timeout_s=20) as client,
    ):
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
        with client.producer("t") as producer:
            for start in range(0, 3000, 10):
                producer.send(rows(start, 10))
                if start % 500 == 250:
                    proxy.cut() if start % 1000 == 250 else proxy.cut_answers()
                time.sleep(0.001)
        assert proxy.cuts >= 5
        assert sorted(ids_of(client)) == list(range(3000))
        for log in node.topic_of("t").logs.values():
            assert [header.sequence for header in log.stored] == list(range(len(log.stored)))
        assert any(header.opcode == Opcode.PUBLISH for header in node.seen)


def test_a_node_that_comes_back_is_found_again() -> None:
    with FakeNode() as first:
        client = ringfence.connect(first.address, timeout_s=20)
        client.create_topic("t", schema=SCHEMA, partitions=1)
        producer = client.producer("t")
        producer.send(rows(0)).result(10)
        kept = first.topics
    future = producer.send(rows(1))
    second = FakeNode(address=first.address)
    second.topics = kept  # before it serves: the client is there at once
    with second:
        assert future.result(20)[0].first_offset == 1
        client.close()


def test_another_history_ends_the_producers_of_the_old_one() -> None:
    with FakeNode() as first:
        client = ringfence.connect(first.address, timeout_s=20)
        client.create_topic("t", schema=SCHEMA, partitions=1)
        producer = client.producer("t")
        producer.send(rows(0)).result(10)
        kept = first.topics
    second = FakeNode(address=first.address)
    second.topics, second.history = kept, b"x" * 16
    with second:
        with pytest.raises(ringfence.RingfenceError, match="restored"):
            producer.send(rows(1)).result(20)
        with pytest.raises(ringfence.RingfenceError):
            client.close()


def test_credit_is_not_exceeded_by_more_than_one_body() -> None:
    limit = 30_000
    with node_with_topic(partitions=2, credit_bytes=limit) as (node, client):
        most = 0
        with client.producer("t") as producer:
            for start in range(0, 20_000, 200):
                producer.send(rows(start, 200))
                connection = client._io_thread.first.connection
                most = max(most, connection.unanswered_bytes if connection is not None else 0)
        biggest = max(header.body_bytes for header in node.stored("t"))
        assert most <= limit + biggest


def test_a_message_above_the_nodes_limit_is_refused_here_and_the_connection_lives() -> None:
    with node_with_topic(partitions=1) as (node, client):
        producer = client.producer("t")
        producer.send(rows(0)).result(10)
        connection = client._io_thread.first.connection
        assert connection is not None
        connection.message_bytes_max = 1000
        with pytest.raises(ringfence.BatchError, match="message_bytes_max"):
            producer.send(rows(1, 500)).result(10)
        producer.send(rows(501)).result(10)
        assert client._io_thread.first.connection is connection
        assert len(node.sent(Opcode.HELLO)) == 1
        with pytest.raises(ringfence.BatchError):
            producer.close()


# ---- fork
# -----------------------------------------------------------------------------------------------------------

FORKED = """
import os, sys
import ringfence
from tests.fakes.client_topic import SCHEMA, rows
client = ringfence.connect(sys.argv[1], timeout_s=10)
producer = client.producer("t")
future = producer.send(rows(0))
future.result(10)
reader = client.read("t")
child = os.fork()
if child == 0:
    ok = True
    send, wait = (lambda: producer.send(rows(1))), (lambda: future.result(1))
    tries = send, wait, lambda: producer.flush(1), lambda: next(reader)
    for attempt in tries:
        try:
            attempt()
            ok = False
        except ringfence.ForkedError as error:
            ok = ok and "fork" in str(error)
    with client.producer("t") as mine:
        mine.send(rows(10)).result(10)
    ok = ok and client.count("t") == 2
    producer.close()
    client.close()
    os._exit(0 if ok else 3)
_, status = os.waitpid(child, 0)
producer.send(rows(20)).result(10)
client.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_connects_anew_or_hears_why_not() -> None:
    with FakeNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, partitions=1)
        done = subprocess.run(
            [sys.executable, "-c", FORKED, node.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert ids_of(client) == [0, 10, 20]


def test_a_program_that_forgets_to_close_still_ends() -> None:
    code = "import sys, ringfence; c = ringfence.connect(sys.argv[1]); c.topics(); p = c"
    with FakeNode() as node:
        done = subprocess.run(
            [sys.executable, "-c", code, node.address],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


FORGETFUL = """
import sys, ringfence
from tests.fakes.client_topic import rows
client = ringfence.connect(sys.argv[1], timeout_s=1)
producer = client.producer("t", linger_ms=int(sys.argv[2]), timeout_s=2)
for start in range(0, 2000, 10):
    producer.send(rows(start, 10))
"""


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_program_that_forgets_to_close_its_producer_loses_nothing(linger_ms: int) -> None:
    with FakeNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, partitions=1)
        done = subprocess.run(
            [sys.executable, "-c", FORGETFUL, node.address, str(linger_ms)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(ids_of(client)) == list(range(2000))


def test_what_a_forgotten_producer_could_not_store_is_said_at_the_end() -> None:
    with FakeNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, partitions=1)
        node.hook = lambda header: Drop(served=False) if header.opcode == Opcode.PUBLISH else None
        done = subprocess.run(
            [sys.executable, "-c", FORGETFUL, node.address, "0"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "was not closed, and not all of its rows are stored" in done.stderr
        assert "200 sends failed" in done.stderr, done.stderr


# ---- asyncio
# ----------------------------------------------------------------------------------------------------------


def test_the_asyncio_twin_does_the_same() -> None:
    async def work(address: str) -> list[int]:
        async with ringfence.aio.connect(address, timeout_s=10) as client:
            assert (await client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)).created
            async with client.producer("t") as producer:
                appended = await producer.send(rows(0, 100))
                assert sum(part.rows for part in appended) == 100
                futures = [await producer.submit(rows(start, 10)) for start in range(100, 300, 10)]
                await asyncio.gather(*futures)
            assert await client.count("t") == 300
            return [one async for batch in client.read("t") for one in batch.column("id").to_pylist()]

    with FakeNode() as node:
        assert sorted(asyncio.run(work(node.address))) == list(range(300))


def test_asyncio_sends_wait_for_room_without_blocking_the_loop() -> None:
    async def work(address: str) -> float:
        async with ringfence.aio.connect(address, timeout_s=10) as client:
            await client.create_topic("t", schema=SCHEMA, partitions=1)
            async with await client.producer("t", bytes_in_flight_max=20_000) as producer:

                async def beat() -> float:
                    worst, last = 0.0, time.monotonic()
                    for _ in range(50):
                        await asyncio.sleep(0.01)
                        worst, last = max(worst, time.monotonic() - last), time.monotonic()
                    return worst

                pulse = asyncio.create_task(beat())
                await asyncio.gather(*[producer.send(rows(start, 100)) for start in range(0, 5000, 100)])
                return await pulse

    delays = iter([Refuse(Code.OVERLOADED, 100)] * 10)
    with FakeNode(
        hook=lambda header: next(delays, None) if header.opcode == Opcode.PUBLISH else None
    ) as node:
        assert asyncio.run(work(node.address)) < 2.0
        assert sum(header.rows for header in node.stored("t")) == 5000


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that a shell started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_send_waits_for_room_leaves_the_producer_whole() -> None:
    with node_with_topic(
        partitions=1, hook=lambda header: Drop(served=False) if header.opcode == Opcode.PUBLISH else None
    ) as (_, client):
        producer = client.producer("t", bytes_in_flight_max=4000)

        def interrupt() -> None:
            until(lambda: producer._budget._waiting > 0)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            send_all(producer, 1000, 10)
        # The hook stays: a retry that came through between here and the end of `close` would end it well.
        held = producer.bytes_in_flight
        assert 0 < held <= 4000 + wire.HEADER_BYTES
        with pytest.raises(ringfence.RingfenceError):
            producer.close(timeout_s=0.1)
        assert producer.bytes_in_flight == 0


def test_a_socket_that_takes_nothing_is_left_and_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer is gone and the monitor has not said so yet: the sender span for ever."""
    with node_with_topic(partitions=1) as (_, client), client.producer("t") as producer:
        producer.send(rows(0)).result(10)
        deaf = client._io_thread.first.connection
        assert deaf is not None
        tries: list[int] = []
        flush = Connection.flush

        def flush_or_not(self: Connection) -> bool:
            if self is deaf and self._outgoing:
                tries.append(len(self._outgoing))
                monkeypatch.setattr(self, "socket", Full(self.socket))
                try:
                    return flush(self)
                finally:
                    monkeypatch.undo()
            return flush(self)

        monkeypatch.setattr(Connection, "flush", flush_or_not)
        assert producer.send(rows(1)).result(20)[0].first_offset == 1
        assert tries == [1]
        assert client._io_thread.first.connection is not deaf


class Full:
    """A socket that takes nothing."""

    def __init__(self, socket: object) -> None:
        self._socket = socket

    def send(self, *_: object, **__: object) -> None:
        raise zmq.Again


def test_a_lost_node_that_nobody_asks_does_not_make_a_waiting_client_spin() -> None:
    with FakeNode(node=1) as first, ringfence.connect(first.address, timeout_s=20) as client:
        client.topics()
        io_thread, turns = client._io_thread, 0
        with FakeNode(node=2) as second:
            owner = Peer(2, (second.address,))
            io_thread.call(lambda: io_thread._peers.by_node.setdefault(2, owner))
            listing = control_body(TopicList())
            io_thread.request(Request(Opcode.TOPIC_LIST, listing, time.monotonic() + 10, node=2)).result()
        until(lambda: owner.connection is None and owner.retry_at < time.monotonic())
        first.hook = lambda _: Drop(served=False)
        io_thread.request(Request(Opcode.TOPIC_LIST, listing, time.monotonic() + 2, wait_s=1.0))
        turn = io_thread._turn

        def counted() -> None:
            nonlocal turns
            turns += 1
            turn()

        io_thread._turn = counted  # type: ignore[method-assign]
        time.sleep(1)
    assert 0 < turns < 4 / TICK_S, "one turn each TICK_S, twice that for what comes in"

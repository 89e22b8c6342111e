"""A failing disk, a full one, a slow one, and peers that mean harm."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.native import wire
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, NodeProcess, batch, check_identity, read_ids, until
from tests.harness.raw_client import RawClient

MIB = 1 << 20


def fill(client: ringfence.Client, topic: str, batches: int, rows: int = 500) -> None:
    with client.producer(topic) as producer:
        for number in range(batches):
            producer.send(batch(number * rows, rows))


def test_a_failed_sync_is_never_retried_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", options=("--faults", "fail_sync=40"))
    node.start()
    with ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
    load = Load(node.address, "t", 0, rows=20, window=4, timeout_s=8, pause_s=0.0).start()
    until(lambda: bool(load.errors), 60, "the producer hears of the failed disk")
    load.finish()
    assert isinstance(load.errors[0], ringfence.RingfenceError), load.errors
    node.kill()
    sound = NodeProcess(tmp_path / "data")
    with sound, ringfence.connect(sound.address) as client:
        check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})
        fill(client, "t", 1)
    assert load.acknowledged, "something was acknowledged before the disk failed"


def test_a_full_disk_refuses_rows_serves_reads_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    node = NodeProcess(
        tmp_path / "data",
        options=("--faults", "full_after_bytes=40000000,full_for_ms=4000", "--segment-bytes", str(4 * MIB)),
    )
    with node, ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        load = Load(node.address, "t", 0, rows=2_000, window=8, timeout_s=60, pause_s=0.0).start()
        with RawClient(node.address) as raw:
            raw.hello()
            until(
                lambda: "disk" in str(client.status().reasons).lower(),
                40,
                "the node says that its disk is full",
            )
            first = next(iter(client.read("t")))
            assert first.num_rows > 0, "reads go on"
        until(lambda: not client.status().reasons, 40, "the node goes on by itself")
        time.sleep(0.5)
        load.finish()
        assert load.errors == []
        check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})


def test_memory_stays_within_the_budget_under_overload_with_a_slow_disk(tmp_path: Path) -> None:
    budget = 64 * MIB
    node = NodeProcess(
        tmp_path / "data", options=("--faults", "slow_sync_ms=40", "--budget-bytes", str(budget))
    )
    with node, ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, partitions=4)
        idle = node.resident_bytes()
        loads = [
            Load(node.address, "t", producer, rows=40_000, window=48, timeout_s=120, pause_s=0.0).start()
            for producer in range(3)
        ]
        peak = 0
        for _ in range(80):
            peak = max(peak, node.resident_bytes())
            time.sleep(0.1)
        for load in loads:
            load.finish()
        assert [load.errors for load in loads] == [[], [], []]
        assert sum(load.sent for load in loads) > 0
    # The pool is touched at start, so what is resident when idle holds the budget already.
    assert peak <= idle + budget // 10, (
        f"idle {idle >> 20} MiB, peak {peak >> 20} MiB, budget {budget >> 20} MiB"
    )


@pytest.mark.timeout(300)
def test_garbage_connections_disturb_nobody_and_leave_nothing_behind(tmp_path: Path, soak: int) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        load = Load(node.address, "t", 0).start()
        before = node.resident_bytes()
        descriptors = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
        garbage = [
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 64,
            bytes(64),
            b"\xff" + bytes(8) + b"\x7f\x03" + b"z" * 200,
        ]
        for number in range(50_000):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                one.connect(("127.0.0.1", node.port))
                if body := garbage[number % len(garbage)]:
                    one.send(body)
        until(
            lambda: len(list(Path(f"/proc/{node.pid}/fd").iterdir())) <= descriptors + 8,
            30,
            "descriptors are closed",
        )
        assert node.resident_bytes() < before + 64 * MIB
        load.finish()
        assert load.errors == []
        check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})


def test_a_client_that_never_reads_harms_nobody_else(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address) as client:
        info = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        fill(client, "t", 200, rows=5_000)
        before = node.resident_bytes()
        deaf = RawClient(node.address)
        deaf.hello()
        place: dict[str, Any] = {"topic": info.topic, "partition": info.partitions[0].partition}

        def ask() -> None:
            for _ in range(2_000):
                deaf.send(wire.Opcode.FETCH, sequence=0, send=8 * MIB, deadline_ms=100, **place)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        for _ in range(20):
            assert sum(part.num_rows for part in client.read("t")) == 1_000_000
        assert node.resident_bytes() < before + 256 * MIB
        thread.join(20)
        deaf.close()


def test_bodies_that_trickle_in_hold_up_no_reads(tmp_path: Path) -> None:
    """Six that together announce most of the pool, and send enough never to be silent."""
    node = NodeProcess(tmp_path / "data", options=("--budget-bytes", str(64 * MIB)))
    stop = threading.Event()
    with node, ringfence.connect(node.address, timeout_s=20) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        fill(client, "t", 20)
        slow = [greeted(node.port) for _ in range(6)]
        with RawClient(node.address) as raw:
            head = raw.frames(wire.Opcode.PUBLISH, body_bytes=8 * MIB)[0]
        for one in slow:
            one.sendall(b"\x01\x80" + head + b"\x02" + (8 * MIB).to_bytes(8, "big") + bytes(100_000))

        def trickle() -> None:
            while not stop.wait(0.2):
                for one in slow:
                    one.sendall(bytes(1_000))

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        until(lambda: client.status().counters["pool_free_bytes"] < 40 * MIB, 60, "their blocks are taken")
        time.sleep(1)  # for those that come later
        assert sum(part.num_rows for part in client.read("t")) == 10_000
        fill(client, "t", 20, rows=400)
        assert client.count("t") == 18_000
        counters = client.status().counters
        assert counters["waiting_bodies"] == 3
        assert counters["arriving_bytes"] <= 28 * MIB
        stop.set()
        thread.join(20)
        for one in slow:
            one.close()
        until(lambda: client.status().counters["arriving_bytes"] == 0, 60, "their blocks are back")
        assert client.status().counters["waiting_bodies"] == 0


def test_bodies_that_are_late_are_cut_for_a_read_that_waits_and_no_more_of_them_than_it_needs(
    tmp_path: Path,
) -> None:
    """A body has half a minute, and a second for each MiB: the one test that must wait as long."""
    node = NodeProcess(tmp_path / "data", options=("--budget-bytes", str(16 * MIB)))
    stop = threading.Event()
    with node, ringfence.connect(node.address, timeout_s=60) as client:
        info = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        fill(client, "t", 20)
        # Six of them take 6.9 of the pool's 14 MiB, within the half that bodies may have.
        slow, size = [greeted(node.port) for _ in range(6)], 1_200_000
        with RawClient(node.address) as raw:
            head = raw.frames(wire.Opcode.PUBLISH, body_bytes=size)[0]
            for one in slow:
                one.sendall(b"\x01\x80" + head + b"\x02" + size.to_bytes(8, "big") + bytes(size // 2))

            def trickle() -> None:
                while not stop.wait(0.5):
                    for one in slow:
                        with contextlib.suppress(OSError):  # it was cut
                            one.sendall(bytes(1_000))

            thread = threading.Thread(target=trickle, daemon=True)
            thread.start()
            until(lambda: client.status().counters["arriving_bytes"] >= 6 * size, 60, "six half bodies")
            began_s = time.monotonic()
            # A quarter of the pool is never read into: 3.5 MiB and these 4 are more than is free.
            answer = raw.ask(
                wire.Opcode.FETCH,
                timeout_ms=50_000,
                sequence=0,
                send=4 * MIB,
                deadline_ms=60_000,
                topic=info.topic,
                partition=info.partitions[0].partition,
            )
        waited_s = time.monotonic() - began_s
        assert answer.status == wire.Status.OK, answer.header
        assert answer.header.rows == 10_000, answer.header
        assert waited_s > 20, f"it waited {waited_s:.1f} s: nothing held it up"
        counters = client.status().counters
        assert 1 <= counters["bodies_cut"] < 6, counters["bodies_cut"]
        assert counters["arriving_bytes"] > 0, "the others go on"
        fill(client, "t", 20, rows=400)
        assert client.count("t") == 18_000
        stop.set()
        thread.join(20)
        for one in slow:
            one.close()


def test_connections_leave_descriptors_for_the_log(tmp_path: Path) -> None:
    """More open connections than the system allows files: the next segment finds one all the same."""
    node = NodeProcess(tmp_path / "data", options=("--segment-bytes", str(MIB)), open_files=200)
    with node, ringfence.connect(node.address, timeout_s=20) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1)
        with client.producer("t", timeout_s=20) as producer:
            producer.send(batch(0, 10)).result(20)
            held = [greeted(node.port) for _ in range(90)]
            held += [socket.create_connection(("127.0.0.1", node.port)) for _ in range(200)]
            for number in range(1, 13):
                producer.send(batch(number * 1_000, 1_000, text="x" * 200)).result(20)
        assert len(list((node.data / "log").glob("*.seg"))) >= 3
        assert client.count("t") == 12_010
        assert client.status().state == "serving"
        for one in held:
            one.close()
    assert "fewer connections than connections_max" in node.log.read_text()


def greeted(port: int) -> socket.socket:
    """A connection that has shaken hands (ZMTP 3.0, so that nobody pings it), and stays."""
    opened = socket.create_connection(("127.0.0.1", port))
    opened.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
    opened.sendall(bytes([4, len(ready)]) + ready)
    return opened

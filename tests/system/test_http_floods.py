"""Connections to the admin API that never ask anything: they end, and the log keeps its descriptors."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
from tests.fakes.admin_api import send
from tests.harness.admin_http import open_raw, read_until_closed
from tests.harness.processes import NodeProcess, free_port, until

HEAD = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "


def status(port: int) -> int:
    try:
        return send(f"http://127.0.0.1:{port}", "GET", "/health/live").status
    except OSError:
        return 0


@pytest.mark.timeout(180)
def test_heads_that_never_end_take_no_descriptor_from_the_log(tmp_path: Path) -> None:
    port = free_port()
    options = ("--http", f"127.0.0.1:{port}", "--segment-bytes", str(1 << 20))
    node = NodeProcess(tmp_path / "data", options=options, open_files=200)
    with node, ringfence.connect(node.address, timeout_s=20) as client:
        client.create_topic("t", schema=pa.schema([("text", pa.string())]), partitions=1)
        # 200 open files: 100 of them kept, a third of those for HTTP.
        flood = [open_raw(port, HEAD if number % 2 else b"") for number in range(300)]
        held = [open_raw(port, HEAD if number % 2 else b"") for number in range(33)]
        with client.producer("t", timeout_s=20) as producer:
            for _ in range(12):  # each begins a segment of a MiB, or nearly
                producer.send(pa.table({"text": ["x" * 800_000]})).result(20)
        assert {read_until_closed(one)[:12] for one in flood} <= {b"", b"HTTP/1.1 503"}
        dripping = held[1]
        answer, until_s = b"", time.monotonic() + 60
        while not answer and time.monotonic() < until_s:
            dripping.settimeout(0.5)
            try:
                dripping.sendall(b"x")
                answer = dripping.recv(4_096)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408"), "each byte must not begin the time anew"
        assert {read_until_closed(one)[:12] for one in held if one is not dripping} == {b"HTTP/1.1 408"}, (
            "all were open"
        )
        dripping.close()
        until(lambda: status(port) == 200, 30, "it answers again")
        assert client.status().state == "serving"
        assert client.count("t") == 12
    log = node.log.read_text()
    assert "Traceback" not in log
    assert log.count("connections above the limit") < 10


@pytest.mark.timeout(180)
def test_probes_are_answered_whatever_holds_the_other_connections(tmp_path: Path) -> None:
    """An orchestrator kills a node whose /health/live fails: half-sent heads and bodies must not do that."""
    port = free_port()
    with NodeProcess(tmp_path / "data", options=("--http", f"127.0.0.1:{port}")):
        floods = {
            "heads": HEAD,
            "nothing": b"",
            "bodies": b"POST /admin/topics HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{",
            "bodies of probes": b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{",
        }
        for kind, first in floods.items():
            held = [open_raw(port, first) for _ in range(200)]
            assert [status(port) for _ in range(30)] == [200] * 30, kind
            for one in held:
                one.close()

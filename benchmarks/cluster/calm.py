"""No elections that should not be: three nodes while every core is busy and rows and requests come in."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import ringfence
from benchmarks.cluster.nodes import Nodes
from benchmarks.paths import work_directory

SECONDS = 300.0
BUSY_A_CORE = 2
ROWS = 1_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])


def _spin() -> None:
    while True:
        sum(range(100_000))


class _Flow:
    """Threads that send rows and ask for descriptions through every node until `end`."""

    def __init__(self, addresses: list[str]) -> None:
        self._end, self.rows, self.requests = threading.Event(), 0, 0
        works = [(work, address) for address in addresses for work in (self._send, self._describe)]
        self._threads = [threading.Thread(target=work, args=(address,)) for work, address in works]
        for thread in self._threads:
            thread.start()

    def _send(self, address: str) -> None:
        rows = pa.record_batch([pa.array(range(ROWS)), pa.array(["x" * 20] * ROWS)], schema=SCHEMA)
        with ringfence.connect(address) as client, client.producer("t") as producer:
            while not self._end.is_set():
                producer.send(rows).result()
                self.rows += ROWS

    def _describe(self, address: str) -> None:
        with ringfence.connect(address) as client:
            while not self._end.is_set():
                client.topic("t")
                self.requests += 1

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


def measure(seconds: float = SECONDS) -> dict[str, Any]:
    """Elections while nothing failed, and what was done meanwhile."""
    busy = [
        multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
        for _ in range(BUSY_A_CORE * (os.cpu_count() or 1))
    ]
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        with ringfence.connect(nodes.all[0].address) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6, retention_bytes=64 << 20)
        before, leader = max(nodes.terms()), nodes.leader().node
        flow = _Flow([node.address for node in nodes.all])
        for process in busy:
            process.start()
        try:
            time.sleep(seconds)
        finally:
            flow.end()
            for process in busy:
                with contextlib.suppress(AttributeError):
                    process.kill()
        nodes.until_whole()
        after = max(nodes.terms())
        return {
            "limits": {"elections": 0},
            "seconds": seconds,
            "busy_processes": len(busy),
            "elections": after - before,
            "same_leader": nodes.leader().node == leader,
            "rows": flow.rows,
            "requests": flow.requests,
            "load_average": round(os.getloadavg()[0], 1),
        }


def held(result: dict[str, Any]) -> bool:
    return bool(result["elections"] == 0 and result["same_leader"])

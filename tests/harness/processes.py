"""Real processes for the system tests: a node that can be killed, and the check of what it acknowledged."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from ringfence.control.cli.local_ports import free_ports
from tests.harness import forks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import ringfence

START_TIMEOUT_S = 60.0  # a loaded CI machine recovers a few hundred MB in this time
PROGRAM = forks.PROGRAM
FILES = ("--segment-bytes", "96MiB", "--reserve-bytes", "8MiB")
"""Sizes of a node's files; options of a test's own come after them, and hold.

A node allocates two segments and the reserve when it starts: 200 MiB, not the 576 of the default settings,
because several clusters are on the disk at the same time. The largest body of the default settings fits.
"""
FREE_BYTES_MIN = 512 << 20
"""Free space of the disk with temporary files: for two nodes that start at the same time."""
GONE_S = 60.0
"""For a killed process to end: a write that waits for a slow disk is carried out first."""
LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)); os.execv(sys.argv[2], sys.argv[2:])"
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("producer", pa.int64()),
        pa.field("text", pa.string()),
    ]
)


_ours: list[socket.socket] = []
_numbers = itertools.count(1)


def free_port() -> int:
    """A port that no other test process gets before this one ends, so that a node can go and come back.

    What holds it is a name of Linux's abstract sockets: it goes with the process, however that ends.
    """
    while True:
        (port,) = free_ports(1)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0ringfence-test-port-{port}")
        except OSError:
            name.close()
            continue
        _ours.append(name)
        return port


def log_of(data: Path, folder: Path | None) -> Path:
    """Of one more process on `data`: beside it, where pytest removes both, and never on a disk of its own.

    A test's disk gets full or loses its power, and the log says what the node made of it.
    """
    if folder is not None:
        return folder / f"{data.name}.log"
    folder = data.parent
    while folder.is_mount():
        folder = folder.parent
    return folder / f"{data.name}-{next(_numbers)}.log"


def check_space(folder: Path, wanted: int = FREE_BYTES_MIN) -> None:
    """Fail if the disk of `folder` is nearly full: tests of full disks fill small disks of their own."""
    free = shutil.disk_usage(folder).free
    assert free >= wanted, (
        f"the disk of {folder} has {free >> 20} MiB free, and this test needs {wanted >> 20} MiB: "
        "remove files, or set TMPDIR to a folder on another disk"
    )


@dataclass
class NodeProcess:
    """`ringfence serve` on a fixed port, so that clients find it again after a restart."""

    data: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    open_files: int | None = None  # limit of the process, soft and hard
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """What the program is run by: `ip netns exec NAME`, say; it must become the program by exec."""
    log_folder: Path | None = None
    """None: beside the data directory."""
    program: Path = PROGRAM
    log: Path = field(init=False)
    process: forks.Process | None = None
    ready: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = log_of(self.data, self.log_folder)

    @property
    def address(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    def start(self) -> Self:
        """Start, and wait for the line that says it serves. Raises AssertionError with its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        check_space(self.log.parent)
        command = [
            *self.prefix,
            str(self.program),
            "serve",
            "--json",
            "--data",
            str(self.data),
            "--listen",
            self.address,
            *FILES,
            *self.options,
        ]
        if self.open_files is not None:
            command = [sys.executable, "-c", LIMITED, str(self.open_files), *command]
        with self.log.open("ab") as log:
            self.process = forks.start(command, environment=self.environment, stderr=log.fileno())
        self.ready = json.loads(self._first_line())
        return self

    def _first_line(self) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            if not readable:
                self.process.kill()
            code = self._gone(GONE_S)
            raise AssertionError(f"serve did not start, exit code {code}:\n{self.log.read_text()[-4000:]}")
        return line

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def freeze(self) -> None:
        """SIGSTOP: it holds its sockets and files and does nothing."""
        freeze(self.pid)

    def wake(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self._gone(GONE_S)

    def stop(self, timeout_s: float = GONE_S) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._gone(timeout_s)

    def _gone(self, timeout_s: float) -> int:
        assert self.process is not None
        code = self.process.wait(timeout_s)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def restart(self) -> Self:
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def batch(start: int, rows: int, producer: int = 0, text: str = "x") -> pa.RecordBatch:
    """Rows `start` .. `start + rows - 1`: the id tells which row it is, wherever it turns up."""
    ids = range(start, start + rows)
    return pa.record_batch(
        [
            pa.array(ids, pa.int64()),
            pa.array([producer] * rows, pa.int64()),
            pa.array([f"{text}{i}" for i in ids]),
        ],
        schema=SCHEMA,
    )


def cli(
    *arguments: str, address: str | None = None, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"RINGFENCE_ADDRESS": address} if address else {})}
    return forks.run([str(PROGRAM), *arguments], timeout_s, environment)


def read_ids(client: ringfence.Client, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Per partition the (producer, id) of every row in read order."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for partition in sorted(entry.partition for entry in client.topic(topic).partitions):
        got = rows.setdefault(partition, [])
        for part in client.read(topic, partition=partition):
            got.extend(zip(part.column("producer").to_pylist(), part.column("id").to_pylist(), strict=True))
    return rows


def check_identity(
    rows: dict[int, list[tuple[int, int]]], acknowledged: Mapping[int, Iterable[int]], sent: dict[int, int]
) -> None:
    """I5, I6, I7: acknowledged ids once, no id twice or never sent, each producer in order in a partition."""
    seen: set[tuple[int, int]] = set()
    for partition, pairs in rows.items():
        last: dict[int, int] = {}
        for producer, row in pairs:
            assert (producer, row) not in seen, (
                f"I6: producer {producer} row {row} is stored twice (partition {partition})"
            )
            assert row > last.get(producer, -1), (
                f"I7: producer {producer} row {row} comes after {last[producer]} in partition {partition}"
            )
            assert row < sent[producer], f"producer {producer} never sent row {row}"
            seen.add((producer, row))
            last[producer] = row
    for producer, ids in acknowledged.items():
        lost = [row for row in ids if (producer, row) not in seen]
        assert not lost, (
            f"I5: {len(lost)} acknowledged rows of producer {producer} are lost, first {lost[:5]}"
        )


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until the process stands still.

    One of its threads is told, and tells the others once a core is free for it: till then they go on.
    """
    os.kill(pid, signal.SIGSTOP)
    until(lambda: _standing(pid), what=f"process {pid} stands still")


def _standing(pid: int) -> bool:
    """Whether no thread of the process does anything: stopped, stopped by a tracer, or gone."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.add(thread.read_text().rpartition(")")[2].split()[0])
    return states <= set("TtZX")


def until(condition: Any, timeout_s: float = 60, what: str = "condition") -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not hold within {timeout_s} s"
        time.sleep(0.02)

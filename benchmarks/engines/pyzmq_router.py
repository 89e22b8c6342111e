"""A peer as one would write it in an afternoon: a pyzmq ROUTER, `writev`, `fdatasync`, answer."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.base import Pace, Turn, address_for, running
from benchmarks.engines.native_sender import native_turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload


@dataclass(frozen=True)
class _Router:
    workload: Workload
    address: str
    pid: int

    def turn(self, pace: Pace) -> Turn:
        return native_turn(self.workload, address=self.address, framing="plain", pid=self.pid, pace=pace)


@dataclass(frozen=True)
class PyzmqRouter:
    name: str = "pyzmq_router"
    durability: str = "fdatasync, page cache"
    transports: tuple[str, ...] = ("tcp",)

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[_Router]:
        command = [sys.executable, "-m", "benchmarks.servers.pyzmq_server", address_for(transport, directory)]
        with running([*command, str(directory / "log")], directory / "stderr") as (pid, ready):
            yield _Router(workload, ready["address"], pid)


PYZMQ_ROUTER = PyzmqRouter()

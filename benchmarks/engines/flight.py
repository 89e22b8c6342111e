"""A peer: Arrow Flight DoPut of pyarrow with `fdatasync` before each answer."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.base import Turn, address_for, running, send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload


@dataclass(frozen=True)
class _FlightServer:
    workload: Workload
    address: str
    pid: int

    def turn(self, *, quick: bool) -> Turn:
        command = [sys.executable, "-m", "benchmarks.senders.flight_sender", self.address, self.workload.name]
        return Turn.of(send([*command, str(self.pid), *(["--quick"] if quick else [])]))


@dataclass(frozen=True)
class Flight:
    name: str = "flight"
    durability: str = "fdatasync, page cache"
    transports: tuple[str, ...] = ("tcp", "ipc")

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[_FlightServer]:
        command = [
            sys.executable,
            "-m",
            "benchmarks.servers.flight_server",
            address_for(transport, directory),
        ]
        with running([*command, str(directory / "log")], directory / "stderr") as (pid, ready):
            yield _FlightServer(workload, ready["address"], pid)


FLIGHT = Flight()

"""A peer: Arrow Flight DoPut of pyarrow with `fdatasync` before each answer."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.base import Pace, Turn, address_for, running, send, sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload


@dataclass(frozen=True)
class _FlightServer:
    workload: Workload
    address: str
    pid: int

    def turn(self, pace: Pace) -> Turn:
        command = [sys.executable, "-m", "benchmarks.senders.flight_sender", self.address, self.workload.name]
        return Turn.of(send([*command, str(self.pid), *sizes_of(self.workload, pace)]))


@dataclass(frozen=True)
class Flight:
    name: str = "flight"
    durability: str = "fdatasync, page cache"
    transports: tuple[str, ...] = ("tcp",)

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

"""The limit: the probe, over O_DIRECT or through the page cache. See native/src/probe/mod.rs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.base import Pace, Turn, address_for, running
from benchmarks.engines.native_sender import native_turn
from benchmarks.native_build import programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload

FILE_BYTES = (
    4 << 30
)  # as large as what a full turn of the big workload writes; recycled from the second turn on


@dataclass(frozen=True)
class _Probe:
    workload: Workload
    address: str
    pid: int

    def turn(self, pace: Pace) -> Turn:
        return native_turn(self.workload, address=self.address, framing="probe", pid=self.pid, pace=pace)


@dataclass(frozen=True)
class Limit:
    name: str
    durability: str
    options: tuple[str, ...] = ()
    transports: tuple[str, ...] = ("tcp", "ipc")

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[_Probe]:
        # One file for all workloads: it was written once, and every run recycles it.
        file = directory.parent / f"{self.name}.log"
        command = [programs()["probe"], "--listen", address_for(transport, directory), "--file", str(file)]
        command += ["--file-bytes", str(FILE_BYTES), *self.options]
        with running(command, directory / "stderr") as (pid, ready):
            yield _Probe(workload, ready["address"], pid)


LIMIT = Limit("limit", "fdatasync, O_DIRECT")
LIMIT_BUFFERED = Limit("limit_buffered", "fdatasync, page cache", ("--buffered",), ("tcp",))

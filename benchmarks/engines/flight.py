"""A peer: Arrow Flight DoPut of pyarrow with `fdatasync` before each answer."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.base import address_for, running
from benchmarks.engines.python_sender import PythonSent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload


@dataclass(frozen=True)
class Flight:
    name: str = "flight"
    durability: str = "fdatasync, page cache"
    transports: tuple[str, ...] = ("tcp",)

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[PythonSent]:
        command = [
            sys.executable,
            "-m",
            "benchmarks.servers.flight_server",
            address_for(transport, directory),
        ]
        with running([*command, str(directory / "log")], directory / "stderr") as (pid, ready):
            yield PythonSent(workload, "flight_sender", (ready["address"],), pid)


FLIGHT = Flight()

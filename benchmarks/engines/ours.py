"""ringfence itself: a real `ringfence serve`, fed by the native load generator or by the Python producer."""

from __future__ import annotations

import itertools
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.dataset import schema_of
from benchmarks.engines.base import Pace, Turn, address_for, running, send, sizes_of
from benchmarks.engines.native_sender import native_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.workload import Workload

TOPIC = "bench"
# A turn writes more than this, so that segment files are recycled, as they are in a log that has run for a
# day.
RETENTION_BYTES = 1 << 30


def program() -> str:
    """The installed `ringfence`: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("ringfence")
    found = str(beside) if beside.exists() else shutil.which("ringfence")
    if found is None:
        raise FileNotFoundError("ringfence is not installed in this environment; `make setup` does it")
    return found


@dataclass
class Node:
    """A running node and its topics."""

    workload: Workload
    directory: Path
    address: str
    pid: int
    topics: list[str]
    _names: Iterator[int] = field(default_factory=itertools.count)

    def turn(self, pace: Pace) -> Turn:
        if self.workload.sender == "python":
            command = [sys.executable, "-m", "benchmarks.senders.python_producer", self.address, TOPIC]
            sizes = sizes_of(self.workload, pace)
            return Turn.of(send([*command, self.workload.name, str(self.pid), *sizes]))
        from benchmarks.node_client import NodeClient, save_lanes  # noqa: PLC0415 - needs the installed package

        lanes = self.directory / f"lanes-{next(self._names)}"
        with NodeClient(self.address) as client:
            save_lanes(client.lanes(self.topics, self.workload.producers), lanes)
        more = ["--lanes", str(lanes)]
        return native_turn(
            self.workload, address=self.address, framing="ringfence", pid=self.pid, pace=pace, more=more
        )


@dataclass(frozen=True)
class Ours:
    name: str = "ours"
    durability: str = "fdatasync, O_DIRECT"
    transports: tuple[str, ...] = ("tcp", "ipc")

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[Node]:
        from benchmarks.node_client import NodeClient  # noqa: PLC0415 - needs the installed package

        command = [program(), "serve", "--json", "--data", str(directory / "data")]
        command += ["--listen", address_for(transport, directory), *workload.options]
        with running(command, directory / "stderr") as (pid, ready):
            address = ready["address"]
            with NodeClient(address) as client:
                topics = client.create_topics(
                    TOPIC,
                    schema_of(workload),
                    key=workload.key,
                    partitions=workload.partitions,
                    retention_bytes=max(1, RETENTION_BYTES // workload.partitions),
                )
            yield Node(workload, directory, address, pid, topics)


OURS = Ours()

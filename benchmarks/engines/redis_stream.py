"""A peer: Redis streams, append-only file with `appendfsync always`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.python_sender import PythonSent
from benchmarks.peers import installed
from benchmarks.peers.process import HOST, free_port, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload

OPTIONS = {
    "bind": HOST,
    "protected-mode": "yes",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",  # no snapshots beside the append-only file
    "auto-aof-rewrite-percentage": "0",  # the sender has it rewritten between turns
    "loglevel": "warning",
}


@dataclass(frozen=True)
class RedisStream:
    name: str = "redis"
    durability: str = "XADD answered after fdatasync of the append-only file (appendfsync always), page cache"
    transports: tuple[str, ...] = ("tcp",)

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[PythonSent]:
        del transport
        installed.require("redis")
        port = free_port()
        command = [installed.redis_program(), "--port", str(port), "--dir", str(directory)]
        command += [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
        with serving(command, directory / "log", port) as pid:
            yield PythonSent(workload, "redis_sender", (str(port),), pid)


REDIS_STREAM = RedisStream()

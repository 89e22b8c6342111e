"""A peer: NATS JetStream, a file stream with `sync_interval: always`."""

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

# One body is one message, so that the bytes are those of the other engines; its documents advise 8 MB at
# most, and the largest body is 8 MiB.
CONFIGURATION = """
listen: "{host}:{port}"
max_payload: 16777216
jetstream {{
  store_dir: "{directory}"
  sync_interval: always
  max_file_store: 8589934592
}}
"""


@dataclass(frozen=True)
class NatsJetStream:
    name: str = "nats"
    durability: str = (
        "JetStream PubAck after fsync of each message (sync_interval always), one replica, page cache"
    )
    transports: tuple[str, ...] = ("tcp",)

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[PythonSent]:
        del transport
        installed.require("nats")
        port, file = free_port(), directory / "nats.conf"
        file.write_text(CONFIGURATION.format(host=HOST, port=port, directory=directory / "data"))
        with serving([installed.nats_program(), "-c", str(file)], directory / "log", port) as pid:
            yield PythonSent(workload, "nats_sender", (str(port),), pid)


NATS_JETSTREAM = NatsJetStream()

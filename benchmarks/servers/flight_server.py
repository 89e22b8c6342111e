"""`python -m benchmarks.servers.flight_server ADDRESS FILE`: Arrow Flight DoPut, write, fdatasync, metadata.

Each batch is written as one IPC message and synced before its number goes back. The file begins anew at
FILE_BYTES_MAX.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pyarrow.flight as fl

FILE_BYTES_MAX = 4 << 30


class Server(fl.FlightServerBase):  # type: ignore[misc]
    """One file, one stream at a time."""

    def __init__(self, location: str, path: str) -> None:
        super().__init__(location)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR)
        self._at = 0

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Store every batch; an answer is its number in the stream, u64 little-endian."""
        del context, descriptor
        for number, chunk in enumerate(reader):
            message = memoryview(chunk.data.serialize())
            if self._at > FILE_BYTES_MAX:
                self._at = 0
            while message:
                written = os.pwrite(self._file, message, self._at)
                self._at += written
                message = message[written:]
            os.fdatasync(self._file)
            writer.write(number.to_bytes(8, "little"))


def main() -> None:
    address, path = sys.argv[1:]
    unix = address.startswith("ipc://")
    server = Server(address.replace("ipc://", "grpc+unix://") if unix else "grpc+tcp://127.0.0.1:0", path)
    told = address.replace("ipc://", "grpc+unix://") if unix else f"grpc+tcp://127.0.0.1:{server.port}"
    print(json.dumps({"address": told}), flush=True)
    server.serve()


if __name__ == "__main__":
    main()

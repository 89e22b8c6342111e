"""`python -m benchmarks.servers.pyzmq_server ADDRESS FILE`: ROUTER, write, fdatasync, answer.

Takes what is waiting as one group, at most GROUP_MESSAGES of it, so that it is not one sync a request. The
file begins anew at FILE_BYTES_MAX. An answer is one frame of u64 request ids, those of the group.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import zmq

GROUP_MESSAGES = 512  # two buffers each: what one writev takes (IOV_MAX is 1024)
FILE_BYTES_MAX = 4 << 30
REQUEST_ID = slice(8, 16)  # of the request header, core/wire/wire.toml


def take_group(router: zmq.Socket[Any]) -> dict[bytes, list[tuple[Any, Any]]]:
    """Wait for a message, then take what else is there: (header, body) by sender."""
    group: dict[bytes, list[tuple[Any, Any]]] = {}
    flags = 0
    for _ in range(GROUP_MESSAGES):
        try:
            sender, header, body = router.recv_multipart(flags, copy=False)
        except zmq.Again:
            break
        group.setdefault(bytes(sender.buffer), []).append((header.buffer, body.buffer))
        flags = zmq.NOBLOCK
    return group


def write_all(file: int, parts: list[Any], at: int) -> int:
    """Write every part; the position behind them."""
    wanted = sum(len(part) for part in parts)
    written = os.pwritev(file, parts, at)
    if written < wanted:
        rest = b"".join(parts)[written:]
        while rest:
            count = os.pwrite(file, rest, at + written)
            written, rest = written + count, rest[count:]
    return at + wanted


def main() -> None:
    address, path = sys.argv[1:]
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(address)
    print(json.dumps({"address": router.getsockopt_string(zmq.LAST_ENDPOINT)}), flush=True)
    at = 0
    while True:
        group = take_group(router)
        parts = [part for messages in group.values() for message in messages for part in message]
        at = write_all(file, parts, 0 if at > FILE_BYTES_MAX else at)
        os.fdatasync(file)
        for sender, messages in group.items():
            router.send_multipart([sender, b"".join(header[REQUEST_ID] for header, _ in messages)])


if __name__ == "__main__":
    main()

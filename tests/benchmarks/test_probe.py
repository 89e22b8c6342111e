"""The limit stores what it acknowledges, and acknowledges nothing else."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ringfence.native._node import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_BYTES = 64 << 20


@contextmanager
def probe(native: dict[str, str], file: Path, *options: str) -> Iterator[tuple[str, int]]:
    command = [native["probe"], "--listen", "tcp://127.0.0.1:0", "--file", str(file)]
    command += ["--file-bytes", str(FILE_BYTES), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"], process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("options", [(), ("--buffered",)])
def test_the_stream_is_in_the_file_when_all_is_acknowledged(
    native: dict[str, str], bodies: tuple[Path, list[bytes]], options: tuple[str, ...]
) -> None:
    path, contents = bodies
    file = path.parent / "log"
    with probe(native, file, *options) as (address, pid):
        command = [native["loadgen"], "--address", address, "--bodies", str(path), "--framing", "probe"]
        command += ["--window", "3", "--requests", "14", "--server-pid", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    frames = (struct.pack("<QII", len(body), crc32c(body), 0) + body for body in contents * 2)
    stream = b"".join(frames)
    assert file.read_bytes()[: len(stream)] == stream
    result = json.loads(done.stdout)
    assert (result["requests"], result["body_bytes"]) == (14, 2 * sum(map(len, contents)))
    assert result["server"]["storage_write_bytes"] >= 0


def test_a_body_with_a_wrong_crc_is_not_acknowledged(native: dict[str, str], tmp_path: Path) -> None:
    with probe(native, tmp_path / "log") as (address, _):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as peer:
            peer.sendall(struct.pack("<QII", 3, crc32c(b"abc"), 0) + b"abc")
            assert peer.recv(8) == struct.pack("<Q", 1)
            peer.sendall(struct.pack("<QII", 3, crc32c(b"abc"), 0) + b"abd")
            assert peer.recv(8) == b""

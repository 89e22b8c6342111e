"""Strangers at the data socket of a node that asks for tokens: silent ones, and bodies that never come."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
from ringfence.native import wire
from tests.harness.processes import until
from tests.harness.token_node import TokenNode

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32)
"""ZMTP 3.0: such a peer is sent no heartbeat, and is never found silent."""
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
BODY_BYTES = 8 << 20


def stranger(port: int, more: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    one.sendall(GREETING + READY + more)
    return one


def announced(opcode: int) -> bytes:
    """A header, the head of a body of 8 MiB, and its first bytes."""
    header = bytearray(128)
    struct.pack_into("<I", header, 0, wire.MAGIC)
    header[6] = opcode
    return (
        b"\x03"
        + (128).to_bytes(8, "big")
        + bytes(header)
        + b"\x02"
        + BODY_BYTES.to_bytes(8, "big")
        + bytes(64)
    )


def closed(one: socket.socket) -> bool:
    """Whether the node has ended it; what it said before is read and dropped."""
    one.settimeout(0.01)
    try:
        while one.recv(4_096):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


@pytest.mark.timeout(180)
def test_producers_go_on_beside_strangers_who_hold_what_they_can(tmp_path: Path) -> None:
    locked = TokenNode(tmp_path)
    locked.node.options += ("--connections-max", "64", "--budget-bytes", "160MiB")
    with locked.node as node:
        locked.make("root", "admin")
        writer = locked.make("writer", "admin")
        port = int(node.address.rpartition(":")[2])
        batch = pa.table({"value": ["x" * 100_000]})
        with (
            ringfence.connect(node.address, token_file=writer, timeout_s=30) as client,
            contextlib.ExitStack() as held,
        ):
            client.create_topic("t", schema=batch.schema)
            with client.producer("t", timeout_s=30) as producer:
                producer.send(batch).result(30)
                strangers = [held.enter_context(stranger(port)) for _ in range(80)]
                for opcode in (wire.Opcode.PUBLISH, wire.Opcode.REPLICATE):
                    strangers += [held.enter_context(stranger(port, announced(opcode))) for _ in range(20)]
                for _ in range(20):
                    producer.send(batch).result(30)
            assert client.status().counters["arriving_bytes"] == 0, "no body of theirs has room in the pool"
            # A new client gets in among them, and none of them stays.
            with ringfence.connect(node.address, token_file=writer, timeout_s=30) as another:
                assert another.count("t") == 21
            until(lambda: client.status().counters["connections"] <= 3, 30, "they ended within 10 s")
            assert all(closed(one) for one in strangers[:60])

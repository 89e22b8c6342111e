"""Requests to the admin API of a node process, and connections to it that speak by hand."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

from tests.fakes.admin_api import Answer, send
from tests.harness.processes import NodeProcess, free_port


def open_raw(port: int, first: bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    one.sendall(first)
    return one


def read_until_closed(one: socket.socket) -> bytes:
    """What the node said before it closed the connection."""
    answer = b""
    with one, contextlib.suppress(ConnectionResetError):  # closed over bytes that were not read
        while part := one.recv(4_096):
            answer += part
    return answer


def ask(address: str, method: str, path: str, given: Any = None, **headers: str) -> Answer:
    body = None if given is None else json.dumps(given).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(address, method, path, body, {"content-type": "application/json", **named})


def with_http(node: NodeProcess) -> str:
    """Lets a node that is not started yet serve HTTP; the address."""
    port = free_port()
    node.options = (*node.options, "--http", f"127.0.0.1:{port}")
    return f"http://127.0.0.1:{port}"

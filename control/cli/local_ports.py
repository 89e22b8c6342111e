"""Choose free TCP ports of this machine for servers that use the same port again after a restart."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Ports below this number belong to well-known services.
_FIRST: Final = 10240
# Linux's default first port for outgoing connections (ip-sysctl, ip_local_port_range).
_SYSTEM_FIRST: Final = 32768
# If fewer ports than this are left to choose from, ports for outgoing connections are used, too.
_LEAST: Final = 4096
_TRIES: Final = 1000


def free_ports(count: int) -> list[int]:
    """Return `count` free TCP ports of the loopback interface. Raises OSError if none is found.

    The ports are below the system's range for outgoing connections. A port of that range could be taken
    between this call and the server's start, or while a killed server is down.
    """
    end = _end()
    with ExitStack() as sockets:
        return [_bind(sockets.enter_context(socket.socket()), end) for _ in range(count)]


def _bind(probe: socket.socket, end: int) -> int:
    last_error: OSError | None = None
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(end - _FIRST)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            last_error = error
        else:
            return port
    raise OSError(f"no free port among {_FIRST} to {end - 1} after {_TRIES} tries: {last_error}")


def _end() -> int:
    """Return the end (exclusive) of the ports to choose from."""
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux, or a sandbox without /proc
        return _SYSTEM_FIRST
    return first if first >= _FIRST + _LEAST else _SYSTEM_FIRST

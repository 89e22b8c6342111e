"""Ports of this machine for servers that must be found again at them after a restart."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Below are the ports that well-known services have.
_FIRST: Final = 10240
# Linux's own first port for connections that go out (ip-sysctl, ip_local_port_range).
_SYSTEM_FIRST: Final = 32768
# With fewer ports to choose from, those of connections serve too.
_LEAST: Final = 4096
_TRIES: Final = 1000


def free_ports(count: int) -> list[int]:
    """`count` TCP ports of the loopback that nobody has now. Raises OSError when none is found.

    They lie below those that the system gives to connections that go out: any of these may be taken
    between this call and the server's start, or while a killed server is away.
    """
    end = _end()
    with ExitStack() as held:
        return [_bound(held.enter_context(socket.socket()), end) for _ in range(count)]


def _bound(probe: socket.socket, end: int) -> int:
    refused: OSError | None = None
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(end - _FIRST)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            refused = error
        else:
            return port
    raise OSError(f"no free port among {_FIRST} to {end - 1} after {_TRIES} tries: {refused}")


def _end() -> int:
    """Above the last port to choose from."""
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # no Linux, or a sandbox without /proc
        return _SYSTEM_FIRST
    return first if first >= _FIRST + _LEAST else _SYSTEM_FIRST

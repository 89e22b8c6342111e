"""Limit connections so that the log always has file descriptors, whatever the system's limit is.

Each connection and each new segment needs a descriptor. Without this limit, many connections could take the
last descriptor, and the next segment rotation would fail a shard for good.
"""

from __future__ import annotations

import resource
from typing import Final

import structlog

_LOG = structlog.get_logger("ringfence.node")
# Descriptors reserved for files of up to 64 shards, 16 of the reader, and sockets of the control plane. A
# third of them is for the admin API, which serves 64 requests and 32 event streams at a time.
RESERVED_MAX: Final = 384


def room_for(connections_max: int) -> int:
    """Connections that the process may have, at most `connections_max`. Raises the soft limit if needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + RESERVED_MAX
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    room = connections_max if soft == resource.RLIM_INFINITY else share(soft, connections_max)
    if room < connections_max:
        _LOG.warning(
            "fewer connections than connections_max",
            connections=room,
            connections_max=connections_max,
            open_files=soft,
            way_out="raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)",
        )
    return room


def http_room() -> int:
    """Connections that the admin API may have at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (RESERVED_MAX if soft == resource.RLIM_INFINITY else _reserved(soft)) // 3)


def share(open_files: int, connections_max: int) -> int:
    """Connections within a limit of `open_files`."""
    return max(1, min(connections_max, open_files - _reserved(open_files)))


def _reserved(open_files: int) -> int:
    """Reserved descriptors of a limit of `open_files`; half of a very low limit."""
    return min(RESERVED_MAX, open_files // 2)

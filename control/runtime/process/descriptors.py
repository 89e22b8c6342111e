"""Open files of the process: connections leave some for the log, whatever the system's limit is.

A connection costs a descriptor, and so does every segment that is begun. Without a bound of its own a flood
of connections would take the last one, and the next rotation would fail a shard for good.
"""

from __future__ import annotations

import resource
from typing import Final

import structlog

_LOG = structlog.get_logger("ringfence.node")
RESERVED: Final = 384
"""For everything else: files of up to 64 shards, 16 of the reader, sockets of the control plane; a third is
for connections of the admin API, which serves 64 requests at a time and 32 streams of events."""


def room_for(connections_max: int) -> int:
    """Connections that the process may hold, at most `connections_max`. Raises its soft limit if it must."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
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
    """Connections of the admin API that may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (RESERVED if soft == resource.RLIM_INFINITY else _kept(soft)) // 3)


def share(open_files: int, connections_max: int) -> int:
    """Connections out of a limit of open files."""
    return max(1, min(connections_max, open_files - _kept(open_files)))


def _kept(open_files: int) -> int:
    """Of a limit, for everything else; half of a very low one."""
    return min(RESERVED, open_files // 2)

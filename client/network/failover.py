"""Fail over to another node when the owner does not respond or a newer routing table names another owner.

`failure_detector.py` gives the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringfence.common.failure_detector import FORMER_S, DetectorStep
from ringfence.native.errors import ConnectError
from ringfence.network.request import READS, PendingRequest

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.network.connection import Connection
    from ringfence.network.io_thread import IoThread
    from ringfence.network.peer import Peer
    from ringfence.network.request import Request


LATE_S = 2.0  # a restarted node is back within a second; most answers arrive much sooner


class OverdueRead(NamedTuple):
    """A read that the owner of a partition has not answered in time."""

    topic: str
    partition: int
    node: int
    found: str
    """State of the connection to the owner."""
    begun_s: float
    """Time of the first try, on time.monotonic."""


def overdue_read(io_thread: IoThread) -> OverdueRead | None:
    """The overdue read that waits longest."""
    late = [
        OverdueRead(request.layout.name, request.partition, entry.owner, peer.found, request.begun_s)
        for peer, request in _placed_requests(io_thread)
        if request.layout is not None
        and request.opcode in READS
        and (entry := request.layout.partitions.get(request.partition)) is not None
        and io_thread.now - request.begun_s >= LATE_S + (0.0 if peer.up is None else request.wait_s)
    ]
    return min(late, key=lambda one: one.begun_s, default=None)


def check_connection(io_thread: IoThread, peer: Peer, now: float) -> None:
    """Check an established connection; use other nodes if its node is silent."""
    connection = peer.up
    if connection is None:
        return
    match connection.look(now):
        case DetectorStep.PROBE:
            connection.probe(now)
        case DetectorStep.ASK_OTHERS:
            if peer is io_thread.first:
                _leave_first(io_thread, connection, now)
            io_thread.on_silent()
        case DetectorStep.NOTHING:
            pass


def _leave_first(io_thread: IoThread, connection: Connection, now: float) -> None:
    """Send requests that any node can serve to the next node, if one is known.

    The silent node may execute them as well when it continues.
    """
    if io_thread.leave_first(now):
        connection.give_up_those(_for_any_node)


def topics_waited_for(io_thread: IoThread) -> set[int]:
    """Topics with pending requests at owners: a newer table may move these requests."""
    return {request.layout.topic for request in _requests(io_thread) if request.layout is not None}


def move_requests(io_thread: IoThread, layout: Layout) -> None:
    """End requests at former owners after FORMER_S because of a newer table; the caller repeats them.

    A request that is based on an even newer table stays.
    """
    if any(_is_at_former(request, layout) for request in _requests(io_thread)):
        io_thread.at(io_thread.now + FORMER_S, lambda: _end_at_former(io_thread, layout))


def _requests(io_thread: IoThread) -> list[Request]:
    return [request for _, request in _placed_requests(io_thread)]


def _placed_requests(io_thread: IoThread) -> list[tuple[Peer, Request]]:
    found: list[tuple[Peer, Request]] = []
    for peer in io_thread.peers():
        found += [(peer, request) for request in peer.waiting]
        if peer.connection is not None:
            pending = peer.connection.pending()
            found += [(peer, one.request) for one in pending if isinstance(one, PendingRequest)]
    return found


def _for_any_node(pending: object) -> bool:
    if not isinstance(pending, PendingRequest):
        return False
    request = pending.request
    return request.harmless_late and request.node is None and request.layout is None


def _is_at_former(request: Request, layout: Layout) -> bool:
    by = request.layout
    if by is None or by.topic != layout.topic or by.generation >= layout.generation:
        return False
    old, new = by.partitions.get(request.partition), layout.partitions.get(request.partition)
    return old is not None and new is not None and (old.owner, old.epoch) != (new.owner, new.epoch)


def _end_at_former(io_thread: IoThread, layout: Layout) -> None:
    for peer in io_thread.peers():
        kept = [request for request in peer.waiting if not _is_at_former(request, layout)]
        ended = [request for request in peer.waiting if _is_at_former(request, layout)]
        peer.waiting.clear()
        peer.waiting.extend(kept)
        if peer.connection is not None:
            ended += [
                one.request
                for one in peer.connection.take_those(
                    lambda one: isinstance(one, PendingRequest) and _is_at_former(one.request, layout)
                )
                if isinstance(one, PendingRequest)
            ]
        for request in ended:
            request.future.set_exception(
                ConnectError(
                    "the partition has a new owner, and the former owner did not answer",
                    topic=layout.name,
                    partition=request.partition,
                )
            )

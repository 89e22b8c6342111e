"""Limit the connections of the admin API, and close those that send no request in time.

uvicorn has a deadline for idle connections after an answer only. Without a deadline for heads, and a limit
on open connections, a client could use up the process's descriptors, which the log needs. Above the limit
the connection that has waited longest for a complete head is closed, so connections with incomplete heads
lock out neither probes nor operators. Requests leave a reserve of connections to probes (`limits.py`).
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from ringfence.control.runtime.process.descriptors import http_room

_LOG = structlog.get_logger("ringfence.http")
# From a connection's opening, or the first byte of a request, to the end of the headers. As long as for a
# body; a head has at most 16 KiB.
HEAD_S: Final = 10.0
# Closed connections are logged at most once in this time.
LOG_AGAIN_S: Final = 10.0


def _empty_answer(status: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


FULL: Final = _empty_answer(b"503 Too Many Connections")
LATE: Final = _empty_answer(b"408 Request Timeout")


class Connection(H11Protocol):
    """uvicorn's connection, with a deadline for heads and a limit of `descriptors.http_room` connections."""

    _head_timer: asyncio.TimerHandle | None = None
    # Loop time of the last log line about closed connections.
    logged_s: ClassVar[float] = -LOG_AGAIN_S
    # Loop time at which the wait for the next head began.
    waiting_since_s: float

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.waiting_since_s = self.loop.time()
        if len(self.connections) > http_room():
            # Close one connection for each new one. A closing connection counts until its descriptor is free.
            self._longest_without_head().close_as(FULL, "connections above the limit are closed")
        if not transport.is_closing():
            self._expect_head()

    def _longest_without_head(self) -> Connection:
        """The connection to close: this one if all others have a running request."""
        others = (
            other for other in self.connections if isinstance(other, Connection) and other.is_between_requests
        )
        return min(others, key=lambda other: other.waiting_since_s, default=self)

    @property
    def is_between_requests(self) -> bool:
        """Whether no complete head has arrived, or the request is answered (its body may stay incomplete)."""
        is_idle = self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE
        return is_idle and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # The connection is refused: its further bytes must not reach the parser.
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self.waiting_since_s = self.loop.time()
            self._cancel()
        elif self._head_timer is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._close_late)

    def _cancel(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_late(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.close_as(LATE, "a request's head did not come in time")

    def close_as(self, answer: bytes, why: str) -> None:
        self._cancel()
        if self.loop.time() - Connection.logged_s >= LOG_AGAIN_S:
            Connection.logged_s = self.loop.time()
            _LOG.warning(why, open=len(self.connections), limit=http_room(), head_s=HEAD_S)
        self.transport.write(answer)
        self.transport.close()

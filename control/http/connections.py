"""Bound the connections of the admin API, and close those that never ask anything.

uvicorn has a deadline for idle connections after an answer only. Without one for heads, and a bound on what
is open, a client could take the process's last descriptor, which the log needs. Above the bound the
connection that has waited longest for a whole head is closed: half-sent heads keep no probe and no operator
out. Requests leave a reserve of connections to probes (`limits.py`).
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from ringfence.control.runtime.process.descriptors import http_room

_LOG = structlog.get_logger("ringfence.http")
HEAD_S: Final = 10.0
"""From a connection's opening, or the first byte of a request, to the end of its headers; as long as a body
may take, and 16 KiB need less."""
LOG_AGAIN_S: Final = 10.0
"""A flood is told once in this time."""


def _said(status: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


FULL: Final = _said(b"503 Too Many Connections")
LATE: Final = _said(b"408 Request Timeout")


class Connection(H11Protocol):
    """uvicorn's, with a deadline for heads and a place among `descriptors.http_room`."""

    _head: asyncio.TimerHandle | None = None
    told_s: ClassVar[float] = -LOG_AGAIN_S
    since_s: float
    """When it began to wait for its next head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.since_s = self.loop.time()
        if len(self.connections) > http_room():
            # One for one: what is being closed counts until its descriptor is back.
            self._longest_without_head().close_as(FULL, "connections above the limit are closed")
        if not transport.is_closing():
            self._expect_head()

    def _longest_without_head(self) -> Connection:
        """This one, if all others have a request under way."""
        others = (one for one in self.connections if isinstance(one, Connection) and one.is_between_requests)
        return min(others, key=lambda one: one.since_s, default=self)

    @property
    def is_between_requests(self) -> bool:
        """No whole head has come, or its request is answered (what is left of its body may never come)."""
        is_idle = self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE
        return is_idle and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # refused; what it still sends would wake the parser
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self.since_s = self.loop.time()
            self._cancel()
        elif self._head is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head = self.loop.call_later(HEAD_S, self._is_late)

    def _cancel(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _is_late(self) -> None:
        self._head = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.close_as(LATE, "a request's head did not come in time")

    def close_as(self, answer: bytes, why: str) -> None:
        self._cancel()
        if self.loop.time() - Connection.told_s >= LOG_AGAIN_S:
            Connection.told_s = self.loop.time()
            _LOG.warning(why, open=len(self.connections), limit=http_room(), head_s=HEAD_S)
        self.transport.write(answer)
        self.transport.close()

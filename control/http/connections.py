"""Connections of the admin API: few at once, and none that never asks anything.

uvicorn has a deadline for idle connections behind an answer only. Without one for heads, and a bound on what
is open, anybody could take the process's last descriptor, which the log needs.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from ringfence.control.runtime.descriptors import http_room

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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > http_room():
            self._refuse(FULL, "connections above the limit are closed")
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # refused; what it still sends would wake the parser
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
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
            self._refuse(LATE, "a request's head did not come in time")

    def _refuse(self, answer: bytes, why: str) -> None:
        if self.loop.time() - Connection.told_s >= LOG_AGAIN_S:
            Connection.told_s = self.loop.time()
            _LOG.warning(why, open=len(self.connections), limit=http_room(), head_s=HEAD_S)
        self.transport.write(answer)
        self.transport.close()

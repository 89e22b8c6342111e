"""What one request, and all of them together, may cost: an ASGI layer in front of everything.

The control loop also ticks consensus, so no request may hold it: bodies are small, read whole before anybody
looks at them, and not nested; requests at once are few; each has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import traceback
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence.control.http.problems import body_of
from ringfence.control.runtime.process.descriptors import http_room

_LOG = structlog.get_logger("ringfence.http")
BODY_BYTES_MAX: Final = 512 << 10
"""A topic's schema has at most 256 KiB, a third more as base64."""
BODY_S: Final = 10.0
"""How long a body may take to come; half a megabyte needs that on a line of 50 KB/s."""
UNREAD_BYTES_MAX: Final = 8 << 20
"""Of a refused request's body, read and dropped: a connection closed over unread bytes is reset, and a reset
takes the answer from a client that is still sending."""
UNREAD_S: Final = 2.0
"""How long that may take."""
DEPTH_MAX: Final = 16
"""Nested lists and objects of a body; the deepest that is asked for has 3."""
HEADERS_MAX: Final = 64
"""Browsers and proxies send about twenty."""
QUERY_BYTES_MAX: Final = 4_096
CONCURRENT_MAX: Final = 64
"""Requests under way. Above it they are told to come back: a queue would only make all of them late."""
UNLIMITED_PATHS: Final = frozenset({"/admin/events"})
"""Streams: they bound themselves, and have no end to wait for."""
PROBES: Final = ("/health/",)
"""Always let in: a busy node is not a dead one."""
PROBES_SHARE: Final = 8
"""One of so many connections is left to them: requests that hold all others are answered without a wait."""
FRAMES_MAX: Final = 12
"""Of a defect's traceback in the log, the innermost."""
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""The closing quote may be missing: else each quote of an open string would be tried as a beginning."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class Limits:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, *, deadline_s: float) -> None:
        """`deadline_s`: of one request, its body included."""
        self._app, self._deadline_s = app, deadline_s
        self._under_way = 0
        self._present = 0
        room = http_room()
        self._present_max = room - max(1, room // PROBES_SHARE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._present += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self._present -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        fault = _head_fault(scope)
        is_probe = path.startswith(PROBES)
        if self._present > self._present_max and not is_probe:
            # Its body stays unread: reading it would hold the connection that a probe needs.
            text = f"{self._present_max} requests hold their connections; come back"
            await _tell(send, 429, "busy", text, retry=True)
        elif fault is not None:
            await _tell(send, *fault, unread=None if is_probe else receive)
        elif is_probe:
            await self._app(scope, _replayed(b"", receive), send)  # it waits for no body
        elif path in UNLIMITED_PATHS:
            await self._app(scope, receive, send)
        elif self._under_way >= CONCURRENT_MAX:
            text = f"{CONCURRENT_MAX} requests are under way; come back"
            await _tell(send, 429, "busy", text, retry=True, unread=receive)
        else:
            self._under_way += 1
            try:
                await self._within_limits(scope, receive, send)
            finally:
                self._under_way -= 1

    async def _within_limits(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._deadline_s):
                body = await _body(receive, noted)
                if body is not None:
                    await self._app(scope, _replayed(body, receive), noted)
        except TimeoutError:
            text = f"not done within {self._deadline_s:g} s, maybe going on; look, or repeat it with its key"
            if not begun:
                await _tell(send, 504, "deadline", text, retry=True)
        except Exception:  # noqa: BLE001 - a defect must cost one request, not the node
            # As text: a renderer that shows local values takes seconds, and tells secrets.
            why = traceback.format_exc(limit=-FRAMES_MAX)
            _LOG.error("request failed", method=scope["method"], path=scope["path"][:200], traceback=why)
            if not begun:
                await _tell(send, 500, "internal", "a defect of the node; its log says more")


def _head_fault(scope: Scope) -> tuple[int, str, str] | None:
    headers = scope["headers"]
    if len(headers) > HEADERS_MAX:
        return 431, "too-many-headers", f"{len(headers)} headers; at most {HEADERS_MAX} are read"
    if len(scope["query_string"]) > QUERY_BYTES_MAX:
        size = len(scope["query_string"])
        return 414, "query-too-long", f"a query of {size} bytes; at most {QUERY_BYTES_MAX}"
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > BODY_BYTES_MAX:
            text = f"a body of {value[:20].decode()} bytes; at most {BODY_BYTES_MAX}"
            return 413, "body-too-large", text
    return None


async def _body(receive: Receive, send: Send) -> bytes | None:
    """The whole body, or None when the request is answered already."""
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(BODY_S):
            while more and size <= BODY_BYTES_MAX:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
    except TimeoutError:
        await _tell(send, 408, "body-too-slow", f"the body did not come within {BODY_S:g} s")
        return None
    if size > BODY_BYTES_MAX:
        text = f"a body above {BODY_BYTES_MAX} bytes"
        await _tell(send, 413, "body-too-large", text, unread=receive if more else None)
        return None
    body = b"".join(parts)
    if is_too_deep(body):
        await _tell(send, 400, "body-too-deep", f"a body nested deeper than {DEPTH_MAX} levels")
        return None
    return body


def is_too_deep(body: bytes) -> bool:
    """Whether lists and objects are nested deeper than DEPTH_MAX. Bodies without that many need no look."""
    if body.count(b"[") + body.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for byte in _STRINGS.sub(b"", body).translate(None, _NO_BRACKETS):
        if byte in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        else:
            depth -= 1
    return False


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _tell(
    send: Send, status: int, slug: str, detail: str, *, retry: bool = False, unread: Receive | None = None
) -> None:
    """Answer with a problem. `unread`: gives the rest of the body, read before the connection ends."""
    body = body_of(status, slug, detail)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        # What was not read of the request would be taken for the next one.
        (b"connection", b"close"),
        *([(b"retry-after", b"1")] if retry else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": unread is not None})
    if unread is not None:
        await _discard(unread)
        await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    """Read a body to its end, within bounds; the answer is out already, so nothing here can fail."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(UNREAD_S):
            while size <= UNREAD_BYTES_MAX:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return

"""Limit the cost of each request and of all requests together: an ASGI layer in front of the application.

The control loop also ticks consensus, so no request may block it. Bodies are small, limited in nesting, and
read completely before a handler runs; few requests run at a time; each has a deadline.
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
# A topic's schema has at most 256 KiB, a third more as base64.
BODY_BYTES_MAX: Final = 512 << 10
# Time limit for a body to arrive: half a megabyte at 50 KB/s.
BODY_S: Final = 10.0
# Bytes of a refused request's body that are read and dropped. Closing a connection with unread bytes resets
# it, and a client that is still sending then loses the answer.
UNREAD_BYTES_MAX: Final = 8 << 20
# Time limit for reading such a body.
UNREAD_S: Final = 2.0
# Nesting of lists and objects in a body; the API's own bodies need 3.
DEPTH_MAX: Final = 16
# Browsers and proxies send about twenty.
HEADERS_MAX: Final = 64
QUERY_BYTES_MAX: Final = 4_096
# Running requests. Further ones are refused with Retry-After: a queue would only delay all of them.
CONCURRENT_MAX: Final = 64
# Streams have their own limit, and no end to wait for.
UNLIMITED_PATHS: Final = frozenset({"/admin/events"})
# Probes are always served: a busy node is alive.
PROBES: Final = ("/health/",)
# One connection in this many is reserved for probes: above the rest, requests are refused immediately.
PROBES_SHARE: Final = 8
# Innermost frames of a defect's traceback in the log.
FRAMES_MAX: Final = 12
# The closing quote is optional: without that, the search would restart at each quote of an unclosed string.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class Limits:
    """Wraps an application. The counters change on the loop's thread only."""

    def __init__(self, app: ASGIApp, *, deadline_s: float) -> None:
        """`deadline_s`: time limit of one request, with its body."""
        self._app, self._deadline_s = app, deadline_s
        # Requests in handlers, at most CONCURRENT_MAX.
        self._running = 0
        # Requests that occupy a connection, refused ones and streams included.
        self._open = 0
        room = http_room()
        self._open_max = room - max(1, room // PROBES_SHARE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._open += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self._open -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        fault = _head_fault(scope)
        is_probe = path.startswith(PROBES)
        if self._open > self._open_max and not is_probe:
            # The body stays unread: reading it would hold the connection that a probe needs.
            text = f"{self._open} requests hold connections, the limit is {self._open_max}; retry after 1 s"
            await _refuse(send, 429, "busy", text, retry=True)
        elif fault is not None:
            await _refuse(send, *fault, unread=None if is_probe else receive)
        elif is_probe:
            await self._app(scope, _replay_body(b"", receive), send)  # A probe does not wait for a body.
        elif path in UNLIMITED_PATHS:
            await self._app(scope, receive, send)
        elif self._running >= CONCURRENT_MAX:
            text = f"{self._running} requests are running, the limit is {CONCURRENT_MAX}; retry after 1 s"
            await _refuse(send, 429, "busy", text, retry=True, unread=receive)
        else:
            self._running += 1
            try:
                await self._within_limits(scope, receive, send)
            finally:
                self._running -= 1

    async def _within_limits(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._deadline_s):
                body = await _read_body(receive, send_noted)
                if body is not None:
                    await self._app(scope, _replay_body(body, receive), send_noted)
        except TimeoutError:
            text = (
                f"the request did not end within {self._deadline_s:g} s, and may still be executed; read the "
                "state, or repeat the request with its Idempotency-Key"
            )
            if not has_begun:
                await _refuse(send, 504, "deadline", text, retry=True)
        except Exception:  # noqa: BLE001 - a defect must cost one request, not the node
            # Plain text: a renderer that shows local values takes seconds and would log secrets.
            why = traceback.format_exc(limit=-FRAMES_MAX)
            _LOG.error("request failed", method=scope["method"], path=scope["path"][:200], traceback=why)
            if not has_begun:
                await _refuse(send, 500, "internal", "a defect of the node; its log says more")


def _head_fault(scope: Scope) -> tuple[int, str, str] | None:
    headers = scope["headers"]
    if len(headers) > HEADERS_MAX:
        text = f"the request has {len(headers)} headers; the limit is {HEADERS_MAX}"
        return 431, "too-many-headers", text
    if len(scope["query_string"]) > QUERY_BYTES_MAX:
        size = len(scope["query_string"])
        return 414, "query-too-long", f"the query has {size} bytes; the limit is {QUERY_BYTES_MAX}"
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > BODY_BYTES_MAX:
            text = f"the body has {value[:20].decode()} bytes; the limit is {BODY_BYTES_MAX}"
            return 413, "body-too-large", text
    return None


async def _read_body(receive: Receive, send: Send) -> bytes | None:
    """The whole body, or None if the request is already answered or its connection is lost."""
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
        await _refuse(send, 408, "body-too-slow", f"the body did not arrive within {BODY_S:g} s")
        return None
    if size > BODY_BYTES_MAX:
        text = f"the body has more than {BODY_BYTES_MAX} bytes"
        await _refuse(send, 413, "body-too-large", text, unread=receive if more else None)
        return None
    body = b"".join(parts)
    if is_too_deep(body):
        text = f"the body is nested deeper than {DEPTH_MAX} levels"
        await _refuse(send, 400, "body-too-deep", text)
        return None
    return body


def is_too_deep(body: bytes) -> bool:
    """Whether lists and objects are nested deeper than DEPTH_MAX."""
    # Few brackets cannot be nested too deep, so most bodies need no scan.
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


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body first, and then the messages of the given one."""
    is_replayed = False

    async def replay() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(
    send: Send, status: int, slug: str, detail: str, *, retry: bool = False, unread: Receive | None = None
) -> None:
    """Answer with a problem. `unread` receives the rest of the body, which is read before the close."""
    body = body_of(status, slug, detail)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        # Unread bytes of this request would be parsed as the next one.
        (b"connection", b"close"),
        *([(b"retry-after", b"1")] if retry else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": unread is not None})
    if unread is not None:
        await _discard(unread)
        await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    """Read a body to its end, within limits. The answer has been sent, so a timeout is no error."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(UNREAD_S):
            while size <= UNREAD_BYTES_MAX:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return

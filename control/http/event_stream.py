"""Stream events (server-sent events, WHATWG HTML 9.2) to scripts, `ringfence top` and dashboards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from ringfence.control.http.authorize import Access
from ringfence.control.http.openapi_parts import PROBLEMS, needs
from ringfence.control.http.problems import Problem
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.cluster_events import LISTENERS_MAX, ClusterEvent, EventListener
from ringfence.control.runtime.node_process import Node

# A comment goes out after this time without an event, so that either end notices a lost connection.
KEEP_ALIVE_S: Final = 10.0


def router(node: Node, access: Access) -> APIRouter:
    """The operation of this module."""
    routes = APIRouter(tags=["events"], dependencies=needs(access, Role.VIEWER), responses=PROBLEMS)

    @routes.get(
        "/admin/events",
        operation_id="events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(
        last_event_id: Annotated[str | None, Header(max_length=20, pattern=r"^\d+$")] = None,
        limit: Annotated[int, Query(ge=0, le=100_000, description="end after so many; 0 = never")] = 0,
        wait_s: Annotated[float, Query(ge=0, le=3_600, description="end after so long; 0 = never")] = 0.0,
    ) -> StreamingResponse:
        """Events of the cluster, from now on or after `Last-Event-ID`.

        The event `missed` ends the stream: some events are missing, so read the state again. Its id is the
        `Last-Event-ID` to continue with.
        """
        listener = node.cluster_events.listen(None if last_event_id is None else int(last_event_id))
        if listener is None:
            detail = (
                f"{LISTENERS_MAX} streams are open, the limit is {LISTENERS_MAX}; close one, or retry later"
            )
            raise Problem(429, "busy", detail, headers={"Retry-After": "5"})
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = _stream(node, listener, limit, wait_s)
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    return routes


async def _stream(node: Node, listener: EventListener, limit: int, wait_s: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s if wait_s else None
    sent = 0
    try:
        yield b"retry: 1000\n\n"
        while not listener.missed and (not limit or sent < limit) and node.health.phase != "stopping":
            timeout_s = KEEP_ALIVE_S if end is None else min(KEEP_ALIVE_S, end - loop.time())
            if timeout_s <= 0:
                return
            try:
                async with asyncio.timeout(timeout_s):
                    event = await listener.waiting.get()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            sent += 1
            yield _encode(event)
        if listener.missed:
            # The id matters: a client that reconnects with its old id would miss the same events again.
            yield b"id: %d\nevent: missed\ndata: {}\n\n" % node.cluster_events.newest
    finally:
        node.cluster_events.leave(listener)


def _encode(event: ClusterEvent) -> bytes:
    data = msgspec.json.encode({"index": event.index, "kind": event.kind, **event.values})
    kind = event.kind.replace(" ", "_").encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, kind, data)

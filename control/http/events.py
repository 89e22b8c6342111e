"""Events as a stream (server-sent events, WHATWG HTML 9.2): for scripts, `ringfence top` and dashboards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from ringfence.control.http.access import Access
from ringfence.control.http.openapi_parts import PROBLEMS, needs
from ringfence.control.http.problems import Problem
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.cluster_events import LISTENERS_MAX, ClusterEvent, EventListener
from ringfence.control.runtime.node import Node

BEAT_S: Final = 10.0
"""A comment goes out when nothing else does, so that either end notices that the other is gone."""


def router(node: Node, access: Access) -> APIRouter:
    """One operation."""
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
        """What happens to the cluster, from now on or after `Last-Event-ID`.

        An event `missed` means: read the state again, some were not told. It ends the stream; its id is
        where to go on.
        """
        listener = node.cluster_events.listen(None if last_event_id is None else int(last_event_id))
        if listener is None:
            detail = f"{LISTENERS_MAX} streams are open, as many as there may be; close one"
            raise Problem(429, "busy", detail, headers={"Retry-After": "5"})
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = _told(node, listener, limit, wait_s)
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    return routes


async def _told(node: Node, listener: EventListener, limit: int, wait_s: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s if wait_s else None
    told = 0
    try:
        yield b"retry: 1000\n\n"
        while not listener.missed and (not limit or told < limit) and node.health.phase != "stopping":
            patience = BEAT_S if end is None else min(BEAT_S, end - loop.time())
            if patience <= 0:
                return
            try:
                async with asyncio.timeout(patience):
                    happening = await listener.waiting.get()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            told += 1
            yield _packed(happening)
        if listener.missed:
            # With an id: a client that comes back behind the old one would miss the same for ever.
            yield b"id: %d\nevent: missed\ndata: {}\n\n" % node.cluster_events.newest
    finally:
        node.cluster_events.leave(listener)


def _packed(happening: ClusterEvent) -> bytes:
    data = msgspec.json.encode({"index": happening.index, "kind": happening.kind, **happening.values})
    kind = happening.kind.replace(" ", "_").encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (happening.number, kind, data)

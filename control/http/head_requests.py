"""Serve HEAD wherever GET is served: the same status and headers, and no body (RFC 9110, 9.3.2)."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Wraps an application whose routes serve GET only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        answered = asyncio.Event()

        async def send_head(message: Message) -> None:
            if answered.is_set():
                return
            if message["type"] == "http.response.body":
                message = {"type": "http.response.body", "body": b"", "more_body": False}
                answered.set()
            await send(message)

        # A separate task, so that it can be cancelled: a stream of events has no end, but the answer to HEAD
        # is complete with the head.
        serving = asyncio.ensure_future(self._app({**scope, "method": "GET"}, receive, send_head))
        waiting = asyncio.ensure_future(answered.wait())
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            if not serving.done():
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serving
        if not serving.cancelled():
            serving.result()

"""The process around a node: signals, the announcement, the exit."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog

from ringfence.control.runtime.node import Node
from ringfence.control.runtime.process.settings import Settings

_LOG = structlog.get_logger("ringfence.node")
Beside = Callable[[Node], AbstractAsyncContextManager[str | None]]
"""Something that runs beside the node, told by its address; the HTTP endpoint."""


class NodeFailedError(Exception):
    """A native thread or the journal is gone; the process must end so that nobody takes it for alive."""


@contextlib.asynccontextmanager
async def nothing(_: Node) -> AsyncIterator[str | None]:
    """The default for what runs beside the node."""
    yield None


async def serve(
    settings: Settings, *, announce: Callable[[Node, str | None], None], beside: Beside = nothing
) -> None:
    """Run a node until SIGTERM or SIGINT.

    Raises:
        ConfigError, StorageError: it did not start. A start that is refused for an address makes no store.
        NodeFailedError: it failed while it ran.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    node = Node(settings)
    starting = asyncio.ensure_future(node.start())
    waiting = asyncio.ensure_future(asked.wait())
    first: set[asyncio.Future[Any]] = {starting, waiting, node.failed}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        if node.failed.done():
            # It was told to end before it served: what it waited for would never have come.
            raise node.failed.result()
        return
    starting.result()
    try:
        async with beside(node) as address:
            announce(node, address)
            _LOG.info("serving", addresses=node.addresses, http=address)
            events: set[asyncio.Future[Any]] = {waiting, node.failed}
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if node.failed.done():
        # No orderly stop: threads that would have to take part are gone. Everything acknowledged is on disk.
        _LOG.critical("failed", error=str(node.failed.result()))
        raise NodeFailedError(str(node.failed.result())) from node.failed.result()
    _LOG.info("stopping")
    await node.stop()
    _LOG.info("stopped")

"""Run a node as a process: handle signals, announce addresses, raise failures."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog

from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings

_LOG = structlog.get_logger("ringfence.node")
# A service that runs while the node serves, such as the HTTP endpoint; it returns its address.
Sidecar = Callable[[Node], AbstractAsyncContextManager[str | None]]


class NodeFailedError(Exception):
    """A native thread or the journal has failed. The process must exit, so that other nodes notice."""


@contextlib.asynccontextmanager
async def no_sidecar(_: Node) -> AsyncIterator[str | None]:
    """The default: no other service runs."""
    yield None


async def serve(
    settings: Settings, *, announce: Callable[[Node, str | None], None], sidecar: Sidecar = no_sidecar
) -> None:
    """Run a node until SIGTERM, SIGINT or SIGHUP.

    Raises:
        ConfigError, StorageError: the node did not start. A start refused for an address creates no store.
        NodeFailedError: the node failed while it served.
    """
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored after `nohup`
        loop.add_signal_handler(signal.SIGHUP, stop_requested.set)
    node = Node(settings)
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop_requested.wait())
    first: set[asyncio.Future[Any]] = {starting, stopping, node.failed}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        if node.failed.done():
            # A failure before the node served: the start would have waited forever.
            raise node.failed.result()
        return
    starting.result()
    try:
        async with sidecar(node) as address:
            announce(node, address)
            _LOG.info("serving", addresses=node.addresses, http=address)
            events: set[asyncio.Future[Any]] = {stopping, node.failed}
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if node.failed.done():
        # No orderly stop: its threads have ended. Everything acknowledged is on disk.
        _LOG.critical("failed", error=str(node.failed.result()))
        raise NodeFailedError(str(node.failed.result())) from node.failed.result()
    _LOG.info("stopping")
    await node.stop()
    _LOG.info("stopped")

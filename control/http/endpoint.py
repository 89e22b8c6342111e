"""The admin API beside a node: its listener, its server, and its address in the metadata.

Off unless `http` is set. Off loopback only with `insecure`, for nothing is encrypted, and then only with
tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import structlog
import uvicorn

from ringfence.control.http.application import application
from ringfence.control.http.connections import Connection
from ringfence.control.model.commands import SetAddresses
from ringfence.control.runtime.node import Node
from ringfence.control.runtime.process.addresses import http_advertised, http_host_port, is_loopback
from ringfence.control.runtime.process.descriptors import http_room
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native.errors import ConfigError

_LOG = structlog.get_logger("ringfence.http")
GRACE_S: Final = 2.0
"""How long requests under way may still take at a stop; what is committed is applied without them."""
HEAD_BYTES_MAX: Final = 16_384
"""Request line and headers together."""
KEEP_ALIVE_S: Final = 5
"""Behind an answer."""
ACCEPTED_AT_ONCE_MIN: Final = 4
"""asyncio takes as many connections in one round of its loop as the backlog says, and they are counted some
rounds later: a burst must not take the descriptors that a bound on open ones leaves."""
QUEUE: Final = 128
"""Connections that wait in the kernel to be taken; they cost no descriptor."""
WATCH_S: Final = 0.2
"""How often it is looked who leads, for the stream of events."""
ADDRESS_AGAIN_S: Final = 2.0


@contextlib.asynccontextmanager
async def beside(node: Node) -> AsyncIterator[str | None]:
    """Serve while the context is open; gives the address, None when none is set."""
    if node.settings.http is None:
        yield None
        return
    host, port = http_host_port(node.settings.http, insecure=node.settings.insecure)
    loopback = is_loopback(host)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"http={node.settings.http!r}: {error.strerror}", key="http") from error
    bound = listener.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    if not loopback and not node.proposer.state.tokens:
        _LOG.warning("no tokens: only health is served until `ringfence token create` was called at loopback")
    server = _Server(_config(application(node, loopback=loopback)))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    watching = [
        asyncio.ensure_future(_watch(node)),
        asyncio.ensure_future(_tell(node, http_advertised(host, bound))),
    ]
    try:
        yield address
    finally:
        for task in watching:
            task.cancel()
        server.should_exit = True
        await asyncio.gather(serving, *watching, return_exceptions=True)


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # uvicorn's own type of an application is narrower than Starlette's
        http=Connection,
        ws="none",
        loop="none",
        log_config=None,
        backlog=max(ACCEPTED_AT_ONCE_MIN, http_room() // 8),
        access_log=False,
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(GRACE_S),
    )


async def _tell(node: Node, address: str) -> None:
    """Let the metadata name the address, so that any node leads to all; tried until it is there.

    The node's start has told it, unless the system chose the port.
    """
    while True:
        known = node.proposer.state.nodes.get(node.here)
        if known is None or known.http == (address,):
            return
        command = SetAddresses(node=node.here, addresses=known.addresses, http=(address,))
        try:
            await node.proposer.propose(command)
        except RequestRefused as refusal:
            _LOG.info("address not told yet", why=refusal.message)
            await asyncio.sleep(ADDRESS_AGAIN_S)


async def _watch(node: Node) -> None:
    """Notice changes of the leader. Consensus tells nobody: it must not wait for who listens."""
    while True:
        replica = node.proposer.replica
        node.cluster_events.leads(replica.leader, replica.term, replica.applied.index)
        await asyncio.sleep(WATCH_S)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which the node has, and with a queue of its own."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(QUEUE)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

"""Run the admin API next to a node: listener, server, and the address in the metadata.

The API is off unless `http` is set. Nothing is encrypted: an address that is not on loopback needs
`insecure`, and then requests need tokens.
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
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.addresses import http_advertised, http_host_port, is_loopback
from ringfence.control.runtime.process.descriptors import http_room
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native.errors import ConfigError

_LOG = structlog.get_logger("ringfence.http")
# Time for running requests at a stop. Committed changes are applied in any case.
GRACE_S: Final = 2.0
# Request line and headers together.
HEAD_BYTES_MAX: Final = 16_384
# Idle time of a connection after an answer.
KEEP_ALIVE_S: Final = 5
# asyncio accepts up to `backlog` connections in one round of its loop, and `Connection` counts them some
# rounds later. A small backlog keeps a burst from using the descriptors that the limit reserves.
ACCEPT_BURST_MIN: Final = 4
# Connections that wait in the kernel to be accepted; they use no descriptor.
LISTEN_QUEUE: Final = 128
# Interval of the look at the leader, for the stream of events.
WATCH_S: Final = 0.2
# Pause before the next try to write the address into the metadata.
ADDRESS_AGAIN_S: Final = 2.0


@contextlib.asynccontextmanager
async def beside(node: Node) -> AsyncIterator[str | None]:
    """Serve while the context is open; yields the address, or None if the API is off."""
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
        _LOG.warning("no tokens: only health is served until `ringfence token create` has run at loopback")
    server = _Server(_config(application(node, loopback=loopback)))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    watching = [
        asyncio.ensure_future(_watch(node)),
        asyncio.ensure_future(_publish_address(node, http_advertised(host, bound))),
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
        backlog=max(ACCEPT_BURST_MIN, http_room() // 8),
        access_log=False,
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(GRACE_S),
    )


async def _publish_address(node: Node, address: str) -> None:
    """Write the address into the metadata, with retries: any node can then name all addresses.

    The node's start has written the address already, unless the system chose the port.
    """
    while True:
        member = node.proposer.state.nodes.get(node.here)
        if member is None or member.http == (address,):
            return
        command = SetAddresses(node=node.here, addresses=member.addresses, http=(address,))
        try:
            await node.proposer.propose(command)
        except RequestRefused as refusal:
            _LOG.info("HTTP address is not in the metadata yet", why=refusal.message)
            await asyncio.sleep(ADDRESS_AGAIN_S)


async def _watch(node: Node) -> None:
    """Emit changes of the leader as events, by polling: consensus must not wait for listeners."""
    while True:
        replica = node.proposer.replica
        node.cluster_events.leads(replica.leader, replica.term, replica.applied.index)
        await asyncio.sleep(WATCH_S)


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which the node has, and with a longer listen queue."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(LISTEN_QUEUE)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

"""/health/live, /health/ready, /metrics.

Reads only; off unless `http` is set, and on loopback unless `insecure`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from fastapi import FastAPI, Response

from ringfence.control.http.metrics import exposition
from ringfence.control.runtime.addresses import is_loopback, split_host_port
from ringfence.control.runtime.node import Node
from ringfence.native.errors import ConfigError

GRACE_S = 2.0
"""How long requests under way may still take at a stop; they read a few counters."""


def application(node: Node) -> FastAPI:
    """The endpoint of one node."""
    app = FastAPI(title="ringfence node", docs_url=None, redoc_url=None)

    @app.get("/health/live")
    async def live() -> dict[str, object]:
        """200 while the process and its loop answer."""
        return {"live": True, "uptime_s": round(node.uptime_s, 3)}

    @app.get("/health/ready")
    async def ready(response: Response) -> dict[str, object]:
        """200 while the node serves, degraded or not; 503 while it starts or stops."""
        state = node.health.state
        response.status_code = 200 if state in {"serving", "degraded"} else 503
        return {"state": state, "reasons": node.health.reasons}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(exposition(node), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


@contextlib.asynccontextmanager
async def beside(node: Node) -> AsyncIterator[str | None]:
    """Serve the endpoint while the context is open; gives its address, None when none is set."""
    if node.settings.http is None:
        yield None
        return
    host, port = split_host_port(node.settings.http, "http")
    if not is_loopback(host) and not node.settings.insecure:
        raise ConfigError(
            f"http={node.settings.http!r} is off loopback: bind 127.0.0.1, or pass --insecure", key="http"
        )
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise ConfigError(f"http={node.settings.http!r}: {error.strerror}", key="http") from error
    config = uvicorn.Config(
        application(node),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(GRACE_S),
    )
    server = _Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        bound = listener.getsockname()
        yield f"http://{host}:{bound[1]}"
    finally:
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the node has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

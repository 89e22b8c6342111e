"""Assemble the admin API of one node: limits in front, then probes, reads, changes and problems."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from ringfence.control.http import (
    cohort_routes,
    event_stream,
    layout_auto_routes,
    layout_routes,
    level_routes,
    node_routes,
    parked_routes,
    partition_routes,
    problems,
    producer_routes,
    read_routes,
    rebalance_routes,
    scope_routes,
    token_routes,
    topic_routes,
)
from ringfence.control.http.authorize import Access
from ringfence.control.http.head_requests import HeadRequests
from ringfence.control.http.limits import Limits
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.refusal_audit import RefusalAudit
from ringfence.control.runtime.node_process import Node

DESCRIPTION: Final = """Administration of a ringfence cluster. Any node serves any request.

Reads return what this node has applied; `linearizable=true` waits for all that was committed before. Changes
may carry `Idempotency-Key` (a repeat gets the first answer, even after the leader was killed) and
`If-Match`. Errors are `application/problem+json` (RFC 9457)."""


def application(node: Node, *, loopback: bool) -> ASGIApp:
    """The ASGI application. `loopback`: the listener's address can be reached from this machine only."""
    app = FastAPI(
        title="ringfence",
        version=version("ringfence"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    problems.install(app)
    access = Access(
        lambda: node.proposer.state, RefusalAudit(node.audit), loopback=loopback, now_ms=node.proposer.now_ms
    )
    mutations = Mutations(node, access)
    routers = (
        read_routes.probes(node),
        read_routes.of_node(node, access),
        read_routes.of_loads(node, access),
        read_routes.of_cluster(node, access),
        read_routes.of_topics(node, access),
        read_routes.of_tables(node, access),
        event_stream.router(node, access),
        topic_routes.router(mutations),
        node_routes.router(mutations),
        token_routes.router(mutations),
        rebalance_routes.router(mutations),
        partition_routes.router(mutations),
        layout_routes.router(mutations),
        layout_auto_routes.router(mutations),
        cohort_routes.router(mutations),
        parked_routes.router(mutations),
        producer_routes.router(mutations),
        scope_routes.router(mutations),
        level_routes.router(mutations),
    )
    for router in routers:
        app.include_router(router)
    _describe(app)
    return Limits(HeadRequests(app), deadline_s=node.settings.request_ms / 1_000)


def _describe(app: FastAPI) -> None:
    """Add the bearer token to the OpenAPI schema, and keep null members in answers."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schema.setdefault("components", {})["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer", "description": "ringfence token create"}
            }
            # `{}`: on loopback no token is needed while the cluster has none.
            schema["security"] = [{"token": []}, {}]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    for route in app.routes:
        if isinstance(route, APIRoute):
            route.response_model_exclude_none = False

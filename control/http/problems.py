"""Turn failures into problems (RFC 9457): a type, a status, and a detail with values and the way out.

A problem has never a stack trace. A defect is reported as such, and the log has the traceback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ringfence.control.runtime.process.errors import NoMajorityError, RequestRefused
from ringfence.control.runtime.process.statuses import status_of
from ringfence.native.wire import RETRIABLE

_LOG = structlog.get_logger("ringfence.http")
TYPE_PREFIX: Final = "urn:ringfence:problem:"
# Faults of one body in the answer; a body may have thousands.
ERRORS_MAX: Final = 20
TEXT_MAX: Final = 500


class Problem(Exception):  # noqa: N818 - an answer, not a fault
    """An answer that is an error. Handlers raise it."""

    def __init__(
        self, status: int, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, **values: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.slug, self.detail = status, slug, detail
        self.headers, self.values = dict(headers or {}), values


def unknown_node(number: int) -> Problem:
    """The problem for an id that no member has. It names the command too, for readers of the CLI's output."""
    way_out = "`ringfence node list` (/admin/nodes) lists them"
    return Problem(404, "unknown-node", f"no node has the id {number}; {way_out}")


def body_of(status: int, slug: str, detail: str, instance: str | None = None, **values: Any) -> bytes:
    """The encoded problem. ASCII, so that no character of a request can break the answer."""
    members: dict[str, Any] = {
        "type": TYPE_PREFIX + slug,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[: TEXT_MAX * 4],
    }
    if instance is not None:
        members["instance"] = instance[:TEXT_MAX]
    return json.dumps(members | values, default=str).encode("ascii")


def answer(problem: Problem, instance: str | None = None) -> Response:
    return Response(
        body_of(problem.status, problem.slug, problem.detail, instance, **problem.values),
        problem.status,
        {"Cache-Control": "no-store", **problem.headers},
        media_type="application/problem+json",
    )


def of_refusal(refusal: RequestRefused) -> Problem:
    """Convert a refusal of the runtime."""
    status = status_of(refusal)
    if isinstance(refusal, NoMajorityError):
        return Problem(status, "no-majority", refusal.message, headers={"Retry-After": "1"}, retriable=True)
    if status >= 500:
        _LOG.warning("refused", code=refusal.code.name, why=refusal.message)
    headers = {}
    if refusal.retry_after_ms:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after_ms / 1_000)))
    slug = refusal.code.name.lower().replace("_", "-")
    return Problem(
        status,
        slug,
        refusal.message,
        headers=headers,
        retriable=refusal.code in RETRIABLE,
        **_plain(refusal.details),
    )


def install(app: FastAPI) -> None:
    """Install handlers that turn every failure of an operation into a problem."""

    @app.exception_handler(Problem)
    async def on_problem(request: Request, problem: Problem) -> Response:
        return answer(problem, request.url.path)

    @app.exception_handler(RequestRefused)
    async def on_refusal(request: Request, refusal: RequestRefused) -> Response:
        return answer(of_refusal(refusal), request.url.path)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        faults = [
            {"where": ".".join(map(str, fault["loc"]))[:TEXT_MAX], "why": str(fault["msg"])[:TEXT_MAX]}
            for fault in error.errors()[:ERRORS_MAX]
        ]
        if isinstance(error.body, bytes):  # FastAPI parses a body only if its content-type is JSON.
            faults = [{"where": "body", "why": _content_type_fault(request)}]
        first = faults[0] if faults else {"where": "request", "why": "it does not match its description"}
        detail = f"{first['where']}: {first['why']}; /openapi.json describes every request"
        return answer(Problem(422, "invalid-request", detail, errors=faults), request.url.path)

    @app.exception_handler(Exception)
    async def on_defect(request: Request, _: Exception) -> Response:
        # Starlette raises the error again after the answer; `limits` logs it.
        return answer(Problem(500, "internal", "a defect of the node; its log says more"), request.url.path)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        slug = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
        detail = {
            404: f"no operation is at {request.url.path[:TEXT_MAX]}; /openapi.json lists all of them",
            405: f"{request.method} is not served at {request.url.path[:TEXT_MAX]}; see the header Allow",
            400: "the body is not JSON, or nested too deep",
        }.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(sorted(_methods(request)))
        return answer(Problem(error.status_code, slug, detail, headers=headers), request.url.path)


def _content_type_fault(request: Request) -> str:
    content_type = request.headers.get("content-type")
    actual = "without a content-type" if content_type is None else f"as {content_type[:TEXT_MAX]!r}"
    return f"it was sent {actual}, so it was not read; send the header `content-type: application/json`"


def _methods(request: Request) -> set[str]:
    """The methods that a path serves. Starlette reports those of the first matching route only.

    A route with a parameter also matches the paths of routes without one, which it does not serve.
    """
    path = request.scope["path"]
    matching = [route for route in _routes(request.app.routes) if route.path_regex.match(path)]
    exact = [route for route in matching if not route.param_convertors]
    methods: set[str] = set().union(*(route.methods or () for route in exact or matching))
    return methods | {"HEAD"} if "GET" in methods else methods


def _routes(routes: Iterable[Any]) -> Iterator[Any]:
    """All routes. Newer versions of FastAPI keep the routes of an included router in that router."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from _routes(included.routes)
        elif hasattr(route, "path_regex"):
            yield route


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    reserved = {"type", "title", "status", "detail", "instance", "retriable"}
    return {key: value for key, value in details.items() if key not in reserved}

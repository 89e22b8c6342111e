"""Define the common OpenAPI parts of all operations: problems, roles, headers of changes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Response
from pydantic import BaseModel

from ringfence.control.http.authorize import About, Access
from ringfence.control.http.openapi_bodies import Problem
from ringfence.control.model.tokens import Role

_DESCRIPTIONS: Final = {
    400: "a header is malformed, or the body is not JSON or nested too deep",
    401: "the request has no token, or an unknown or expired one",
    403: "the token's role or prefix does not allow the request, or its host or origin is foreign",
    404: "the resource does not exist",
    408: "the body arrived too slowly",
    409: "the state of the cluster does not allow the request",
    412: "If-Match: the resource has another version by now",
    413: "the body is too large",
    414: "the query is too long",
    422: "the request does not match its description, or its key was used for other content",
    429: "too many requests are running; retry after Retry-After",
    431: "the request has too many headers",
    503: "this node cannot serve the request now; retry after Retry-After",
    504: "the request did not end in time and may still be executed; repeat it with its key",
    507: "the disk of the metadata is full",
}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": description,
        "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
    }
    for status, description in _DESCRIPTIONS.items()
}
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="chosen by the client, new for each change; a repeat with the key gets the first answer",
        max_length=200,
        pattern="^[!-~]+$",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="the ETag that the resource must have, or `*`", max_length=210),
]


def needs(access: Access, role: Role, about: About = About.CLUSTER) -> list[Any]:
    """Dependencies of a router whose operations need `role` and have the subject `about`."""
    return [Depends(access.needs(role, about))]


def combine_routers(*routers: APIRouter) -> APIRouter:
    """One router of several whose operations need different roles."""
    combined = APIRouter()
    for router in routers:
        combined.include_router(router)
    return combined


def no_store(response: Response) -> None:
    """Forbid caches to store the answer: it shows the current state."""
    response.headers["Cache-Control"] = "no-store"


async def change_headers(idempotency_key: KeyHeader = None, if_match: IfMatch = None) -> None:
    """Declare the headers for OpenAPI and their validation; `mutations` reads them."""


def change_router(tag: str, access: Access, role: Role, about: About) -> APIRouter:
    """A router of operations that change something."""
    depends = [*needs(access, role, about), Depends(change_headers)]
    return APIRouter(tags=[tag], dependencies=depends, responses=PROBLEMS)


def content_of(given: BaseModel) -> bytes:
    """The content of a body for which an idempotency key stands."""
    return given.model_dump_json().encode()

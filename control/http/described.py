"""What all operations have in common in OpenAPI: their problems, their roles, headers of changes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Response

from ringfence.control.http.access import About, Access
from ringfence.control.http.shapes import Problem
from ringfence.control.model.tokens import Role

_WHY: Final = {
    400: "malformed: a header, or a body that is no JSON or nested too deep",
    401: "no token, or one that is unknown or expired",
    403: "the token's role does not allow it, or the host or origin is foreign",
    404: "there is no such thing",
    408: "the body came too slowly",
    409: "what the cluster is or has forbids it",
    412: "If-Match: it has another version by now",
    413: "the body is too large",
    414: "the query is too long",
    422: "it is not as described, or a key was used for other content",
    429: "too many requests are under way; Retry-After says when",
    431: "too many headers",
    503: "this node cannot serve it now; Retry-After says when",
    504: "not done within its deadline, and maybe going on; repeat it with its key",
    507: "the disk of the metadata is full",
}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": why,
        "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
    }
    for status, why in _WHY.items()
}
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="a text of your own, new for each change: a repeat with it gives the first answer",
        max_length=200,
        pattern="^[!-~]+$",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="the ETag that the change is meant for, or `*`", max_length=210),
]


def needs(access: Access, role: Role, about: About = About.CLUSTER) -> list[Any]:
    """Dependencies of a router whose operations need `role` and are about this."""
    return [Depends(access.needs(role, about))]


def together(*routers: APIRouter) -> APIRouter:
    """One router of reads and changes, which need different roles."""
    whole = APIRouter()
    for router in routers:
        whole.include_router(router)
    return whole


def no_store(response: Response) -> None:
    """Answers are of now; no cache may keep them."""
    response.headers["Cache-Control"] = "no-store"


async def change_headers(idempotency_key: KeyHeader = None, if_match: IfMatch = None) -> None:
    """Only so that OpenAPI tells of them; `desk` reads them."""

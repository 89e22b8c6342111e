"""Scopes of atomic writers over HTTP: a list for viewers, and names given back for operators.

A token with a prefix is told of the scopes that it may use, and gives back no other.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from ringfence.control.http.access import About, principal
from ringfence.control.http.described import PROBLEMS, change_headers, needs, no_store, together
from ringfence.control.http.desk import Desk
from ringfence.control.http.problems import Problem
from ringfence.control.http.reads import LIST_MAX, Looked
from ringfence.control.http.shapes import ForgetGiven, Receipt
from ringfence.control.machines.scope_owners import fault, is_temporary, owner_of, topic_of
from ringfence.control.model.ids import ScopeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.admin import Asked, Outcome

SCOPES: Final = "/admin/scopes"


class ScopeShown(BaseModel):
    name: str = Field(description="as forget takes it; of a topic's scope with `@` and the topic's id")
    scope: int
    topic: str | None = Field(description="full name; null: of the cluster, or of a deleted topic")
    owner: str = Field(description="prefix of the token that began it")
    driver: int = Field(description="metadata index of the BEGIN of its newest driver")
    committed: int = Field(description="its last committed epoch")
    unpublished: int = Field(description="committed epochs that wait for their publish")
    used: int = Field(description="metadata index of its last use")
    temporary: bool = Field(description="it is forgotten where a new scope needs room")


class Scopes(BaseModel):
    """By name. `more`: ask again with `after` = the last name."""

    scopes: list[ScopeShown]
    more: bool


def router(desk: Desk) -> APIRouter:
    """All of it."""
    return together(_reads(desk), _changes(desk))


def _reads(desk: Desk) -> APIRouter:
    depends = [*needs(desk.access, Role.VIEWER, About.TOPICS), Depends(Looked(desk.node)), Depends(no_store)]
    reads = APIRouter(tags=["scopes"], dependencies=depends, responses=PROBLEMS)

    @reads.get(SCOPES, operation_id="scopes")
    async def scopes(
        request: Request,
        after: Annotated[str, Query(max_length=255)] = "",
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
    ) -> Scopes:
        """Scopes in the order of their names, `limit` at a time."""
        state, prefix = desk.node.proposer.state, principal(request).prefix
        names = sorted(
            name for name in state.scope_names if name > after and fault(state, name, prefix) is None
        )
        shown = [_shown(state, state.scope_names[name]) for name in names[:limit]]
        return Scopes(scopes=shown, more=len(names) > limit)

    return reads


def _shown(state: MetadataState, number: ScopeId) -> ScopeShown:
    scope, topic = state.scopes[number], topic_of(state.scopes[number].name)
    known = None if topic is None else state.topics.get(topic)
    return ScopeShown(
        name=scope.name, scope=number, topic=None if known is None else known.name, owner=owner_of(scope),
        driver=scope.driver, committed=scope.committed, unpublished=len(scope.pending), used=scope.used,
        temporary=is_temporary(state, scope),
    )  # fmt: skip


def _changes(desk: Desk) -> APIRouter:
    depends = [*needs(desk.access, Role.OPERATOR, About.TOPICS), Depends(change_headers)]
    changes = APIRouter(tags=["scopes"], dependencies=depends, responses=PROBLEMS)
    node = desk.node

    async def forgotten(name: str, prefix: str, asked: Asked) -> Outcome:
        command = await node.scopes.forgetting(name, prefix)
        if command is None:
            if prefix:  # told as of one of another owner
                detail = f"the token's prefix {prefix!r} covers no scope named {name[:300]!r}"
                raise Problem(
                    403, "unauthorized", f"{detail}; `ringfence scope list` lists those that it does"
                )
            detail = f"no scope is named {name[:300]!r}; `ringfence scope list` lists them"
            raise Problem(404, "unknown-scope", detail)
        return await node.admin.propose(command, asked)

    @changes.post(f"{SCOPES}/forget", operation_id="forget_scope", response_model=Receipt)
    async def forget(request: Request, given: Annotated[ForgetGiven, Body()]) -> Response:
        """Give a name back. Its last driver is fenced, and its committed epochs are known no more."""
        prefix = principal(request).prefix
        return await desk.change(
            request, f"scope forget {given.name}", lambda asked: forgotten(given.name, prefix, asked),
            content=given.model_dump_json().encode(),
        )  # fmt: skip

    return changes

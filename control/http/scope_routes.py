"""Serve the scopes of atomic writers: list them for viewers, and forget names for operators.

A token with a prefix lists and forgets only the scopes that it may use.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from ringfence.control.http.authorize import About, principal
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_bodies import ForgetGiven, Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs
from ringfence.control.http.problems import Problem
from ringfence.control.http.read_routes import LIST_MAX, linearizable_reads
from ringfence.control.model.ids import ScopeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import Plan
from ringfence.control.state_machines.metadata.scope_owners import (
    access_fault,
    is_temporary,
    owner_of,
    topic_of,
)

SCOPES: Final = "/admin/scopes"


class ScopeShown(BaseModel):
    name: str = Field(description="as forget takes it; a topic's scope ends with `@` and the topic's id")
    scope: int
    topic: str | None = Field(description="full name; null: a scope of the cluster, or of a deleted topic")
    owner: str = Field(description="prefix of the token that began the scope")
    driver: int = Field(description="metadata index of the BEGIN of the newest driver")
    committed: int = Field(description="the last committed epoch")
    unpublished: int = Field(description="number of committed epochs that are not published yet")
    used: int = Field(description="metadata index of the last use")
    temporary: bool = Field(description="the scope may be forgotten if a new scope needs room")


class Scopes(BaseModel):
    """A page of scopes, sorted by name. `more`: repeat the request with `after` = the last name."""

    scopes: list[ScopeShown]
    more: bool


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations))


def _reads(mutations: Mutations) -> APIRouter:
    depends = linearizable_reads(mutations.node, mutations.access, About.TOPICS)
    reads = APIRouter(tags=["scopes"], dependencies=depends, responses=PROBLEMS)

    @reads.get(SCOPES, operation_id="scopes")
    async def scopes(
        request: Request,
        after: Annotated[str, Query(max_length=255)] = "",
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
    ) -> Scopes:
        """Scopes in the order of their names, `limit` at a time."""
        state, prefix = mutations.node.proposer.state, principal(request).prefix
        names = sorted(
            name for name in state.scope_names if name > after and access_fault(state, name, prefix) is None
        )
        shown = [_shown(state, state.scope_names[name]) for name in names[:limit]]
        return Scopes(scopes=shown, more=len(names) > limit)

    return reads


def _shown(state: MetadataState, number: ScopeId) -> ScopeShown:
    scope, topic_id = state.scopes[number], topic_of(state.scopes[number].name)
    topic = None if topic_id is None else state.topics.get(topic_id)
    return ScopeShown(
        name=scope.name,
        scope=number,
        topic=None if topic is None else topic.name,
        owner=owner_of(scope),
        driver=scope.driver,
        committed=scope.committed,
        unpublished=len(scope.pending),
        used=scope.used,
        temporary=is_temporary(state, scope),
    )


def _changes(mutations: Mutations) -> APIRouter:
    depends = [*needs(mutations.access, Role.OPERATOR, About.TOPICS), Depends(change_headers)]
    changes = APIRouter(tags=["scopes"], dependencies=depends, responses=PROBLEMS)
    node = mutations.node

    async def plan_forget(name: str, prefix: str) -> Plan:
        command = await node.handlers.transactions.forget_command(name, prefix)
        if command is None:
            if prefix:  # The answer is the same for a scope of another owner and for none.
                detail = (
                    f"the token's prefix {prefix!r} covers no scope named {name[:300]!r}; `ringfence scope "
                    "list` lists the scopes that it covers"
                )
                raise Problem(403, "unauthorized", detail)
            detail = f"no scope is named {name[:300]!r}; `ringfence scope list` lists them"
            raise Problem(404, "unknown-scope", detail)
        return Plan((command,))

    @changes.post(f"{SCOPES}/forget", operation_id="forget_scope", response_model=Receipt)
    async def forget(request: Request, given: Annotated[ForgetGiven, Body()]) -> Response:
        """Forget a name. The last driver is fenced, and the scope's committed epochs are forgotten."""
        prefix = principal(request).prefix
        return await mutations.change(
            request,
            f"scope forget {given.name}",
            lambda: plan_forget(given.name, prefix),
            content=given.model_dump_json().encode(),
        )

    return changes

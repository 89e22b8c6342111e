"""Serve the cluster's level: versions of all nodes for viewers, finalization for admins."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_bodies import Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs, no_store
from ringfence.control.model.tokens import Role


class NodeVersion(BaseModel):
    node: int
    program: str
    level: int | None = Field(description="the newest that the program knows; null: unknown, no answer")
    life: str


class Hold(BaseModel):
    node: int
    level: int | None
    why: str


class Versions(BaseModel):
    level: int = Field(description="the cluster's level: the newest format that nodes write and send")
    newest: int = Field(description="the newest level that the answering node's program knows")
    nodes: list[NodeVersion]
    holds: list[Hold] = Field(description="nodes that a finalization waits for; empty if it can run")


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    reads = APIRouter(
        tags=["cluster"],
        dependencies=[*needs(mutations.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )
    changes = APIRouter(
        tags=["cluster"],
        dependencies=[*needs(mutations.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )
    node = mutations.node

    @reads.get("/admin/versions", operation_id="versions")
    async def versions() -> Versions:
        """Program and level of each node, the cluster's level, and the nodes that block a finalization."""
        return Versions(**await node.levels.versions())

    @changes.post("/admin/finalize", operation_id="finalize", response_model=Receipt)
    async def finalize(request: Request) -> Response:
        """Raise the cluster's level to the newest one of this program. This cannot be undone.

        Refused while a node does not know that level or does not answer; the problem names those nodes.
        """
        return await mutations.change(request, "cluster finalize", node.levels.plan_finalization)

    return combine_routers(reads, changes)

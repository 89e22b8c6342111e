"""The cluster's level over HTTP: versions of all nodes for viewers, finalization for admins."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from ringfence.control.http.described import PROBLEMS, change_headers, needs, no_store, together
from ringfence.control.http.desk import Desk
from ringfence.control.http.shapes import Receipt
from ringfence.control.model.tokens import Role


class NodeVersion(BaseModel):
    node: int
    program: str
    level: int | None = Field(description="the newest that the program knows; null: not heard of")
    life: str


class Hold(BaseModel):
    node: int
    level: int | None
    why: str


class Versions(BaseModel):
    level: int = Field(description="the cluster's: what may be written and sent")
    newest: int = Field(description="that the program of the node which answered knows")
    nodes: list[NodeVersion]
    holds: list[Hold] = Field(description="nodes that a finalization waits for; empty where there is none")


def router(desk: Desk) -> APIRouter:
    """All of it."""
    reads = APIRouter(
        tags=["cluster"], dependencies=[*needs(desk.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )  # fmt: skip
    changes = APIRouter(
        tags=["cluster"], dependencies=[*needs(desk.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )  # fmt: skip
    node = desk.node

    @reads.get("/admin/versions", operation_id="versions")
    async def versions() -> Versions:
        """Program and level of each node, the cluster's level, and what holds a finalization up."""
        return Versions(**await node.upgrades.versions())

    @changes.post("/admin/finalize", operation_id="finalize", response_model=Receipt)
    async def finalize(request: Request) -> Response:
        """Raise the cluster's level to the newest one of this program. There is no way back.

        Refused, naming the nodes, while one does not know that level or does not answer.
        """
        return await desk.change(
            request, "cluster finalize", lambda asked: node.upgrades.finalize(node.admin, asked)
        )

    return together(reads, changes)

"""Serve automatic splits and merges: explanations for viewers, settings of a topic for admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.http.authorize import About
from ringfence.control.http.layout_bodies import LayoutExplained
from ringfence.control.http.layout_routes import reads_of_layouts
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_bodies import Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs
from ringfence.control.http.read_routes import NamePart, topic_at
from ringfence.control.model.tokens import Role

TOPIC = "/admin/topics/{tenant}/{namespace}/{name}"


class AutoGiven(BaseModel):
    """Settings by name: auto_split, auto_merge, auto_partitions_max, auto_partitions_min."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    values: Annotated[
        dict[Annotated[str, StringConstraints(max_length=40)], Annotated[int, Field(ge=0, le=65_536)] | None],
        Field(min_length=1, max_length=4),
    ]


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations))


def _reads(mutations: Mutations) -> APIRouter:
    node, reads = mutations.node, reads_of_layouts(mutations)

    @reads.get(f"{TOPIC}/explain", operation_id="explain_layout")
    async def explain_layout(tenant: NamePart, namespace: NamePart, name: NamePart) -> LayoutExplained:
        """The last decision about automatic splits and merges: loads, thresholds, what suppresses it."""
        topic = topic_at(node, tenant, namespace, name)
        return LayoutExplained(**(await node.handlers.layout_auto.explain(topic.name)))

    return reads


def _changes(mutations: Mutations) -> APIRouter:
    changes = APIRouter(
        tags=["layouts"],
        dependencies=[*needs(mutations.access, Role.ADMIN, About.TOPICS), Depends(change_headers)],
        responses=PROBLEMS,
    )
    node = mutations.node

    @changes.patch(f"{TOPIC}/auto", operation_id="set_auto_layout", response_model=Receipt)
    async def set_auto_layout(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        given: Annotated[AutoGiven, Body()],
    ) -> Response:
        """Override the cluster's limits of automatic splits and merges for a topic; null removes one."""
        full = f"{tenant}/{namespace}/{name}"
        topic = node.proposer.state.topic_named(full)
        return await mutations.change(
            request,
            f"topic auto {' '.join(f'{key}={value}' for key, value in sorted(given.values.items()))}"[:500],
            node.handlers.layout_auto.planned(full, given.values),
            resource=f"topic/{0 if topic is None else topic.topic}",
            content=given.model_dump_json().encode(),
        )

    return changes

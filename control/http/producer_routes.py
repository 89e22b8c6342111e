"""Serve the named producers of a topic: list them for viewers, and forget names for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, Field

from ringfence.control.http.authorize import About
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_bodies import ForgetGiven, Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs
from ringfence.control.http.problems import Problem
from ringfence.control.http.read_routes import NamePart, linearizable_reads, topic_at
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import Plan

PRODUCERS = "/admin/topics/{tenant}/{namespace}/{name}/producers"


class ProducerShown(BaseModel):
    name: str
    producer: int = Field(description="the producer's id in the rows' headers")
    epoch: int = Field(description="metadata index of the last open")


class Producers(BaseModel):
    """Named producers, sorted by name."""

    producers: list[ProducerShown]


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations))


def _reads(mutations: Mutations) -> APIRouter:
    depends = linearizable_reads(mutations.node, mutations.access, About.TOPICS)
    reads = APIRouter(tags=["topics"], dependencies=depends, responses=PROBLEMS)

    @reads.get(PRODUCERS, operation_id="producers")
    async def producers(tenant: NamePart, namespace: NamePart, name: NamePart) -> Producers:
        """Named producers of a topic."""
        topic = topic_at(mutations.node, tenant, namespace, name)
        entries = mutations.node.proposer.state.producers.get(topic.topic, {})
        return Producers(
            producers=[
                ProducerShown(name=label, producer=entry.producer, epoch=entry.epoch)
                for label, entry in sorted(entries.items())
            ]
        )

    return reads


def _changes(mutations: Mutations) -> APIRouter:
    depends = [*needs(mutations.access, Role.OPERATOR, About.TOPICS), Depends(change_headers)]
    changes = APIRouter(tags=["topics"], dependencies=depends, responses=PROBLEMS)
    node = mutations.node

    async def plan_forget(full: str, label: str) -> Plan:
        topic = await node.handlers.topics.topic_named(full)
        if label not in node.proposer.state.producers.get(topic.topic, {}):
            detail = (
                f"topic {full!r} has no producer named {label[:300]!r}; `ringfence producer list` lists them"
            )
            raise Problem(404, "unknown-producer", detail)
        return Plan((await node.handlers.producers.fence(topic, label),))

    @changes.post(f"{PRODUCERS}/forget", operation_id="forget_producer", response_model=Receipt)
    async def forget(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        given: Annotated[ForgetGiven, Body()],
    ) -> Response:
        """Forget a name. The last holder is fenced, and the next open of the name is a new producer."""
        full = f"{tenant}/{namespace}/{name}"
        topic = node.proposer.state.topic_named(full)
        return await mutations.change(
            request,
            f"producer forget {given.name}",
            lambda: plan_forget(full, given.name),
            resource=f"topic/{0 if topic is None else topic.topic}",
            content=given.model_dump_json().encode(),
        )

    return changes

"""Named producers of a topic over HTTP: a list for viewers, and names given back for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, Field

from ringfence.control.http.access import About
from ringfence.control.http.described import PROBLEMS, change_headers, needs, no_store, together
from ringfence.control.http.desk import Desk
from ringfence.control.http.problems import Problem
from ringfence.control.http.reads import Looked, Named, topic_at
from ringfence.control.http.shapes import ForgetGiven, Receipt
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.admin import Asked, Outcome

PRODUCERS = "/admin/topics/{tenant}/{namespace}/{name}/producers"


class ProducerShown(BaseModel):
    name: str
    producer: int = Field(description="its id in the rows' headers")
    epoch: int = Field(description="metadata index of its last open")


class Producers(BaseModel):
    """By name."""

    producers: list[ProducerShown]


def router(desk: Desk) -> APIRouter:
    """All of it."""
    return together(_reads(desk), _changes(desk))


def _reads(desk: Desk) -> APIRouter:
    depends = [*needs(desk.access, Role.VIEWER, About.TOPICS), Depends(Looked(desk.node)), Depends(no_store)]
    reads = APIRouter(tags=["topics"], dependencies=depends, responses=PROBLEMS)

    @reads.get(PRODUCERS, operation_id="producers")
    async def producers(tenant: Named, namespace: Named, name: Named) -> Producers:
        """Named producers of a topic."""
        topic = topic_at(desk.node, tenant, namespace, name)
        known = desk.node.proposer.state.producers.get(topic.topic, {})
        return Producers(producers=[
            ProducerShown(name=label, producer=each.producer, epoch=each.epoch)
            for label, each in sorted(known.items())
        ])  # fmt: skip

    return reads


def _changes(desk: Desk) -> APIRouter:
    depends = [*needs(desk.access, Role.OPERATOR, About.TOPICS), Depends(change_headers)]
    changes = APIRouter(tags=["topics"], dependencies=depends, responses=PROBLEMS)
    node = desk.node

    async def forgotten(full: str, label: str, asked: Asked) -> Outcome:
        topic = await node.topics.named(full)
        if label not in node.proposer.state.producers.get(topic.topic, {}):
            detail = (
                f"topic {full!r} has no producer named {label[:300]!r}; `ringfence producer list` lists them"
            )
            raise Problem(404, "unknown-producer", detail)
        return await node.admin.propose(await node.producers.fenced(topic, label), asked)

    @changes.post(f"{PRODUCERS}/forget", operation_id="forget_producer", response_model=Receipt)
    async def forget(
        request: Request, tenant: Named, namespace: Named, name: Named,
        given: Annotated[ForgetGiven, Body()],
    ) -> Response:  # fmt: skip
        """Give a name back. Its last holder is fenced, and the next open of the name is a new producer."""
        full = f"{tenant}/{namespace}/{name}"
        topic = node.proposer.state.topic_named(full)
        return await desk.change(
            request, f"producer forget {given.name}", lambda asked: forgotten(full, given.name, asked),
            resource=f"topic/{0 if topic is None else topic.topic}", content=given.model_dump_json().encode(),
        )  # fmt: skip

    return changes

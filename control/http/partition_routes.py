"""Serve partitions: owner, replicas and reassignment for viewers; forced owners and releases for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.http.authorize import About, principal
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_bodies import Number, Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs, no_store
from ringfence.control.http.problems import Problem
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.tokens import Role
from ringfence.control.state_machines.metadata.reassignment_checks import ACCEPTS_MIN, WHY_MAX


class ForceGiven(BaseModel):
    """The failover to end, the new owner, and the loss that the operator accepts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    change: Number = Field(description="the number of the running failover: `change.change` of the partition")
    owner: Number
    replicas: Annotated[list[Number], Field(max_length=5)] = Field(
        default=[], description="the nodes afterwards, the owner included; empty: the same as before"
    )
    accepts: Annotated[str, StringConstraints(min_length=ACCEPTS_MIN, max_length=WHY_MAX)] = Field(
        description="the loss, as `may_lose` of the candidate says; stored in the log and the audit log"
    )


class GivenUp(BaseModel):
    """The epoch that is published without this partition, and the loss that the operator accepts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    scope: Number = Field(description="the number of the scope: `unpublished.scope` of the partition")
    epoch: Number
    accepts: Annotated[str, StringConstraints(min_length=ACCEPTS_MIN, max_length=WHY_MAX)] = Field(
        description="the rows that are lost; stored in the audit log"
    )


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations))


def _reads(mutations: Mutations) -> APIRouter:
    of_partition = APIRouter(
        tags=["partitions"],
        dependencies=[*needs(mutations.access, Role.VIEWER, About.TOPICS), Depends(no_store)],
        responses=PROBLEMS,
    )
    of_cluster = APIRouter(
        tags=["partitions"],
        dependencies=[*needs(mutations.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )

    @of_partition.get("/admin/partitions/{partition}", operation_id="partition")
    async def partition(request: Request, partition: Number) -> dict[str, Any]:
        """Owner, replicas and running change; for a failover each replica's answer and possible loss."""
        topic = mutations.node.handlers.partitions.topic_of(PartitionId(partition))
        prefix = principal(request).prefix
        if not ("" if topic is None else topic.name).startswith(prefix):
            # The same answer if no topic has the partition: otherwise the caller could find out which
            # partitions other tenants have.
            detail = f"partition {partition} is not one of topics that begin with {prefix!r}"
            raise Problem(403, "forbidden", detail, prefix=prefix)
        return await mutations.node.handlers.partitions.show(PartitionId(partition))

    @of_cluster.get("/admin/fsck", operation_id="fsck")
    async def fsck() -> dict[str, Any]:
        """Check the invariants I1, I4, I5, I11 and I16 on figures of all nodes. Takes some seconds."""
        return await mutations.node.handlers.inspections.inspect()

    return combine_routers(of_partition, of_cluster)


def _changes(mutations: Mutations) -> APIRouter:
    changes = APIRouter(
        tags=["partitions"],
        dependencies=[*needs(mutations.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )
    node = mutations.node

    @changes.post(
        "/admin/partitions/{partition}/force-owner", operation_id="force_owner", response_model=Receipt
    )
    async def force_owner(
        request: Request, partition: Number, given: Annotated[ForceGiven, Body()]
    ) -> Response:
        """End a failover without a majority: make this replica the owner. Rows may be lost."""
        action = f"partition {partition} force-owner {given.owner} change {given.change}: {given.accepts}"
        return await mutations.change(
            request,
            action[:500],
            lambda: node.handlers.partitions.plan_owner(
                PartitionId(partition), given.change, given.owner, given.accepts, given.replicas
            ),
            content=given.model_dump_json().encode(),
        )

    @changes.post("/admin/partitions/{partition}/give-up", operation_id="give_up", response_model=Receipt)
    async def give_up(request: Request, partition: Number, given: Annotated[GivenUp, Body()]) -> Response:
        """Publish a committed epoch without this partition, whose owner has lost rows of it."""
        action = f"partition {partition} give-up scope {given.scope} epoch {given.epoch}: {given.accepts}"
        return await mutations.change(
            request,
            action[:500],
            lambda: node.handlers.partitions.plan_give_up(PartitionId(partition), given.scope, given.epoch),
            content=given.model_dump_json().encode(),
        )

    @changes.post("/admin/partitions/{partition}/release", operation_id="release", response_model=Receipt)
    async def release(request: Request, partition: Number) -> Response:
        """Read the quarantined replicas of a partition again; the quarantine ends where all is sound."""
        return await mutations.change(
            request,
            f"partition {partition} release",
            lambda: node.handlers.quarantines.plan_release(PartitionId(partition)),
        )

    return changes

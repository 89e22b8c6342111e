"""One partition over HTTP: who has it and what changes it for viewers, an owner by force for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.http.access import About, principal
from ringfence.control.http.mutations import Mutations
from ringfence.control.http.openapi_bodies import Number, Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, needs, no_store
from ringfence.control.http.problems import Problem
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.admin import Outcome, RequestContext
from ringfence.control.state_machines.metadata.reassignment_checks import ACCEPTS_MIN, WHY_MAX


class ForceGiven(BaseModel):
    """Which failover it ends, who becomes owner, and what the operator knows may be lost."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    change: Number = Field(description="the number of the open failover: `change.change` of the partition")
    owner: Number
    replicas: Annotated[list[Number], Field(max_length=5)] = Field(
        default=[], description="nodes from then on, the owner among them; none: the same as before"
    )
    accepts: Annotated[str, StringConstraints(min_length=ACCEPTS_MIN, max_length=WHY_MAX)] = Field(
        description="what may be lost by it, as its candidate's `may_lose` says; log and audit keep it"
    )


class GivenUp(BaseModel):
    """Whose rows are not waited for any longer, and what the operator knows is lost."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    scope: Number = Field(description="the number of the scope: `unpublished.scope` of the partition")
    epoch: Number
    accepts: Annotated[str, StringConstraints(min_length=ACCEPTS_MIN, max_length=WHY_MAX)] = Field(
        description="what is lost by it; the audit log keeps it"
    )


def router(mutations: Mutations) -> APIRouter:
    """All of it."""
    both = APIRouter()
    both.include_router(_reads(mutations))
    both.include_router(_changes(mutations))
    return both


def _reads(mutations: Mutations) -> APIRouter:
    reads = APIRouter()
    ones = APIRouter(
        tags=["partitions"],
        dependencies=[*needs(mutations.access, Role.VIEWER, About.TOPICS), Depends(no_store)],
        responses=PROBLEMS,
    )
    whole = APIRouter(
        tags=["partitions"],
        dependencies=[*needs(mutations.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )

    @ones.get("/admin/partitions/{partition}", operation_id="partition")
    async def partition(request: Request, partition: Number) -> dict[str, Any]:
        """Owner, replicas and open change; of a failover what each replica answered, and would lose."""
        topic = mutations.node.partitions.topic_of(PartitionId(partition))
        prefix = principal(request).prefix
        if not ("" if topic is None else topic.name).startswith(prefix):
            # Also of a partition that is not there: whether another tenant has it is not told.
            detail = f"partition {partition} is not one of topics that begin with {prefix!r}"
            raise Problem(403, "forbidden", detail, prefix=prefix)
        return await mutations.node.partitions.show(PartitionId(partition))

    @whole.get("/admin/fsck", operation_id="fsck")
    async def fsck() -> dict[str, Any]:
        """Whether the cluster keeps I1, I4, I5, I11 and I16: every node is asked, some seconds long."""
        return await mutations.node.inspections.inspect()

    reads.include_router(ones)
    reads.include_router(whole)
    return reads


def _changes(mutations: Mutations) -> APIRouter:
    changes = APIRouter(
        tags=["partitions"],
        dependencies=[*needs(mutations.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )
    node = mutations.node

    async def forced(partition: int, given: ForceGiven, context: RequestContext) -> Outcome:
        await node.proposer.read_barrier()
        command = node.partitions.force(
            PartitionId(partition), given.change, given.owner, given.accepts, given.replicas
        )
        return await node.admin.propose(command, context)

    @changes.post(
        "/admin/partitions/{partition}/force-owner", operation_id="force_owner", response_model=Receipt
    )
    async def force_owner(
        request: Request, partition: Number, given: Annotated[ForceGiven, Body()]
    ) -> Response:
        """End a failover that finds no majority: this replica is the owner. Rows may be lost."""
        told = f"partition {partition} force-owner {given.owner} change {given.change}: {given.accepts}"
        return await mutations.change(
            request,
            told[:500],
            lambda context: forced(partition, given, context),
            content=given.model_dump_json().encode(),
        )

    async def without(partition: int, given: GivenUp, context: RequestContext) -> Outcome:
        command = await node.partitions.lost_partitions.give_up(
            PartitionId(partition), given.scope, given.epoch
        )
        return await node.admin.propose(command, context)

    @changes.post("/admin/partitions/{partition}/give-up", operation_id="give_up", response_model=Receipt)
    async def give_up(request: Request, partition: Number, given: Annotated[GivenUp, Body()]) -> Response:
        """Publish a decided epoch without this part, of which its owner has lost rows. They are lost."""
        told = f"partition {partition} give-up scope {given.scope} epoch {given.epoch}: {given.accepts}"
        return await mutations.change(
            request,
            told[:500],
            lambda context: without(partition, given, context),
            content=given.model_dump_json().encode(),
        )

    return changes

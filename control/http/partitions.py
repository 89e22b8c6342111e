"""One partition over HTTP: who has it and what changes it for viewers, an owner by force for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.http.access import About, principal
from ringfence.control.http.described import PROBLEMS, change_headers, needs, no_store, together
from ringfence.control.http.desk import Desk
from ringfence.control.http.problems import Problem
from ringfence.control.http.shapes import Number, Receipt
from ringfence.control.machines.change_checks import ACCEPTS_MIN, WHY_MAX
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.admin import Asked, Outcome


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


def router(desk: Desk) -> APIRouter:
    """All of it."""
    return together(_reads(desk), _changes(desk))


def _reads(desk: Desk) -> APIRouter:
    ones = APIRouter(
        tags=["partitions"], dependencies=[*needs(desk.access, Role.VIEWER, About.TOPICS), Depends(no_store)],
        responses=PROBLEMS,
    )  # fmt: skip
    whole = APIRouter(
        tags=["partitions"], dependencies=[*needs(desk.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )  # fmt: skip

    @ones.get("/admin/partitions/{partition}", operation_id="partition")
    async def partition(request: Request, partition: Number) -> dict[str, Any]:
        """Owner, replicas and open change; of a failover what each replica answered, and would lose."""
        topic = desk.node.partitions.topic_of(PartitionId(partition))
        prefix = principal(request).prefix
        if not ("" if topic is None else topic.name).startswith(prefix):
            # Also of a partition that is not there: whether another tenant has it is not told.
            detail = f"partition {partition} is not one of topics that begin with {prefix!r}"
            raise Problem(403, "forbidden", detail, prefix=prefix)
        return await desk.node.partitions.show(PartitionId(partition))

    @whole.get("/admin/fsck", operation_id="fsck")
    async def fsck() -> dict[str, Any]:
        """Whether the cluster keeps I1, I4, I5, I11 and I16: every node is asked, some seconds long."""
        return await desk.node.inspections.inspect()

    return together(ones, whole)


def _changes(desk: Desk) -> APIRouter:
    changes = APIRouter(
        tags=["partitions"], dependencies=[*needs(desk.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )  # fmt: skip
    node = desk.node

    async def forced(partition: int, given: ForceGiven, asked: Asked) -> Outcome:
        await node.proposer.fresh()
        command = node.partitions.force(
            PartitionId(partition), given.change, given.owner, given.accepts, given.replicas
        )
        return await node.admin.propose(command, asked)

    @changes.post(
        "/admin/partitions/{partition}/force-owner", operation_id="force_owner", response_model=Receipt
    )
    async def force_owner(
        request: Request, partition: Number, given: Annotated[ForceGiven, Body()]
    ) -> Response:
        """End a failover that finds no majority: this replica is the owner. Rows may be lost."""
        told = f"partition {partition} force-owner {given.owner} change {given.change}: {given.accepts}"
        return await desk.change(
            request, told[:500], lambda asked: forced(partition, given, asked),
            content=given.model_dump_json().encode(),
        )  # fmt: skip

    async def without(partition: int, given: GivenUp, asked: Asked) -> Outcome:
        command = await node.partitions.lost_parts.give_up(PartitionId(partition), given.scope, given.epoch)
        return await node.admin.propose(command, asked)

    @changes.post("/admin/partitions/{partition}/give-up", operation_id="give_up", response_model=Receipt)
    async def give_up(request: Request, partition: Number, given: Annotated[GivenUp, Body()]) -> Response:
        """Publish a decided epoch without this part, of which its owner has lost rows. They are lost."""
        told = f"partition {partition} give-up scope {given.scope} epoch {given.epoch}: {given.accepts}"
        return await desk.change(
            request, told[:500], lambda asked: without(partition, given, asked),
            content=given.model_dump_json().encode(),
        )  # fmt: skip

    return changes

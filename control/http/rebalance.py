"""Rebalances over HTTP: reads for viewers, start, pause, resume and cancel for admins (Z10)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.http.described import PROBLEMS, change_headers, needs, no_store, together
from ringfence.control.http.desk import Desk
from ringfence.control.http.shapes import NUMBER_MAX, Number, Receipt
from ringfence.control.machines.rebalance_plans import Chosen
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.rebalances import Action
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.admin import Asked, Outcome
from ringfence.control.runtime.rebalance_requests import shown_plan

ActionName = Literal["add_node", "remove_node", "balance", "move", "drain", "reverse"]
Verb = Literal["pause", "resume", "cancel"]
MoveText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}:[0-9]{1,18}(,[0-9]{1,18}){0,4}$")]
"""PARTITION:NODE[,NODE...], the owner first: as the command line has it."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MoveGiven(_Model):
    """Where a partition goes: nodes of its replicas, the owner first."""

    partition: Number
    nodes: Annotated[list[Number], Field(min_length=1, max_length=5)]


class RebalanceGiven(_Model):
    action: ActionName
    node: Number | None = Field(default=None, description="of add_node, remove_node and drain")
    moves: Annotated[list[MoveGiven], Field(max_length=4_096)] = []
    partitions: Annotated[list[Number], Field(max_length=4_096)] = Field(
        default=[], description="of reverse; none: all of the newest run that can be reversed"
    )


def router(desk: Desk) -> APIRouter:
    """All of it."""
    return together(_reads(desk), _changes(desk))


def _reads(desk: Desk) -> APIRouter:
    reads = APIRouter(
        tags=["rebalance"], dependencies=[*needs(desk.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )  # fmt: skip
    node = desk.node

    @reads.get("/admin/rebalance", operation_id="rebalance")
    async def rebalance() -> dict[str, Any]:
        """The run that is under way, or the last one, with its moves; as the leader sees it."""
        return await node.rebalances.show()

    @reads.get("/admin/moves", operation_id="moves")
    async def moves() -> dict[str, Any]:
        """The moves of that run."""
        return {"moves": (await node.rebalances.show())["moves"]}

    @reads.get("/admin/rebalance/history", operation_id="rebalance_history")
    async def history() -> dict[str, Any]:
        """Runs that have ended, the newest first."""
        return node.rebalances.history()

    @reads.get("/admin/rebalance/preview", operation_id="rebalance_preview")
    async def preview(
        action: ActionName,
        number: Annotated[int | None, Query(alias="node", ge=1, le=NUMBER_MAX)] = None,
        moves: Annotated[list[MoveText], Query(alias="move", max_length=32)] = [],  # noqa: B006 - FastAPI copies it
        partitions: Annotated[list[Number], Query(alias="partition", max_length=100)] = [],  # noqa: B006 - as above
    ) -> dict[str, Any]:
        """What a start would move now. 409 while another run is under way."""
        chosen = [_chosen(text) for text in moves] or [
            Chosen(PartitionId(number), ()) for number in partitions
        ]
        plan = await node.rebalances.plan(Action(action), NodeId(number or 0), chosen)
        return shown_plan(plan)

    return reads


def _changes(desk: Desk) -> APIRouter:
    changes = APIRouter(
        tags=["rebalance"], dependencies=[*needs(desk.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )  # fmt: skip
    node = desk.node

    async def begin(given: RebalanceGiven, asked: Asked) -> Outcome:
        chosen = [
            Chosen(PartitionId(move.partition), tuple(NodeId(number) for number in move.nodes))
            for move in given.moves
        ] or [Chosen(PartitionId(number), ()) for number in given.partitions]
        action, number = Action(given.action), NodeId(given.node or 0)
        if action is Action.DRAIN and (joined := await node.admin.drain_joined(number, asked)) is not None:
            return joined
        plan = await node.rebalances.plan(action, number, chosen)
        return await node.admin.propose(plan.command, asked)

    async def steered(verb: Verb, asked: Asked) -> Outcome:
        return await node.admin.propose(await node.rebalances.command(verb), asked)

    @changes.post("/admin/rebalance", operation_id="start_rebalance", status_code=201, response_model=Receipt)
    async def start(request: Request, given: Annotated[RebalanceGiven, Body()]) -> Response:
        """Begin a rebalance. 409 while another one is under way; a drain of the same node is joined."""
        return await desk.change(
            request, f"rebalance start {given.action}", lambda asked: begin(given, asked),
            content=given.model_dump_json().encode(), status=201,
        )  # fmt: skip

    @changes.post("/admin/rebalance/{verb}", operation_id="steer_rebalance", response_model=Receipt)
    async def steer(request: Request, verb: Verb) -> Response:
        """pause: moves that run end, none begins. resume. cancel: they are aborted; what is moved stays."""
        return await desk.change(request, f"rebalance {verb}", lambda asked: steered(verb, asked))

    return changes


def _chosen(text: str) -> Chosen:
    partition, _, nodes = text.partition(":")
    return Chosen(PartitionId(int(partition)), tuple(NodeId(int(node)) for node in nodes.split(",")))

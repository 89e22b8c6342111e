"""Serve rebalances: reads for viewers; start, pause, resume and cancel for admins (Z10)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_bodies import NUMBER_MAX, Number, Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs, no_store
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.rebalances import Action
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import Plan
from ringfence.control.runtime.handlers.rebalances import shown_plan
from ringfence.control.state_machines.rebalance.plans import ChosenMove

ActionName = Literal["add_node", "remove_node", "balance", "move", "drain", "reverse"]
Verb = Literal["pause", "resume", "cancel"]
# PARTITION:NODE[,NODE...], the owner first, as on the command line.
MoveText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}:[0-9]{1,18}(,[0-9]{1,18}){0,4}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MoveGiven(_Model):
    """The target nodes of a partition's replicas, the owner first."""

    partition: Number
    nodes: Annotated[list[Number], Field(min_length=1, max_length=5)]


class RebalanceGiven(_Model):
    action: ActionName
    node: Number | None = Field(default=None, description="for add_node, remove_node and drain")
    moves: Annotated[list[MoveGiven], Field(max_length=4_096)] = []
    partitions: Annotated[list[Number], Field(max_length=4_096)] = Field(
        default=[], description="for reverse; empty: all reversible partitions of the newest run"
    )


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations))


def _reads(mutations: Mutations) -> APIRouter:
    reads = APIRouter(
        tags=["rebalance"],
        dependencies=[*needs(mutations.access, Role.VIEWER), Depends(no_store)],
        responses=PROBLEMS,
    )
    node = mutations.node

    @reads.get("/admin/rebalance", operation_id="rebalance")
    async def rebalance() -> dict[str, Any]:
        """The current or last run with its moves, as the leader knows it."""
        return await node.handlers.rebalances.show()

    @reads.get("/admin/moves", operation_id="moves")
    async def moves() -> dict[str, Any]:
        """The moves of the current or last run."""
        return {"moves": (await node.handlers.rebalances.show())["moves"]}

    @reads.get("/admin/rebalance/history", operation_id="rebalance_history")
    async def history() -> dict[str, Any]:
        """Runs that have ended, the newest first, with rates and latencies before, during and after each."""
        return await node.handlers.rebalances.history()

    @reads.get("/admin/rebalance/preview", operation_id="rebalance_preview")
    async def preview(
        action: ActionName,
        number: Annotated[int | None, Query(alias="node", ge=1, le=NUMBER_MAX)] = None,
        moves: Annotated[list[MoveText], Query(alias="move", max_length=32)] = [],  # noqa: B006 - FastAPI copies it
        partitions: Annotated[list[Number], Query(alias="partition", max_length=100)] = [],  # noqa: B006 - as above
    ) -> dict[str, Any]:
        """The moves that a start would make now. 409 while a run is active."""
        chosen = [_chosen(text) for text in moves] or [
            ChosenMove(PartitionId(number), ()) for number in partitions
        ]
        plan = await node.handlers.rebalances.preview(Action(action), NodeId(number or 0), chosen)
        return shown_plan(plan)

    return reads


def _changes(mutations: Mutations) -> APIRouter:
    changes = APIRouter(
        tags=["rebalance"],
        dependencies=[*needs(mutations.access, Role.ADMIN), Depends(change_headers)],
        responses=PROBLEMS,
    )
    rebalances = mutations.node.handlers.rebalances

    async def plan_start(given: RebalanceGiven) -> Plan:
        chosen = [
            ChosenMove(PartitionId(move.partition), tuple(NodeId(number) for number in move.nodes))
            for move in given.moves
        ] or [ChosenMove(PartitionId(number), ()) for number in given.partitions]
        return await rebalances.plan_start(Action(given.action), NodeId(given.node or 0), chosen)

    @changes.post("/admin/rebalance", operation_id="start_rebalance", status_code=201, response_model=Receipt)
    async def start(request: Request, given: Annotated[RebalanceGiven, Body()]) -> Response:
        """Start a rebalance. 409 while a run is active, except that a drain joins one of the same node."""
        return await mutations.change(
            request,
            f"rebalance start {given.action}",
            lambda: plan_start(given),
            content=given.model_dump_json().encode(),
            status=201,
        )

    @changes.post("/admin/rebalance/{verb}", operation_id="steer_rebalance", response_model=Receipt)
    async def steer(request: Request, verb: Verb) -> Response:
        """Pause: running moves end, no new one starts. Resume. Cancel: abort running moves, undo nothing."""
        return await mutations.change(request, f"rebalance {verb}", lambda: rebalances.plan_steer(verb))

    return changes


def _chosen(text: str) -> ChosenMove:
    partition, _, nodes = text.partition(":")
    return ChosenMove(PartitionId(int(partition)), tuple(NodeId(int(node)) for node in nodes.split(",")))

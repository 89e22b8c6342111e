"""Serve changes of nodes and of the cluster's limits."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Request, Response

from ringfence.control.http import openapi_bodies
from ringfence.control.http.authorize import About
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_parts import change_router, combine_routers, content_of
from ringfence.control.http.problems import unknown_node
from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import NodeId
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers import node_plans
from ringfence.control.runtime.handlers.commands import plan_of


def router(mutations: Mutations) -> APIRouter:
    """Changes of votes and drains, for operators; of members and limits, for admins."""
    operators = change_router("cluster", mutations.access, Role.OPERATOR, About.CLUSTER)
    admins = change_router("cluster", mutations.access, Role.ADMIN, About.CLUSTER)
    proposer = mutations.node.proposer

    def member(number: int) -> NodeId:
        if number not in proposer.state.nodes:
            raise unknown_node(number)
        return NodeId(number)

    @operators.post(
        "/admin/nodes/{number}/{change}", operation_id="change_node", response_model=openapi_bodies.Receipt
    )
    async def change_node(
        request: Request,
        number: openapi_bodies.Number,
        change: Literal["promote", "demote", "auto", "drain", "undrain"],
    ) -> Response:
        """Promote, demote, auto: whether the node votes.

        Drain: the node gets no new replicas, and a run moves its replicas away; `index` is the run's number.
        An active drain of the node is joined. Undrain: end the drain, and cancel its run.
        """
        node = member(number)
        return await mutations.change(
            request,
            f"node {change}",
            lambda: node_plans.plan(proposer, node, change, joins=True),
            resource=f"node/{number}",
        )

    @admins.delete("/admin/nodes/{number}", operation_id="remove_node", response_model=openapi_bodies.Receipt)
    async def remove_node(request: Request, number: openapi_bodies.Number) -> Response:
        """Remove a node without replicas from the ring and the cluster, permanently."""
        return await mutations.change(
            request,
            "node remove",
            lambda: node_plans.plan(proposer, member(number), "remove", joins=True),
            resource=f"node/{number}",
        )

    @admins.patch("/admin/config", operation_id="set_config", response_model=openapi_bodies.Receipt)
    async def set_config(request: Request, given: Annotated[openapi_bodies.ConfigGiven, Body()]) -> Response:
        """Change limits of the cluster; GET returns them with their ranges."""
        return await mutations.change(
            request,
            f"config {' '.join(f'{name}={value}' for name, value in given.values.items())}"[:200],
            lambda: plan_of(SetConfig(values=given.values)),
            resource="config",
            content=content_of(given),
        )

    return combine_routers(operators, admins)

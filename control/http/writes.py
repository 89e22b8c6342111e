"""Serve changes of topics, nodes, limits and tokens. Each change is one entry, which any node can propose."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal
from urllib.parse import quote

import pyarrow as pa
from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel

from ringfence.arrow.array_checks import cut_name
from ringfence.control.http import openapi_bodies
from ringfence.control.http.access import About
from ringfence.control.http.mutations import Mutations
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, needs
from ringfence.control.http.problems import Problem, unknown_node
from ringfence.control.http.reads import NamePart
from ringfence.control.model.commands import CreateToken, RevokeToken, SetConfig
from ringfence.control.model.ids import NodeId
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers import node_plans
from ringfence.control.runtime.handlers.commands import Plan, plan_of
from ringfence.control.runtime.handlers.topics import full_name
from ringfence.control.runtime.handlers.type_names import parse_type
from ringfence.native import messages
from ringfence.native._node import schema_message

TOPIC = "/admin/topics/{tenant}/{namespace}/{name}"


def _router(tag: str, mutations: Mutations, role: Role) -> APIRouter:
    about = About.TOPICS if tag == "topics" else About.CLUSTER
    depends = [*needs(mutations.access, role, about), Depends(change_headers)]
    return APIRouter(tags=[tag], dependencies=depends, responses=PROBLEMS)


def of_topics(mutations: Mutations) -> APIRouter:
    """Changes of topics, for operators."""
    router = _router("topics", mutations, Role.OPERATOR)
    _add_creation(router, mutations)
    _add_topic_changes(router, mutations)
    return router


def _add_creation(router: APIRouter, mutations: Mutations) -> None:
    @router.post(
        "/admin/topics", operation_id="create_topic", status_code=201, response_model=openapi_bodies.Receipt
    )
    async def create(request: Request, given: Annotated[openapi_bodies.TopicGiven, Body()]) -> Response:
        """Create a topic whose partitions tile all slots. 409 if the name is taken."""
        order = messages.TopicCreate(
            name=given.name,
            schema=_schema(given),
            key=given.key,
            partitions=given.partitions,
            replication=given.replication,
            retention_bytes=given.retention_bytes,
            retention_ms=given.retention_ms,
            properties=given.properties,
        )
        full = full_name(given.name)
        path = f"/admin/topics/{full}"
        return await mutations.change(
            request,
            "topic create",
            mutations.node.handlers.topics.creation(order),
            content=_bytes(given),
            status=201,
            path=path,
            topic=full,
        )


def _add_topic_changes(router: APIRouter, mutations: Mutations) -> None:
    topics = mutations.node.handlers.topics

    @router.delete(TOPIC, operation_id="delete_topic", response_model=openapi_bodies.Receipt)
    async def delete(request: Request, tenant: NamePart, namespace: NamePart, name: NamePart) -> Response:
        """Delete a topic and its rows. The name is free immediately."""
        full = f"{tenant}/{namespace}/{name}"

        async def build() -> Plan:
            return topics.deletion(await topics.topic_named(full))

        return await mutations.change(request, "topic delete", build, resource=_resource(mutations, full))

    @router.post(f"{TOPIC}/truncate", operation_id="truncate_topic", response_model=openapi_bodies.Receipt)
    async def truncate(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        given: Annotated[openapi_bodies.TruncateGiven | None, Body()] = None,
    ) -> Response:
        """Remove rows from the front."""
        full = f"{tenant}/{namespace}/{name}"
        given = given or openapi_bodies.TruncateGiven()
        order = messages.TopicTruncate(
            name=full, partition=given.partition, before_offset=given.before_offset
        )

        async def build() -> Plan:
            return await topics.truncation(await topics.topic_named(full), order)

        return await mutations.change(
            request,
            "topic truncate",
            build,
            wait=mutations.node.handlers.completion.truncated,
            resource=_resource(mutations, full),
            content=_bytes(given),
        )

    @router.post(f"{TOPIC}/schemas", operation_id="add_schema", response_model=openapi_bodies.Receipt)
    async def add_schema(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        given: Annotated[openapi_bodies.SchemaGiven, Body()],
    ) -> Response:
        """Add a schema: the last schema, with further nullable columns at the end."""
        full, schema = f"{tenant}/{namespace}/{name}", _schema(given)

        async def build() -> Plan:
            return topics.addition(await topics.topic_named(full), schema)

        return await mutations.change(
            request, "schema add", build, resource=_resource(mutations, full), content=_bytes(given)
        )


def _resource(mutations: Mutations, full: str) -> str:
    topic = mutations.node.proposer.state.topic_named(full)
    return f"topic/{0 if topic is None else topic.topic}"


def of_nodes(mutations: Mutations) -> APIRouter:
    """Changes of votes and drains, for operators; of members and limits, for admins."""
    router = APIRouter()
    operators, admins = (
        _router("cluster", mutations, Role.OPERATOR),
        _router("cluster", mutations, Role.ADMIN),
    )
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
            content=_bytes(given),
        )

    router.include_router(operators)
    router.include_router(admins)
    return router


def of_tokens(mutations: Mutations) -> APIRouter:
    """Tokens, for admins."""
    router = _router("tokens", mutations, Role.ADMIN)
    node = mutations.node

    @router.get("/admin/tokens", operation_id="tokens")
    async def tokens() -> openapi_bodies.Tokens:
        """All tokens, without their hashes."""
        by_name = sorted(node.proposer.state.tokens.items())
        return openapi_bodies.Tokens(
            tokens=[
                openapi_bodies.TokenShown(
                    name=name,
                    role=token.role,
                    created=token.created,
                    expires_ms=token.expires_ms,
                    prefix=token.prefix,
                )
                for name, token in by_name
            ]
        )

    @router.post(
        "/admin/tokens", operation_id="create_token", status_code=201, response_model=openapi_bodies.Receipt
    )
    async def create_token(request: Request, given: Annotated[openapi_bodies.TokenGiven, Body()]) -> Response:
        """Create a token for the secret with this SHA-256. From the first token on every client needs one.

        Draw 32 random bytes for the secret, as `ringfence token create` does.
        """
        command = CreateToken(
            name=given.name,
            hash=bytes.fromhex(given.sha256),
            role=given.role,
            expires_ms=given.expires_ms,
            prefix=given.prefix,
        )
        return await mutations.change(
            request,
            f"token create {given.name} {given.role}",
            lambda: plan_of(command),
            wait=node.handlers.completion.carried_out_everywhere,
            content=_bytes(given),
            status=201,
            path=f"/admin/tokens/{quote(given.name, safe='')}",
        )

    @router.delete(
        "/admin/tokens/{name:path}", operation_id="revoke_token", response_model=openapi_bodies.Receipt
    )
    async def revoke_token(request: Request, name: openapi_bodies.Name) -> Response:
        """Revoke a token. Every node that has applied the change refuses its secret."""

        async def build() -> Plan:
            if name not in node.proposer.state.tokens:
                detail = f"no token is named {name[:100]!r}; `ringfence token list` lists them"
                raise Problem(404, "unknown-token", detail)
            return Plan((RevokeToken(name=name),))

        return await mutations.change(
            request,
            f"token revoke {name}",
            build,
            wait=node.handlers.completion.carried_out_everywhere,
            resource=f"token/{name}",
        )

    return router


def _bytes(given: BaseModel) -> bytes:
    return given.model_dump_json().encode()


def _schema(given: openapi_bodies.SchemaGiven) -> bytes:
    """The Arrow schema message of a body. Problem 422 if the schema is invalid."""
    if (given.columns is None) == (given.schema_ipc is None):
        raise Problem(422, "invalid-request", "send either `columns` or `schema_ipc`, not both")
    try:
        if given.schema_ipc is not None:
            return base64.b64decode(given.schema_ipc, validate=True)
        schema = pa.schema(
            [
                pa.field(column.name, parse_type(column.type), nullable=column.nullable)
                for column in given.columns or ()
            ]
        )
        if (cut := cut_name(schema)) is not None:
            raise Problem(422, "invalid-request", f"columns: the name {cut!r} has a zero byte; rename it")
        return bytes(schema_message(schema))
    except binascii.Error as error:
        raise Problem(422, "invalid-request", f"schema_ipc: {error}") from error
    except (ValueError, pa.ArrowException) as error:
        raise Problem(422, "invalid-request", f"columns: {error}") from error

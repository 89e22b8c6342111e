"""Serve changes of topics. Each change is one entry, which any node can propose."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Body, Query, Request, Response

from ringfence.arrow.array_checks import cut_name
from ringfence.control.http import openapi_bodies
from ringfence.control.http.authorize import About
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_parts import change_router, content_of
from ringfence.control.http.problems import Problem
from ringfence.control.http.read_routes import NamePart
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import Plan
from ringfence.control.runtime.handlers.topic_plans import full_name
from ringfence.control.runtime.handlers.type_names import parse_type
from ringfence.native import messages
from ringfence.native._node import schema_message

Force = Annotated[bool, Query(description="also if members of cohorts read it")]
TOPIC = "/admin/topics/{tenant}/{namespace}/{name}"


def router(mutations: Mutations) -> APIRouter:
    """Changes of topics, for operators."""
    routes = change_router("topics", mutations.access, Role.OPERATOR, About.TOPICS)
    _add_creation(routes, mutations)
    _add_topic_changes(routes, mutations)
    return routes


def _add_creation(routes: APIRouter, mutations: Mutations) -> None:
    @routes.post(
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
            content=content_of(given),
            status=201,
            path=path,
            topic=full,
        )


def _add_topic_changes(routes: APIRouter, mutations: Mutations) -> None:
    topics = mutations.node.handlers.topics

    @routes.delete(TOPIC, operation_id="delete_topic", response_model=openapi_bodies.Receipt)
    async def delete(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        force: Force = False,  # noqa: FBT002 - FastAPI's
    ) -> Response:
        """Delete a topic and its rows. The name is free immediately. 409 while members of cohorts read it."""
        full = f"{tenant}/{namespace}/{name}"

        async def build() -> Plan:
            return topics.deletion(await topics.topic_named(full), force=force)

        return await mutations.change(
            request,
            "topic delete",
            build,
            resource=_resource(mutations, full),
            content=b"force" if force else b"",
        )

    @routes.post(f"{TOPIC}/truncate", operation_id="truncate_topic", response_model=openapi_bodies.Receipt)
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
            content=content_of(given),
        )

    @routes.post(f"{TOPIC}/schemas", operation_id="add_schema", response_model=openapi_bodies.Receipt)
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
            request, "schema add", build, resource=_resource(mutations, full), content=content_of(given)
        )


def _resource(mutations: Mutations, full: str) -> str:
    topic = mutations.node.proposer.state.topic_named(full)
    return f"topic/{0 if topic is None else topic.topic}"


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

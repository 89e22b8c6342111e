"""Serve reads of this node, and of the cluster as this node knows it. Any node serves all reads."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import StringConstraints

from ringfence.control.http import layout_bodies, openapi_bodies
from ringfence.control.http.authorize import About, Access, principal
from ringfence.control.http.openapi_parts import PROBLEMS, needs, no_store
from ringfence.control.http.problems import Problem, unknown_node
from ringfence.control.http.topic_bodies import page_with_stats, topic_shown, topic_summary
from ringfence.control.metrics.metric_definitions import exposition
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.names import full_topic_prefix
from ringfence.control.model.tokens import Role
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers import views
from ringfence.control.runtime.handlers.layout_views import layout_shown
from ringfence.control.runtime.handlers.token_prefixes import restrict_status_to_prefix
from ringfence.control.runtime.node_process import Node
from ringfence.control.state_machines.metadata.config import limit, limits_of
from ringfence.control.state_machines.metadata.etags import tag_of
from ringfence.control.state_machines.metadata.layout_rules import planned_children
from ringfence.control.state_machines.metadata.table_progress import PartitionView, Progress, TableState, view

LIST_MAX = 1_000
# Topics of one page without `limit` and `stats`.
TOPICS_DEFAULT = 100
NamePart = Annotated[openapi_bodies.Segment, "a part of a topic's name"]
Pair = Annotated[str, StringConstraints(pattern=r"^[^=]+=", max_length=1_000)]


class LinearizableRead:
    """Dependency of reads: `?linearizable=true` waits for all entries committed before the request."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def __call__(self, response: Response, linearizable: bool = False) -> None:  # noqa: FBT001, FBT002 - FastAPI's
        """`linearizable`: this node asks the leader first, so that no acknowledged change is missing."""
        if linearizable:
            await self._node.proposer.read_barrier()
        response.headers["X-Ringfence-Index"] = str(self._node.proposer.applied.index)
        no_store(response)


def linearizable_reads(node: Node, access: Access, about: About) -> list[Any]:
    """Dependencies of operations that read metadata: the role of a viewer, and `LinearizableRead`."""
    return [*needs(access, Role.VIEWER, about), Depends(LinearizableRead(node))]


def topic_at(node: Node, tenant: str, namespace: str, name: str) -> Topic:
    """The topic of a path. Problem 404 if there is none."""
    full = f"{tenant}/{namespace}/{name}"
    topic = node.proposer.state.topic_named(full)
    if topic is None:
        message = f"no topic is named {full[:300]!r}; `ringfence topic list` (/admin/topics) lists them"
        raise Problem(404, "unknown-topic", message)
    return topic


def probes(node: Node) -> APIRouter:
    """Health probes, without authorization."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live", operation_id="live")
    async def live(response: Response) -> openapi_bodies.Live:
        """200 while the process and its event loop answer."""
        no_store(response)
        return openapi_bodies.Live(live=True, uptime_s=round(node.uptime_s, 3))

    @router.get("/health/ready", operation_id="ready", responses={503: {"model": openapi_bodies.Ready}})
    async def ready(response: Response) -> openapi_bodies.Ready:
        """200 while the node serves, degraded or not; 503 while it starts or stops."""
        no_store(response)
        response.status_code = 200 if node.health.state in {"serving", "degraded"} else 503
        reasons = node.health.reasons
        if reasons and node.proposer.state.tokens:
            # Reasons name topics and scopes, and a probe shows no token.
            reasons = [f"{len(reasons)} reasons: GET /admin/status with a token lists them"]
        return openapi_bodies.Ready(state=node.health.state, reasons=reasons)

    return router


def of_node(node: Node, access: Access) -> APIRouter:
    """Status and metadata of this node, and the caller's role."""
    depends = needs(access, Role.VIEWER, About.MEMBERS)
    router = APIRouter(tags=["node"], dependencies=depends, responses=PROBLEMS)
    linearizable = Depends(LinearizableRead(node))

    @router.get("/admin/status", operation_id="status", dependencies=[linearizable])
    async def status(request: Request) -> openapi_bodies.Status:
        """State of this node: leader, term, index, hash, role, counters.

        A token with a prefix gets counts of its own topics, and neither counters nor texts of reasons.
        """
        own_status = restrict_status_to_prefix(node.proposer.state, principal(request).prefix, node.status())
        at, digest = node.digest
        formed = node.proposer.state.ring.is_formed
        values = {name: getattr(own_status, name) for name in own_status.__struct_fields__}
        for name in ("cluster", "history", "store"):
            values[name] = values[name].hex()
        table = TableState.ASSIGNED if formed else TableState.UNASSIGNED
        return openapi_bodies.Status(
            **values, hash=digest.hex(), hash_index=at, control=node.control_address, table=str(table)
        )

    @router.get("/admin/metadata", operation_id="metadata", dependencies=[linearizable])
    async def metadata() -> openapi_bodies.Metadata:
        """The metadata log of this node: positions, hash, configuration of consensus."""
        replica, (at, digest) = node.proposer.replica, node.digest
        log, configuration = replica.node.core.log, replica.configuration
        snapshot = log.storage.snapshot()
        return openapi_bodies.Metadata(
            index=replica.applied.index,
            term=replica.term,
            leader=replica.leader,
            hash=digest.hex(),
            hash_index=at,
            time_ms=replica.state.time_ms,
            commit=log.commit,
            snapshot_index=0 if snapshot is None else snapshot.index,
            log_first=log.first_index(),
            log_last=log.last_index(),
            voters=list(configuration.voters),
            voters_outgoing=list(configuration.voters_outgoing),
            learners=list(configuration.learners),
        )

    @router.get("/admin/me", operation_id="me")
    async def me(request: Request, response: Response) -> openapi_bodies.Me:
        """Name, role and prefix of the caller's token."""
        no_store(response)
        caller = principal(request)
        assert caller.role is not None, "a caller over HTTP has a role"
        return openapi_bodies.Me(name=caller.name, role=caller.role, prefix=caller.prefix)

    return router


def of_loads(node: Node, access: Access) -> APIRouter:
    """Counters of this node and the loads of all topics."""
    router = APIRouter(tags=["node"], dependencies=needs(access, Role.VIEWER), responses=PROBLEMS)

    @router.get(
        "/metrics",
        operation_id="metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(exposition(node), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def of_cluster(node: Node, access: Access) -> APIRouter:
    """Nodes, ring and limits."""
    depends = linearizable_reads(node, access, About.MEMBERS)
    router = APIRouter(tags=["cluster"], dependencies=depends, responses=PROBLEMS)

    @router.get("/admin/nodes", operation_id="nodes")
    async def nodes() -> openapi_bodies.Nodes:
        """All members: life, consensus role, partitions, addresses."""
        replica = node.proposer.replica
        infos = views.nodes(node.proposer.state, replica.leader, replica.configuration)
        shown = [openapi_bodies.NodeShown(**_fields(info)) for info in infos]
        return openapi_bodies.Nodes(leader=replica.leader, term=replica.term, nodes=shown)

    @router.get("/admin/nodes/{number}", operation_id="node")
    async def one_node(number: openapi_bodies.Number, response: Response) -> openapi_bodies.NodeShown:
        """One member, with the ETag for If-Match of a change."""
        replica = node.proposer.replica
        for info in views.nodes(node.proposer.state, replica.leader, replica.configuration):
            if info.node == number:
                response.headers["ETag"] = f'"{tag_of(node.proposer.state, f"node/{number}")}"'
                return openapi_bodies.NodeShown(**_fields(info))
        raise unknown_node(number)

    @router.get("/admin/ring", operation_id="ring")
    async def ring(response: Response) -> openapi_bodies.RingShown:
        """The members that get partitions. Version 0: the cluster is below its minimum size."""
        state = node.proposer.state
        response.headers["ETag"] = f'"{tag_of(state, "ring")}"'
        members = [int(member) for member in state.ring.members]
        return openapi_bodies.RingShown(
            version=state.ring.version,
            members=members,
            changed=state.ring.changed,
            nodes_min=limit(state, "nodes_min"),
        )

    @router.get("/admin/config", operation_id="config")
    async def config(response: Response) -> openapi_bodies.Config:
        """Limits of the cluster, with their ranges and reasons."""
        state = node.proposer.state
        response.headers["ETag"] = f'"{tag_of(state, "config")}"'
        return openapi_bodies.Config(
            values={
                name: openapi_bodies.LimitShown(value=limit(state, name), **description._asdict())
                for name, description in sorted(limits_of(state).items())
            }
        )

    return router


def of_topics(node: Node, access: Access) -> APIRouter:
    """Topics with their figures."""
    depends = linearizable_reads(node, access, About.TOPICS)
    router = APIRouter(tags=["topics"], dependencies=depends, responses=PROBLEMS)

    @router.get(
        "/admin/topics",
        operation_id="topics",
        response_model=openapi_bodies.Topics | openapi_bodies.TopicsShown,
    )
    async def topics(
        request: Request,
        response: Response,
        prefix: Annotated[str, Query(max_length=255)] = "",
        after: Annotated[str, Query(max_length=255)] = "",
        limit: Annotated[int | None, Query(ge=1, le=LIST_MAX)] = None,
        stats: bool = False,  # noqa: FBT001, FBT002 - FastAPI's
        properties: Annotated[list[Pair], Query(alias="property", max_length=16)] = [],  # noqa: B006 - FastAPI copies it
    ) -> Any:
        """Topics in the order of their full names, `limit` at a time; `property=KEY=VALUE` filters.

        `limit`: 100 if it is left out; with `stats` as many as fit 16 MiB.
        `stats`: with columns and figures, as one topic is shown; the node asks every live node once.
        """
        state, filters = node.proposer.state, [pair.partition("=")[::2] for pair in properties]
        begin, allowed = full_topic_prefix(prefix), principal(request).prefix
        names = sorted(name for name in state.names if name.startswith(begin) and name > after)
        names = [name for name in names if name.startswith(allowed)]
        if limit is None:
            limit = len(names) if stats else TOPICS_DEFAULT
        matching = (
            [
                topic
                for name in names
                if all(
                    (topic := state.topics[state.names[name]]).properties.get(key) == value
                    for key, value in filters
                )
            ]
            if filters
            else [state.topics[state.names[name]] for name in names[: limit + 1]]
        )
        if stats:
            page = await page_with_stats(node.handlers.topics, matching, limit)
            return Response(page, media_type="application/json", headers=dict(response.headers))
        shown = [topic_summary(topic) for topic in matching[:limit]]
        return openapi_bodies.Topics(topics=shown, more=len(matching) > limit)

    @router.get("/admin/topics/{tenant}/{namespace}/{name}", operation_id="topic")
    async def topic(
        tenant: NamePart, namespace: NamePart, name: NamePart, response: Response
    ) -> openapi_bodies.TopicShown:
        """One topic with the figures of its partitions, and the ETag for If-Match of a change."""
        entry = topic_at(node, tenant, namespace, name)
        info, lags = await node.handlers.topics.shown(entry)
        response.headers["ETag"] = f'"{tag_of(node.proposer.state, f"topic/{entry.topic}")}"'
        return topic_shown(entry, info, lags)

    return router


def of_tables(node: Node, access: Access) -> APIRouter:
    """Layouts of topics, and the assignments of their partitions."""
    depends = linearizable_reads(node, access, About.TOPICS)
    router = APIRouter(tags=["topics"], dependencies=depends, responses=PROBLEMS)

    @router.get("/admin/topics/{tenant}/{namespace}/{name}/layout", operation_id="layout")
    async def layout(tenant: NamePart, namespace: NamePart, name: NamePart) -> layout_bodies.Layout:
        """The partitions, SEALED ones included, with lineage and ends; and open layout changes."""
        entry = topic_at(node, tenant, namespace, name)
        return layout_bodies.Layout(**layout_shown(node.proposer.state, entry))

    @router.get("/admin/topics/{tenant}/{namespace}/{name}/assignments", operation_id="assignments")
    async def assignments(
        tenant: NamePart, namespace: NamePart, name: NamePart
    ) -> openapi_bodies.Assignments:
        """Owners and replicas, and whether the partitions are open at their owners. Asks every live node."""
        executed = {NodeId(number): Index(index) for number, index in (await node.executed_indexes()).items()}
        entry, state = topic_at(node, tenant, namespace, name), node.proposer.state
        table = view(state, entry, Progress(executed, moving=state.changes.keys()))
        placed = {number: assigned.replicas for number, assigned in entry.assignments.items()}
        placed |= {child.partition: child.replicas for child in planned_children(state, entry.topic)}

        def shown(part: PartitionView) -> openapi_bodies.AssignmentShown:
            return openapi_bodies.AssignmentShown(
                partition=part.partition,
                owner=part.owner,
                epoch=part.epoch,
                state=str(part.state),
                replicas=[
                    openapi_bodies.Place(node=replica.node, store=replica.store.hex())
                    for replica in placed[part.partition]
                ],
            )

        return openapi_bodies.Assignments(
            topic=entry.topic,
            state=str(table.state),
            partitions=[shown(part) for part in table.partitions],
            sealed=[shown(part) for part in table.sealed],
            planned=[shown(part) for part in table.planned],
            pending=[openapi_bodies.PendingOrder(**order._asdict()) for order in table.pending],
        )

    return router


def _fields(value: Any) -> dict[str, Any]:
    return {
        name: list(field) if isinstance(field := getattr(value, name), tuple) else field
        for name in value.__struct_fields__
    }

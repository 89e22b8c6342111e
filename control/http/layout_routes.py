"""Serve layouts: partitions with lineage and open layout changes for viewers; layout changes for admins.

A layout change is one entry with a number, and goes on after it. The answer follows once it is committed or
aborted, or `wait_s` is over; then it is 202, and `GET /admin/transitions` shows the progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import JSONResponse

from ringfence.control.http.authorize import About, principal
from ringfence.control.http.layout_bodies import LayoutChangeShown, LayoutPartitionShown, TransitionsShown
from ringfence.control.http.mutation_pipeline import Mutations, Shown
from ringfence.control.http.openapi_bodies import Number, Receipt
from ringfence.control.http.openapi_parts import PROBLEMS, change_headers, combine_routers, needs
from ringfence.control.http.problems import Problem
from ringfence.control.http.read_routes import NamePart, linearizable_reads, topic_at
from ringfence.control.model.ids import TopicId
from ringfence.control.model.ranges import SLOT_LAST
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import Outcome, Plan
from ringfence.control.runtime.handlers.layout_changes import (
    LayoutRequest,
    Merge,
    Progress,
    Repartition,
    Split,
    partition_named,
    progress_of,
)
from ringfence.control.runtime.handlers.layout_views import (
    change_shown,
    lineage_of,
    partition_shown,
    preview_shown,
)
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.state_machines.metadata.reassignment_checks import WHY_MAX
from ringfence.native.wire import Code

TOPIC: Final = "/admin/topics/{tenant}/{namespace}/{name}"
WAIT_S: Final = 30.0
# Share of a request's time limit that the wait may take, so that the answer itself arrives in time.
WAIT_SHARE: Final = 0.9
Slot = Annotated[int, Field(ge=0, le=SLOT_LAST)]
# An id, or a name as the layout shows it: `0000-7fff-655360`.
PartitionText = Annotated[
    str, StringConstraints(pattern=r"^([0-9a-f]{4}-[0-9a-f]{4}-)?[0-9]{1,19}$", max_length=40)
]
Preview = Annotated[bool, Query(description="answer with what would be prepared; change nothing")]


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    wait_s: Annotated[float, Field(ge=0, le=600)] = Field(
        default=WAIT_S, description="seconds until the answer, even if the change is not decided by then"
    )


class SplitGiven(_Given):
    """Either `at` or `into`; without both the partition is split in two halves."""

    at: Annotated[list[Slot], Field(max_length=4_096)] = Field(
        default=[], description="slots at which a part begins"
    )
    into: Annotated[int, Field(ge=2, le=4_096)] | None = None


class MergeGiven(_Given):
    pass


class RepartitionGiven(_Given):
    partitions: Annotated[int, Field(ge=1, le=4_096)]
    even: bool = Field(
        default=False, description="change ranges of other sizes, although the number is right"
    )


class AbortGiven(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    why: Annotated[str, StringConstraints(max_length=WHY_MAX)] = ""


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations))


def reads_of_layouts(mutations: Mutations) -> APIRouter:
    """A router without operations: its reads are linearizable on request, and no cache keeps them."""
    return APIRouter(
        tags=["layouts"],
        dependencies=linearizable_reads(mutations.node, mutations.access, About.TOPICS),
        responses=PROBLEMS,
    )


def _reads(mutations: Mutations) -> APIRouter:
    node, reads = mutations.node, reads_of_layouts(mutations)

    @reads.get(f"{TOPIC}/partitions/{{partition}}", operation_id="topic_partition")
    async def topic_partition(
        tenant: NamePart, namespace: NamePart, name: NamePart, partition: PartitionText
    ) -> LayoutPartitionShown:
        """One partition, by its id or name, with its lineage. 404 with `pruned` if it was pruned."""
        topic = topic_at(node, tenant, namespace, name)
        part = partition_named(topic, partition)
        shown: dict[str, Any] = partition_shown(node.proposer.state, topic, part)
        return LayoutPartitionShown(**(shown | lineage_of(topic, part.partition)))

    @reads.get("/admin/transitions", operation_id="transitions")
    async def transitions(request: Request) -> TransitionsShown:
        """Open layout changes with what each waits for, as the leader knows it."""
        prefix = principal(request).prefix
        view = await node.handlers.layout_views.transitions()
        shown = [one for one in view["transitions"] if one["name"].startswith(prefix)]
        count = len(shown) if prefix else view["count"]
        ended = [one for one in view.get("ended", ()) if one["topic"].startswith(prefix)]
        return TransitionsShown(transitions=shown, count=count, ended=ended)

    return reads


def _changes(mutations: Mutations) -> APIRouter:
    changes = APIRouter(
        tags=["layouts"],
        dependencies=[*needs(mutations.access, Role.ADMIN, About.TOPICS), Depends(change_headers)],
        responses=PROBLEMS | {202: {"model": LayoutChangeShown}},
    )
    layouts = _Layouts(mutations)

    @changes.post(
        f"{TOPIC}/split/{{partition}}", operation_id="split_partition", response_model=LayoutChangeShown
    )
    async def split(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        partition: PartitionText,
        given: Annotated[SplitGiven | None, Body()] = None,
        preview: Preview = False,  # noqa: FBT002 - FastAPI's
    ) -> Response:
        """Split a partition at slots, or into parts of equal weight. Its rows stay where they are."""
        given = given or SplitGiven()
        if given.at and given.into is not None:
            raise Problem(422, "invalid-request", "send either `at` or `into`, not both")
        split = Split(partition, tuple(given.at), given.into or 2)
        return await layouts.change(request, f"{tenant}/{namespace}/{name}", split, given, preview=preview)

    @changes.post(
        f"{TOPIC}/merge/{{one}}/{{other}}", operation_id="merge_partitions", response_model=LayoutChangeShown
    )
    async def merge(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        one: PartitionText,
        other: PartitionText,
        given: Annotated[MergeGiven | None, Body()] = None,
        preview: Preview = False,  # noqa: FBT002 - FastAPI's
    ) -> Response:
        """Merge two adjacent partitions, in either order."""
        full = f"{tenant}/{namespace}/{name}"
        return await layouts.change(request, full, Merge(one, other), given or MergeGiven(), preview=preview)

    @changes.post(f"{TOPIC}/repartition", operation_id="repartition_topic", response_model=LayoutChangeShown)
    async def repartition(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        given: Annotated[RepartitionGiven, Body()],
        preview: Preview = False,  # noqa: FBT002 - FastAPI's
    ) -> Response:
        """Give the topic this number of partitions in one step. The same number: nothing is done."""
        wanted = Repartition(given.partitions, given.even)
        return await layouts.change(request, f"{tenant}/{namespace}/{name}", wanted, given, preview=preview)

    @changes.post(
        "/admin/transitions/{change}/abort", operation_id="abort_transition", response_model=Receipt
    )
    async def abort(
        request: Request, change: Number, given: Annotated[AbortGiven | None, Body()] = None
    ) -> Response:
        """End a layout change that is not committed. 409 after its COMMIT: it only goes forward."""
        return await layouts.abort(request, change, "" if given is None else given.why)

    return changes


class _Layouts:
    """The layout changes over HTTP of one node."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations, self._node = mutations, mutations.node

    async def change(
        self, request: Request, full: str, wanted: LayoutRequest, given: _Given, *, preview: bool
    ) -> Response:
        """Prepare the change and wait for its end; or answer with its preview."""
        node, layout_changes = self._node, self._node.handlers.layout_changes
        if preview:
            command = await layout_changes.preview(full, wanted)
            topic = node.proposer.state.topic_named(full)
            assert topic is not None, "the preview has found the topic"
            return JSONResponse(preview_shown(topic, command), 200, {"Cache-Control": "no-store"})
        most_s = node.settings.request_ms / 1_000 * WAIT_SHARE
        verb, reasons = type(wanted).__name__.lower(), dict[int, str]()
        times = dict[int, dict[str, Any]]()
        until_decided = layout_changes.until_decided(min(given.wait_s, most_s))

        async def wait(index: int, plan: Plan) -> Sequence[str]:
            faults = await until_decided(index, plan)
            if plan.topic is not None:
                views = node.handlers.layout_views
                progress = progress_of(node.proposer.state, plan.topic.topic, ChangeId(index))
                if progress is Progress.ABORTED:
                    reasons[index] = await views.abort_reason(ChangeId(index))
                elif progress is Progress.COMMITTED:
                    times[index] = await views.times_of(ChangeId(index))
            return faults

        return await self._mutations.change(
            request,
            f"topic {verb} {' '.join(map(str, wanted))}"[:500],
            layout_changes.planned(full, wanted),
            wait=wait,
            resource=f"topic/{self._topic_number(full)}",
            # The time that the caller waits is no part of what it asks for.
            content=given.model_dump_json(exclude={"wait_s"}).encode(),
            shown=self._shown(full, reasons, times),
        )

    def _topic_number(self, full: str) -> int:
        topic = self._node.proposer.state.topic_named(full)
        return 0 if topic is None else topic.topic

    def _shown(self, full: str, reasons: Mapping[int, str], times: Mapping[int, dict[str, Any]]) -> Shown:
        def shown(outcome: Outcome) -> tuple[int, dict[str, Any]]:
            state, change = self._node.proposer.state, ChangeId(outcome.index)
            topic = state.topic_named(full)
            if topic is None:
                detail = f"layout change {change}: topic {full[:300]!r} was deleted meanwhile"
                raise Problem(409, "layout-aborted", detail, change=change)
            progress = progress_of(state, topic.topic, change)
            if change and progress is Progress.ABORTED:
                why = reasons.get(change, "")
                detail = f"layout change {change} was aborted, nothing has changed"
                detail += (
                    f": {why}" if why else "; a node concerned restarted or failed, or an operator ended it"
                )
                raise Problem(409, "layout-aborted", f"{detail}. Ask again", change=change, retriable=True)
            is_over = not change or progress is Progress.COMMITTED
            return 200 if is_over else 202, change_shown(state, topic, change) | times.get(change, {})

        return shown

    async def abort(self, request: Request, change: int, why: str) -> Response:
        node = self._node
        transition = node.proposer.state.transitions.get(ChangeId(change))
        topic = None if transition is None else node.proposer.state.topics[TopicId(transition.topic)]
        prefix = principal(request).prefix
        if not ("" if topic is None else topic.name).startswith(prefix):
            # The same answer if there is none: otherwise the caller could find out what other tenants do.
            detail = f"layout change {change} is not one of topics that begin with {prefix!r}"
            raise Problem(403, "forbidden", detail, prefix=prefix)
        planned = node.handlers.layout_changes.planned_abort(change, why)

        async def build() -> Plan:
            try:
                return await planned()
            except RequestRefused as refusal:
                if refusal.code is Code.UNKNOWN_PARTITION:
                    raise Problem(404, "unknown-change", refusal.message) from refusal
                raise

        return await self._mutations.change(
            request, f"layout change {change} abort: {why}"[:500], build, content=why.encode()
        )

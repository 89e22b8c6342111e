"""Serve what queues have parked: a list for viewers, retry and discard for operators.

Both acts may be repeated: a range that is not parked any more is named in the answer. So no idempotency key
is kept. An export copies rows, and is made by a client or by `ringfence cohort export`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request, Response
from msgspec import UNSET
from msgspec import to_builtins as built
from starlette.responses import JSONResponse

from ringfence.control.http import cohort_bodies as bodies
from ringfence.control.http.audit_lines import peer_of
from ringfence.control.http.authorize import About, principal
from ringfence.control.http.cohort_routes import COHORT, Label, cohort_at
from ringfence.control.http.mutation_pipeline import HttpDoor, Mutations
from ringfence.control.http.openapi_parts import PROBLEMS, change_router, combine_routers
from ringfence.control.http.problems import Problem, of_refusal
from ringfence.control.http.read_routes import NamePart, linearizable_reads
from ringfence.control.model.cohorts import Cohort
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import RequestContext
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native.cohort_messages import CohortParked, ParkedListed, ParkedSettled

PARKED: Final = f"{COHORT}/parked"
# The last (partition, number) of a page.
After = Annotated[str, Query(pattern=r"^([0-9]{1,19}:[0-9]{1,19})?$", description="PARTITION:NUMBER")]


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _acts(mutations))


def _reads(mutations: Mutations) -> APIRouter:
    node = mutations.node
    reads = APIRouter(
        tags=["cohorts"],
        dependencies=linearizable_reads(node, mutations.access, About.TOPICS),
        responses=PROBLEMS,
    )

    @reads.get(PARKED, operation_id="parked")
    async def parked(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        cohort: Label,
        after: After = "",
    ) -> bodies.ParkedListShown:
        """Ranges that are not delivered any more, in the order of (partition, number)."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        partition, _, number = after.partition(":")
        asked = CohortParked(
            topic=_topic_of(mutations, found),
            cohort=found.name,
            action="list",
            after=(int(partition), int(number)) if after else UNSET,
        )
        listed = await _answer(mutations, asked)
        assert isinstance(listed, ParkedListed), "a list is answered by a list"
        return bodies.ParkedListShown(
            parked=[
                bodies.ParkedShown(**{key: getattr(one, key) for key in one.__struct_fields__})
                for one in listed.parked
            ],
            more=listed.more,
            unknown=listed.unknown,
        )

    return reads


def _acts(mutations: Mutations) -> APIRouter:
    acts = change_router("cohorts", mutations.access, Role.OPERATOR, About.TOPICS)

    @acts.post(f"{PARKED}/retry", operation_id="retry_parked", response_model=bodies.ParkedOutcomeShown)
    async def retry(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        cohort: Label,
        given: Annotated[bodies.ParkedGiven, Body()],
    ) -> Response:
        """Deliver parked ranges again. Ranges whose export is committed are not delivered."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        return await _act(mutations, request, found, "retry", given)

    @acts.post(f"{PARKED}/discard", operation_id="discard_parked", response_model=bodies.ParkedOutcomeShown)
    async def discard(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        cohort: Label,
        given: Annotated[bodies.ParkedGiven, Body()],
    ) -> Response:
        """Give parked ranges up."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        return await _act(mutations, request, found, "discard", given)

    return acts


async def _act(
    mutations: Mutations, request: Request, cohort: Cohort, action: str, given: bodies.ParkedGiven
) -> Response:
    if (given.items is None) != given.all:
        raise Problem(422, "invalid-request", "send either `items` or `all`")
    items = UNSET if given.items is None else [(one[0], one[1]) for one in given.items]
    asked = CohortParked(
        topic=_topic_of(mutations, cohort), cohort=cohort.name, action=action, items=items, force=given.force
    )
    commands = mutations.node.handlers.commands
    what = "all" if given.items is None else f"{len(given.items)} ranges"
    context = RequestContext(
        None,
        None,
        principal(request),
        f"cohort parked {action} {cohort.name}: {what}",
        HttpDoor(request.method, request.url.path, peer_of(request)),
    )
    try:
        settled = await _answer(mutations, asked)
    except Problem as problem:
        await commands.audit_failure(context, problem)
        raise
    assert isinstance(settled, ParkedSettled), "an act is answered by what became of the ranges"
    await commands.audit_done(context, mutations.node.proposer.applied.index)
    body: dict[str, Any] = built(settled)
    return JSONResponse(body, 200, {"Cache-Control": "no-store"})


def _topic_of(mutations: Mutations, cohort: Cohort) -> str:
    return mutations.node.proposer.state.topics[cohort.topic].name


async def _answer(mutations: Mutations, asked: CohortParked) -> ParkedListed | ParkedSettled:
    try:
        return await mutations.node.handlers.cohorts.parked.carry_out(asked)
    except RequestRefused as refusal:
        raise of_refusal(refusal) from refusal

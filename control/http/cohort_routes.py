"""Serve cohorts: reads for viewers, changes for operators. A topic's cohorts are its subscriptions.

PUT declares a cohort and may be repeated: equal settings are no entry. Other settings need `If-Match` with
the ETag of the last read, which keeps two writers apart. POST is for acts: a seek happens once a request.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import StringConstraints

from ringfence.control.http import cohort_bodies as bodies
from ringfence.control.http.authorize import About, principal
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_parts import PROBLEMS, change_router, combine_routers, content_of
from ringfence.control.http.problems import Problem
from ringfence.control.http.read_routes import NamePart, linearizable_reads, topic_at
from ringfence.control.model.cohort_commands import Removal, RemovalReason, RemoveMembers
from ringfence.control.model.cohorts import Cohort, CohortMode, StartKind
from ringfence.control.model.ids import drawn_at
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.cohort_plans import SeekTarget
from ringfence.control.runtime.handlers.cohort_values import find_cohort, name_fault
from ringfence.control.runtime.handlers.cohort_views import entry_of
from ringfence.control.runtime.handlers.commands import Outcome, Plan
from ringfence.control.state_machines.metadata.cohort_lineage import members_of
from ringfence.native import cohort_messages

TOPIC: Final = "/admin/topics/{tenant}/{namespace}/{name}"
SUBSCRIPTIONS: Final = f"{TOPIC}/subscriptions"
COHORT: Final = f"{SUBSCRIPTIONS}/{{cohort}}"
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$"), "a name of a cohort or a member"]


def router(mutations: Mutations) -> APIRouter:
    """All operations of this module."""
    return combine_routers(_reads(mutations), _changes(mutations), _deletions(mutations), _acts(mutations))


def shown(value: msgspec.Struct) -> dict[str, Any]:
    """The value as JSON has it; what is not known is null."""
    return {
        name: None if (field := getattr(value, name)) is msgspec.UNSET else msgspec.to_builtins(field)
        for name in value.__struct_fields__
    }


def summary_shown(summary: cohort_messages.CohortSummary) -> dict[str, Any]:
    entry = shown(summary.entry)
    del entry["created"]
    figures = shown(summary)
    del figures["entry"]
    return entry | figures


def check_access(request: Request, mutations: Mutations, cohort: str) -> None:
    """Problem 403 if the caller's token is restricted to other cohorts."""
    fault = name_fault(mutations.node.proposer.state, principal(request).name, cohort)
    if fault is not None:
        raise Problem(403, "forbidden", fault)


def cohort_at(
    request: Request, mutations: Mutations, tenant: str, namespace: str, name: str, cohort: str
) -> Cohort:
    """The cohort of a path. Problem 404 if there is none, 403 if the caller's token is for others."""
    check_access(request, mutations, cohort)
    node = mutations.node
    topic = topic_at(node, tenant, namespace, name)
    found = find_cohort(node.proposer.state, topic.topic, cohort)
    if found is None:
        detail = f"topic {topic.name!r} has no cohort {cohort!r}; .../subscriptions lists them"
        raise Problem(404, "unknown-cohort", detail)
    return found


def _reads(mutations: Mutations) -> APIRouter:
    node = mutations.node
    reads = APIRouter(
        tags=["cohorts"],
        dependencies=linearizable_reads(node, mutations.access, About.TOPICS),
        responses=PROBLEMS,
    )

    @reads.get(SUBSCRIPTIONS, operation_id="cohorts")
    async def cohorts(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        after: Annotated[str, Query(max_length=64)] = "",
    ) -> bodies.CohortsShown:
        """The cohorts of a topic with lag, members and what is parked, in the order of their names."""
        topic = topic_at(node, tenant, namespace, name)
        found, more = await node.handlers.cohorts.views.summaries(
            [topic], (topic.name, after), principal(request).name
        )
        return bodies.CohortsShown(
            cohorts=[bodies.CohortSummaryShown(**summary_shown(one)) for one in found], more=more
        )

    @reads.get(COHORT, operation_id="cohort")
    async def cohort(
        request: Request,
        response: Response,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        cohort: Label,
        after: Annotated[int, Query(ge=0)] = 0,
    ) -> bodies.CohortShown:
        """One cohort: settings with their ETag, members, and where it is in each partition."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        described = await node.handlers.cohorts.views.described(found, after=after)
        response.headers["ETag"] = f'"{found.changed}"'
        return bodies.CohortShown(
            **summary_shown(described.summary),
            member_list=[bodies.CohortMemberShown(**shown(one)) for one in described.members],
            partitions=[bodies.CohortPartitionShown(**shown(one)) for one in described.partitions],
            more=described.more,
        )

    @reads.get(f"{COHORT}/members", operation_id="cohort_members")
    async def members(
        request: Request, tenant: NamePart, namespace: NamePart, name: NamePart, cohort: Label
    ) -> bodies.CohortMembersShown:
        """The registered members, and whether they are connected."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        described = await node.handlers.cohorts.views.described(found, partitions=False)
        return bodies.CohortMembersShown(
            members=[bodies.CohortMemberShown(**shown(one)) for one in described.members]
        )

    return reads


def _changes(mutations: Mutations) -> APIRouter:
    changes = change_router("cohorts", mutations.access, Role.OPERATOR, About.TOPICS)
    node, plans = mutations.node, mutations.node.handlers.cohorts.plans

    @changes.put(
        COHORT,
        operation_id="declare_cohort",
        response_model=bodies.CohortEntryShown,
        responses={201: {"model": bodies.CohortEntryShown}, 428: PROBLEMS[412]},
    )
    async def declare(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        cohort: Label,
        given: Annotated[bodies.CohortGiven, Body()],
    ) -> Response:
        """Create a cohort, or declare all of its settings. 409 if it has another mode."""
        full = topic_at(node, tenant, namespace, name).name
        check_access(request, mutations, cohort)
        mode, start = CohortMode(given.mode.upper()), StartKind(given.start.upper())
        condition = mutations.condition(request, _resource(mutations, full, cohort))
        created = plans.creation(full, cohort, mode, start, given.settings)

        async def build() -> Plan:
            plans.check_level()
            known = plans.find(node.proposer.state, full, cohort)
            if known is None:
                if condition is not None:
                    raise Problem(412, "gone", f"If-Match: cohort {cohort!r} does not exist")
                return await created()
            if known.mode is mode and known.settings != given.settings and condition is None:
                detail = (
                    f"cohort {cohort!r} has other settings, of version {known.changed}; send If-Match with "
                    "the ETag of the ones that you change"
                )
                raise Problem(428, "precondition-required", detail)
            version = known.changed if condition is None else _version(condition.tag)
            return await plans.change(full, cohort, mode, given.settings, version)()

        def answer(outcome: Outcome) -> tuple[int, dict[str, Any]]:
            state = node.proposer.state
            found = cohort_at(request, mutations, tenant, namespace, name, cohort)
            entry = shown(entry_of(state, state.topics[found.topic], found))
            del entry["created"]
            return 201 if outcome.index and outcome.index == drawn_at(found.cohort) else 200, entry

        return await mutations.change(
            request,
            f"cohort declare {cohort}",
            build,
            content=content_of(given),
            shown=answer,
            is_conditional=False,
        )

    return changes


def _deletions(mutations: Mutations) -> APIRouter:
    deletions = change_router("cohorts", mutations.access, Role.OPERATOR, About.TOPICS)
    node, plans = mutations.node, mutations.node.handlers.cohorts.plans

    @deletions.delete(COHORT, operation_id="delete_cohort", status_code=204)
    async def delete(
        request: Request, tenant: NamePart, namespace: NamePart, name: NamePart, cohort: Label
    ) -> Response:
        """Delete a cohort. Its members end; the name is free for another one."""
        full = topic_at(node, tenant, namespace, name).name
        check_access(request, mutations, cohort)
        await mutations.change(
            request,
            f"cohort delete {cohort}",
            plans.deletion(full, cohort),
            resource=_resource(mutations, full, cohort),
        )
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    @deletions.delete(f"{COHORT}/members/{{member}}", operation_id="evict_member", status_code=204)
    async def evict(
        request: Request, tenant: NamePart, namespace: NamePart, name: NamePart, cohort: Label, member: Label
    ) -> Response:
        """Remove a member. Its partitions go to others; it may join again."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)

        async def build() -> Plan:
            known = members_of(node.proposer.state, found.cohort).get(member)
            if known is None:
                raise Problem(404, "unknown-member", f"cohort {cohort!r} has no member {member!r}")
            item = Removal(found.cohort, member, known.session, RemovalReason.EVICTED)
            return Plan((RemoveMembers(members=(item,)),))

        await mutations.change(request, f"cohort evict {cohort}/{member}", build)
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    return deletions


def _acts(mutations: Mutations) -> APIRouter:
    acts = change_router("cohorts", mutations.access, Role.OPERATOR, About.TOPICS)
    seeks = _Seeks(mutations)

    @acts.post(
        f"{COHORT}/seek", operation_id="seek_cohort", status_code=202, response_model=bodies.SoughtShown
    )
    async def seek(
        request: Request,
        tenant: NamePart,
        namespace: NamePart,
        name: NamePart,
        cohort: Label,
        given: Annotated[bodies.SeekGiven, Body()],
    ) -> Response:
        """Begin again, cohort-wide. 409 while rows are parked, unless they may be forgotten."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        return await seeks.seek(request, found, given)

    @acts.post(
        f"{COHORT}/skip-all", operation_id="skip_all", status_code=202, response_model=bodies.SoughtShown
    )
    async def skip_all(
        request: Request, tenant: NamePart, namespace: NamePart, name: NamePart, cohort: Label
    ) -> Response:
        """Begin again behind all rows that are there."""
        found = cohort_at(request, mutations, tenant, namespace, name, cohort)
        return await seeks.seek(request, found, bodies.SeekGiven(to="latest"))

    return acts


class _Seeks:
    """Seeks over HTTP of one node."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations, self._handlers = mutations, mutations.node.handlers.cohorts

    async def seek(self, request: Request, cohort: Cohort, given: bodies.SeekGiven) -> Response:
        node = self._mutations.node
        topic = node.proposer.state.topics[cohort.topic]
        target = self._handlers.requests.target_of(_seek_of(topic.name, cohort.name, given))

        async def build() -> Plan:
            if not given.forget_parked:
                await self._handlers.requests.check_parked(cohort)
            return await self._handlers.plans.seek(topic.name, cohort.name, target, given.incarnation)()

        def answer(outcome: Outcome) -> tuple[int, dict[str, Any]]:
            now = node.proposer.state.cohorts.get(cohort.cohort)
            sought = getattr(outcome.result, "incarnation", 0)
            waiting = [] if now is None or now.incarnation != sought else [*now.resetting]
            return 202, {"index": outcome.index, "incarnation": sought, "waiting": waiting}

        return await self._mutations.change(
            request,
            f"cohort seek {cohort.name} {_target_text(target)}",
            build,
            content=content_of(given),
            shown=answer,
            is_conditional=False,
        )


def _seek_of(topic: str, cohort: str, given: bodies.SeekGiven) -> cohort_messages.CohortSeek:
    """The request of a data address. Problem 422 unless it names exactly one target."""
    if (given.to is None) == (given.positions is None):
        raise Problem(422, "invalid-request", "send either `to` or `positions`")
    if given.positions is not None:
        positions = [(one.partition, one.offset, one.epoch) for one in given.positions]
        rest: str | msgspec.UnsetType = msgspec.UNSET if given.rest is None else given.rest
        return cohort_messages.CohortSeek(
            topic=topic, cohort=cohort, to="positions", positions=positions, rest=rest
        )
    assert given.to is not None, "one of them is given"
    return cohort_messages.CohortSeek(topic=topic, cohort=cohort, to=given.to)


def _target_text(target: SeekTarget) -> str:
    count = f" of {len(target.positions)} partitions" if target.positions else ""
    return f"{target.to}{count}"


def _resource(mutations: Mutations, full: str, cohort: str) -> str:
    found = mutations.node.handlers.cohorts.plans.find(mutations.node.proposer.state, full, cohort)
    return f"cohort/{0 if found is None else found.cohort}"


def _version(tag: str) -> int:
    """The version of a tag; one that no cohort has if it is none."""
    return int(tag) if tag.isascii() and tag.isdigit() else 0

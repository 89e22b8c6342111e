"""Serve COHORT_CREATE to COHORT_EVICT at a data address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import UNSET

from ringfence.control.model.cohort_commands import Removal, RemovalReason
from ringfence.control.model.cohorts import Cohort, StartKind
from ringfence.control.model.requests import RequestKey
from ringfence.control.model.results import CohortCreated
from ringfence.control.runtime.handlers.cohort_departures import MemberDepartures
from ringfence.control.runtime.handlers.cohort_plans import CohortPlans, SeekTarget, positions_of
from ringfence.control.runtime.handlers.cohort_values import mode_of, settings_of, start_of
from ringfence.control.runtime.handlers.cohort_views import CohortViews, entry_of
from ringfence.control.runtime.handlers.commands import Commands, Principal, RequestContext, at_data_address
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S, CALLER_PREFIX, CALLER_TOKEN
from ringfence.control.state_machines.metadata.cohort_lineage import members_of
from ringfence.native import cohort_messages, messages
from ringfence.native.wire import Code

# Characters of an idempotency key.
KEY_CHARACTERS_MAX: Final = 200
# Pause between two looks at whether a seek is over, in seconds.
LOOK_S: Final = 0.05
# A seek without a deadline waits so long, in seconds.
SEEK_WAIT_S: Final = 30.0

# RequestRefused if the cohort has parked ranges, unless they may be forgotten.
CheckParked = Callable[[Cohort], Awaitable[None]]


class CohortRequests:
    """The handlers of one node; each returns the answer's body or raises RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        commands: Commands,
        plans: CohortPlans,
        views: CohortViews,
        departures: MemberDepartures,
        check_parked: CheckParked,
    ) -> None:
        self._proposer, self._commands, self._plans, self._views = proposer, commands, plans, views
        self._departures, self.check_parked = departures, check_parked

    async def create(self, request: cohort_messages.CohortCreate) -> cohort_messages.CohortEntry:
        start, mode = start_of(request.start), mode_of(request.mode)
        settings = settings_of(request.settings)
        build = self._plans.creation(request.topic, request.cohort, mode, start, settings)
        outcome = await self._commands.submit(build, self._context("create", request))
        created = isinstance(outcome.result, CohortCreated) and not outcome.result.already
        return await self._entry(request.topic, request.cohort, created=created)

    async def change(self, request: cohort_messages.CohortChange) -> cohort_messages.CohortEntry:
        build = self._plans.change(
            request.topic,
            request.cohort,
            mode_of(request.mode),
            settings_of(request.settings),
            request.version,
        )
        await self._commands.submit(build, self._context("change", request))
        return await self._entry(request.topic, request.cohort)

    async def delete(self, request: cohort_messages.CohortDelete) -> cohort_messages.CohortDeleted:
        build = self._plans.deletion(
            request.topic, request.cohort, request.version, missing_ok=request.missing_ok
        )
        outcome = await self._commands.submit(build, self._context("delete", request))
        return cohort_messages.CohortDeleted(deleted=bool(outcome.index))

    async def list_cohorts(self, request: cohort_messages.CohortList) -> cohort_messages.CohortListed:
        prefix = CALLER_PREFIX.get()
        if request.topic is UNSET:
            topics = [one for one in self._proposer.state.topics.values() if one.name.startswith(prefix)]
        else:
            topics = [await topic_named(self._proposer, request.topic)]
        after = ("", "") if request.after is UNSET else request.after
        cohorts, more = await self._views.summaries(topics, after, CALLER_TOKEN.get())
        return cohort_messages.CohortListed(cohorts=cohorts, more=more)

    async def describe(self, request: cohort_messages.CohortDescribe) -> cohort_messages.CohortDescribed:
        cohort = await self._plans.cohort(request.topic, request.cohort)
        return await self._views.described(cohort, partitions=request.partitions, after=request.after)

    async def evict(self, request: cohort_messages.CohortEvict) -> cohort_messages.Left:
        cohort = await self._plans.cohort(request.topic, request.cohort)
        member = members_of(self._proposer.state, cohort.cohort).get(request.member)
        if member is None:
            return cohort_messages.Left(removed=False)
        removal = Removal(cohort.cohort, request.member, member.session, RemovalReason.EVICTED)
        removed = await self._departures.remove(removal)
        await self._commands.audit_done(
            self._context(f"evict {request.member}", request), self._proposer.applied.index
        )
        return cohort_messages.Left(removed=removed)

    async def seek(self, request: cohort_messages.CohortSeek) -> cohort_messages.CohortSought:
        """Begin again; with `wait` the answer comes when all partitions have begun, or at the deadline."""
        cohort = await self._plans.cohort(request.topic, request.cohort)
        if not request.forget_parked:
            await self.check_parked(cohort)
        target = self.target_of(request)
        build = self._plans.seek(request.topic, request.cohort, target, request.incarnation)
        outcome = await self._commands.submit(build, self._context(f"seek {request.to}", request))
        sought = getattr(outcome.result, "incarnation", cohort.incarnation)
        if request.wait:
            await self._until_begun(cohort, sought)
        now = self._proposer.state.cohorts.get(cohort.cohort)
        waiting: list[int] = [] if now is None or now.incarnation != sought else [*now.resetting]
        return cohort_messages.CohortSought(
            incarnation=sought, generation=0 if now is None else now.generation, waiting=waiting
        )

    def target_of(self, request: cohort_messages.CohortSeek) -> SeekTarget:
        """The target of a request. RequestRefused."""
        rest = None if request.rest is UNSET else start_of(request.rest, "rest")
        match request.to:
            case "positions":
                return SeekTarget(StartKind.POSITIONS, positions_of(request.positions), rest)
            case "earliest" | "latest":
                if request.positions or rest is not None:
                    message = f"a seek to {request.to} names no positions"
                    raise RequestRefused(Code.INVALID_ARGUMENT, message)
                return SeekTarget(start_of(request.to))
            case _:
                message = f"to={request.to[:40]!r}: it must be earliest, latest or positions"
                raise RequestRefused(Code.INVALID_ARGUMENT, message)

    async def _until_begun(self, cohort: Cohort, sought: int) -> None:
        due_s = ANSWER_DUE_S.get()
        end_s = time.monotonic() + SEEK_WAIT_S
        loop = asyncio.get_running_loop()
        while time.monotonic() < end_s and (due_s is None or loop.time() + LOOK_S < due_s):
            now = self._proposer.state.cohorts.get(cohort.cohort)
            if now is None or now.incarnation != sought or not now.resetting:
                return
            await asyncio.sleep(LOOK_S)

    async def _entry(self, topic: str, name: str, *, created: bool = False) -> cohort_messages.CohortEntry:
        cohort = await self._plans.cohort(topic, name)
        state = self._proposer.state
        return entry_of(state, state.topics[cohort.topic], cohort, created=created)

    def _context(self, action: str, request: _Named) -> RequestContext:
        who = CALLER_TOKEN.get()
        token = self._proposer.state.tokens.get(who)
        caller = Principal(who, None if token is None else token.role, CALLER_PREFIX.get())
        context = at_data_address(caller, f"cohort {action} {request.cohort[:80]}", request.topic)
        text = getattr(request, "key", "")
        if not text:
            return context
        if len(text) > KEY_CHARACTERS_MAX or not text.isprintable():
            message = f"key={text[:40]!r}: at most {KEY_CHARACTERS_MAX} printable characters"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        content = messages.encode(msgspec.structs.replace(request, key=""))
        return replace(context, key=RequestKey(f"{who}\n{text}", blake2b(content, digest_size=16).digest()))


# Requests that name a cohort of a topic.
_Named = (
    cohort_messages.CohortCreate
    | cohort_messages.CohortChange
    | cohort_messages.CohortDelete
    | cohort_messages.CohortEvict
    | cohort_messages.CohortSeek
)

"""Build the handlers of requests about cohorts. Nothing is started here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ringfence.control.model.cohorts import Cohort, CohortId, CohortMode, MemberSession
from ringfence.control.runtime.cohorts.parts import CohortParts
from ringfence.control.runtime.handlers.cohort_departures import MemberDepartures
from ringfence.control.runtime.handlers.cohort_members import MemberRequests
from ringfence.control.runtime.handlers.cohort_parked import ParkedRequests
from ringfence.control.runtime.handlers.cohort_plans import CohortPlans
from ringfence.control.runtime.handlers.cohort_requests import CohortRequests
from ringfence.control.runtime.handlers.cohort_views import CohortViews
from ringfence.control.runtime.handlers.commands import Commands
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import cohort_messages as calls
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.dispatch import CALLER_TOKEN
from ringfence.control.state_machines.metadata.member_proofs import proof_of
from ringfence.native.wire import Code


@dataclass(frozen=True, slots=True)
class CohortHandlers:
    """The handlers of one node."""

    members: MemberRequests
    departures: MemberDepartures
    plans: CohortPlans
    views: CohortViews
    requests: CohortRequests
    parked: ParkedRequests

    def start(self) -> None:
        self.members.start()
        self.departures.start()

    async def close(self) -> None:
        await self.members.close()
        await self.departures.close()


def build(proposer: RaftProposer, commands: Commands, parts: CohortParts) -> CohortHandlers:
    """The handlers of a node, over its tasks."""

    def prove(cohort: CohortId, session: MemberSession) -> bytes | None:
        return proof_of(proposer.state, CALLER_TOKEN.get(), cohort, session)

    def joined(cohort: CohortId, session: MemberSession, connection: int) -> None:
        parts.pushes.joined(cohort, session, connection)

    reader = parts.figures
    views = CohortViews(proposer, reader, parts.connected)
    plans, departures = CohortPlans(proposer), MemberDepartures(proposer)

    async def check_parked(cohort: Cohort) -> None:
        topic = proposer.state.topics[cohort.topic]
        figures = await reader.gather(topic, [cohort.cohort])
        parked = sum(gate.parked for gate in figures.values())
        if parked:
            message = (
                f"cohort {cohort.name!r} has {parked} parked ranges, which a seek forgets; export, retry or "
                "discard them, or seek with `forget_parked`"
            )
            raise RequestRefused(Code.ALREADY_EXISTS, message, parked=parked)
        gates = {(cohort.cohort, number) for number in topic.layout.by_id()}
        unknown = sorted(number for _, number in gates - figures.keys())
        if cohort.mode is CohortMode.QUEUE and unknown:
            message = (
                f"the owners of partitions {unknown[:8]} did not answer, so it is not known whether cohort "
                f"{cohort.name!r} has parked ranges there; ask again, or seek with `forget_parked`"
            )
            raise RequestRefused(Code.HELD, message, retry_after_ms=500)

    return CohortHandlers(
        MemberRequests(proposer, commands, parts.here, parts.presence, joined, prove),
        departures,
        plans,
        views,
        CohortRequests(proposer, commands, plans, views, departures, check_parked),
        ParkedRequests(proposer, commands, plans, parts.peer_client, parts.parked),
    )


Answer = Callable[[Any], Awaitable[messages.Reply]]


def questions(parts: CohortParts) -> dict[type[messages.Call], Answer]:
    """What other nodes ask."""

    async def sessions(call: calls.TellSessions) -> messages.Reply:
        return parts.leader.take_sessions(call)

    async def progress(call: calls.TellProgress) -> messages.Reply:
        parts.words.take(call)
        return messages.Done()

    async def presence(call: calls.PresenceOf) -> messages.Reply:
        known = parts.leader.presence(MemberSession(call.session))
        return calls.PresenceTold(presence=known.name.lower())

    async def members(call: calls.MembersOf) -> messages.Reply:
        return parts.leader.connected(CohortId(call.cohort))

    async def figures(call: calls.GateFiguresOf) -> messages.Reply:
        return parts.figures.here(call)

    return {
        calls.TellSessions: sessions,
        calls.TellProgress: progress,
        calls.PresenceOf: presence,
        calls.MembersOf: members,
        calls.GateFiguresOf: figures,
        calls.ListParked: parts.parked.list_here,
        calls.SettleParked: parts.parked.settle_here,
    }

"""Serve JOIN. What a request means is decided by the log; this module waits and answers.

Registrations of members that join at about the same time are one entry.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from msgspec import UNSET

from ringfence.control.model.cohort_commands import CreateCohort, Registration
from ringfence.control.model.cohorts import Cohort, CohortId, MemberSession, StartKind
from ringfence.control.model.ids import Index, NodeId, PartitionId
from ringfence.control.model.nodes import Life
from ringfence.control.model.results import MembersRegistered, Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.cohorts.leader import now_ms
from ringfence.control.runtime.cohorts.pushes import slices_of
from ringfence.control.runtime.handlers.cohort_values import (
    check_name,
    mode_of,
    settings_of,
    start_of,
    wire_settings,
)
from ringfence.control.runtime.handlers.commands import (
    Commands,
    Principal,
    RequestContext,
    at_data_address,
    plan_of,
)
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import (
    ANSWER_DUE_S,
    CALLER_CONNECTION,
    CALLER_PREFIX,
    CALLER_TOKEN,
)
from ringfence.control.state_machines.cohorts.liveness import Presence
from ringfence.control.state_machines.cohorts.members import (
    GATHER_MS,
    Fenced,
    Join,
    JoinBatches,
    JoinDecision,
    JoinedPage,
    JoinOutcome,
    Registered,
    Taken,
    evaluate_join,
    joined,
    unbegun,
)
from ringfence.control.state_machines.metadata.cohort_checks import level_fault
from ringfence.control.state_machines.metadata.cohort_lineage import heir
from ringfence.native import cohort_messages
from ringfence.native.wire import GATE_LEASE_MS, Code

_LOG = structlog.get_logger("ringfence.cohorts")
# Tries of one JOIN: each ends because the log changed between a look and an entry.
TRIES_MAX: Final = 5
GATHER_S: Final = GATHER_MS / 1_000
# A JOIN without a deadline waits so long for the beginnings of a new cohort, in seconds.
BEGIN_WAIT_S: Final = 5.0

AskPresence = Callable[[MemberSession], Awaitable[Presence]]
OnJoined = Callable[[CohortId, MemberSession, int], None]
Prove = Callable[[CohortId, MemberSession], bytes | None]
_PRESENCE: Final = {Presence.CONNECTED: "connected", Presence.ABSENT: "absent", Presence.UNKNOWN: "unknown"}


class MemberRequests:
    """The handlers of one node, and the task that proposes registrations."""

    def __init__(
        self,
        proposer: RaftProposer,
        commands: Commands,
        here: NodeId,
        ask_presence: AskPresence,
        on_joined: OnJoined = lambda *_: None,
        prove: Prove = lambda *_: None,
    ) -> None:
        """`ask_presence` asks the leader. `on_joined` gets each session that is answered, with the caller's
        connection. `prove` makes the proof of a session for the caller's token.
        """
        self._proposer, self._commands, self._here = proposer, commands, here
        self._ask_presence, self._on_joined, self._prove = ask_presence, on_joined, prove
        self._batches = JoinBatches()
        self._tickets: dict[int, asyncio.Future[JoinDecision]] = {}
        self._numbers = itertools.count(1)
        self._wake = asyncio.Event()
        # Replaced at each applied entry; those who wait for a state take the one of their time.
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._register_forever(), name="registrations")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def applied(self) -> None:
        """An entry was applied."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # ---- JOIN -----------------------------------------------------------------------------------------

    async def join(self, request: cohort_messages.Join) -> cohort_messages.Joined:
        """Register, or answer from the log. RequestRefused with what the caller can do."""
        check_name(self._proposer, request.cohort)
        topic = await topic_named(self._proposer, request.topic)
        fault = level_fault(self._proposer.state)
        if fault is not None:
            raise RequestRefused(fault.code, fault.message)
        join = Join(
            topic=topic.topic,
            cohort=request.cohort,
            member=request.member,
            mode=mode_of(request.mode),
            instance=request.instance,
            after=MemberSession(request.after),
            start=start_of(request.start),
            settings=None if request.settings is UNSET else settings_of(request.settings),
        )
        for _ in range(TRIES_MAX):
            registered = await self._register(join)
            if registered is not None and (answer := await self._answer(registered, join, request)):
                return answer
        message = f"member {join.member!r}: the cohort changed {TRIES_MAX} times meanwhile; join again"
        raise RequestRefused(Code.OVERLOADED, message, retry_after_ms=100)

    async def _register(self, join: Join) -> Registered | None:
        """The session of the instance; None: look again."""
        decision = evaluate_join(self._proposer.state, join, self._here)
        if isinstance(decision, Refused | Taken | Fenced):
            # This node may lag: the log decides.
            await self._proposer.read_barrier()
            decision = evaluate_join(self._proposer.state, join, self._here)
        if isinstance(decision, CreateCohort):
            await self._create(decision, join)
            return None
        if isinstance(decision, Registration):
            decision = await self._submit(decision)
            if join.after and isinstance(decision, Registered):
                await self._audit_takeover(join)
        match decision:
            case Registered():
                return decision
            case Refused():
                raise RequestRefused(decision.code, decision.message)
            case Fenced():
                raise RequestRefused(Code.FENCED_MEMBER, decision.message)
            case Taken():
                raise await self._taken(decision)
            case _:
                return None

    async def _create(self, command: CreateCohort, join: Join) -> None:
        try:
            await self._commands.submit(lambda: plan_of(command), self._context("create cohort", join))
        except RequestRefused as refusal:
            if refusal.code is not Code.ALREADY_EXISTS:
                raise
            # Another member created it at the same time: its settings are the cohort's.

    async def _audit_takeover(self, join: Join) -> None:
        context = self._context("take over member", join)
        await self._commands.audit_done(context, self._proposer.applied.index)

    def _context(self, action: str, join: Join) -> RequestContext:
        who = CALLER_TOKEN.get()
        token, topic = self._proposer.state.tokens.get(who), self._proposer.state.topics.get(join.topic)
        caller = Principal(who, None if token is None else token.role, CALLER_PREFIX.get())
        name = "" if topic is None else topic.name
        return at_data_address(caller, f"{action} {join.cohort}/{join.member}", name)

    async def _taken(self, taken: Taken) -> RequestRefused:
        presence = await self._ask_presence(taken.session) if taken.session else Presence.ABSENT
        # The details are those of `NameTaken`.
        return RequestRefused(
            Code.CONFLICT, taken.message, session=int(taken.session), presence=_PRESENCE[presence]
        )

    async def _submit(self, registration: Registration) -> JoinDecision:
        ticket = next(self._numbers)
        refusal = self._batches.add(registration, ticket, now_ms())
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message, retry_after_ms=1_000)
        outcome: asyncio.Future[JoinDecision] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = outcome
        self._wake.set()
        try:
            return await outcome
        finally:
            self._tickets.pop(ticket, None)

    async def _register_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._tickets:
                command = self._batches.due(now_ms())
                if command is None:
                    if not self._batches.has_waiting:
                        break
                    await asyncio.sleep(GATHER_S)
                    continue
                try:
                    applied = await self._proposer.propose(command)
                except RequestRefused as refusal:
                    self._settle(self._batches.fail(Refused(code=refusal.code, message=refusal.message)))
                    continue
                assert isinstance(applied.result, MembersRegistered), applied.result
                self._settle(self._batches.end(Index(applied.index), applied.result))

    def _settle(self, outcomes: tuple[JoinOutcome, ...]) -> None:
        for ticket, decision in outcomes:
            outcome = self._tickets.get(ticket)
            if outcome is not None and not outcome.done():
                outcome.set_result(decision)

    # ---- answers --------------------------------------------------------------------------------------

    async def _answer(
        self, registered: Registered, join: Join, request: cohort_messages.Join
    ) -> cohort_messages.Joined | None:
        """The answer; None if the member is gone again."""
        await self._until_begun(registered.cohort)
        state = self._proposer.state
        cohort = state.cohorts.get(registered.cohort)
        page = None
        if cohort is not None:
            page = joined(state, cohort, join.member, PartitionId(request.after_partition) or None)
        if cohort is None or page is None or page.session != registered.session:
            return None
        self._on_joined(cohort.cohort, page.session, CALLER_CONNECTION.get())
        return self._joined(state, cohort, page)

    def _joined(self, state: MetadataState, cohort: Cohort, page: JoinedPage) -> cohort_messages.Joined:
        topic = state.topics[cohort.topic]
        proof = self._prove(cohort.cohort, page.session)
        return cohort_messages.Joined(
            version=topic.layout.version,
            generation=page.generation,
            slices=slices_of(topic, page),
            cohort=cohort.cohort,
            session=page.session,
            incarnation=page.incarnation,
            lease_ms=GATE_LEASE_MS,
            home=self._here,
            settings=wire_settings(cohort.settings),
            proof=UNSET if proof is None else proof,
            more=page.more,
            not_begun=[*cohort.resetting] if cohort.start.kind is StartKind.LATEST else [],
        )

    async def _until_begun(self, number: CohortId) -> None:
        """Wait until a cohort at the latest rows has begun wherever an owner can say so.

        Else rows that are published right after the answer could be missed. A partition whose owner is away
        takes no rows, and its next owner begins first.
        """
        due_s = ANSWER_DUE_S.get()
        end_s = asyncio.get_running_loop().time() + BEGIN_WAIT_S if due_s is None else due_s
        try:
            async with asyncio.timeout_at(end_s):
                while True:
                    state, changed = self._proposer.state, self._changed
                    cohort = state.cohorts.get(number)
                    if cohort is None or cohort.start.kind is not StartKind.LATEST:
                        return
                    if not unbegun(cohort, _owned_by_live(state, cohort)):
                        return
                    await changed.wait()
        except TimeoutError:
            return


def _owned_by_live(state: MetadataState, cohort: Cohort) -> frozenset[PartitionId]:
    """Partitions that wait for their beginning and whose gates are at nodes that live."""
    topic = state.topics[cohort.topic]
    parts = topic.layout.by_id()
    return frozenset(
        number
        for number in cohort.resetting
        if number in parts
        and (node := state.nodes.get(topic.assignments[heir(parts, number)].owner.node)) is not None
        and node.life is Life.LIVE
    )

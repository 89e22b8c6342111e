"""Run the coordinator of cohorts on the leader: propose its entries, hear what nodes tell.

All it knows beside the log is soft, and is discarded with the leadership. A round runs after each run of
entries, and every 50 ms while the cluster has a cohort.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog

from ringfence.control.model.cohort_commands import Begun, Drained
from ringfence.control.model.cohorts import COHORT_LEVEL, CohortId, Incarnation, MemberSession
from ringfence.control.model.commands import Command
from ringfence.control.model.entries import Entry
from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.cohort_messages import (
    MembersTold,
    SessionsHeard,
    TellProgress,
    TellSessions,
)
from ringfence.control.state_machines.cohorts.coordinator import CohortCoordinator, LargePlan
from ringfence.control.state_machines.cohorts.liveness import GRACE_MS, Presence, SessionsReport
from ringfence.control.state_machines.cohorts.plans import next_entry
from ringfence.control.state_machines.metadata.cohort_lineage import members_of
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.cohorts")
# Interval of rounds without a wake-up, in seconds: plans wait for 100 ms at least.
TICK_S: Final = 0.05


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class CohortLeader:
    """Runs on every node; idle while the node does not lead, or without a cohort."""

    def __init__(self, proposer: RaftProposer, grace_ms: int = GRACE_MS) -> None:
        self._proposer = proposer
        self.coordinator = CohortCoordinator(grace_ms)
        # Seconds that the newest plan took, for metrics.
        self.plan_s = 0.0
        self._wake = asyncio.Event()
        self._proposing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="cohorts")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        tasks = {*self._proposing, *([self._task] if self._task else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # the replica reports a failure of a task

    def applied(self, state: MetadataState) -> None:
        """An entry was applied that changed the state."""
        if state.cohorts:
            self._wake.set()

    def entry_applied(self, entry: Entry, result: Result) -> None:
        """Take an entry of any proposer: a member may have left at another node."""
        if self.coordinator.liveness.leads:
            command = entry.proposal.command
            self.coordinator.note_entry(command, now_ms(), is_refused=isinstance(result, Refused))

    # ---- what nodes tell ------------------------------------------------------------------------------

    def take_sessions(self, call: TellSessions) -> SessionsHeard:
        """Take a node's list of sessions. RequestRefused if this node does not lead that term."""
        self._check_leads()
        if call.term != self.coordinator.liveness.term:
            message = (
                f"the list is for the leader of term {call.term}, this is {self.coordinator.liveness.term}"
            )
            raise RequestRefused(Code.CONFLICT, message)
        report = SessionsReport(call.digest, call.sessions, call.grace_ms)
        try:
            needs_list = self.coordinator.report(NodeId(call.node), report, now_ms())
        except ValueError as error:
            raise RequestRefused(Code.INVALID_ARGUMENT, str(error)) from error
        return SessionsHeard(needs_list=needs_list)

    def take_progress(self, call: TellProgress) -> None:
        """Take what owners of gates tell; without effect where this node does not lead."""
        if not self.leads():
            return
        self._begin_term()
        drained = [
            Drained(
                CohortId(word.cohort), Incarnation(word.incarnation), PartitionId(word.partition), word.read
            )
            for word in call.drained
        ]
        begun = [
            Begun(
                CohortId(word.cohort),
                Incarnation(word.incarnation),
                PartitionId(word.partition),
                Epoch(word.epoch),
            )
            for word in call.begun
        ]
        self.coordinator.tell_drained(drained, now_ms())
        self.coordinator.tell_begun(begun, now_ms())
        self._wake.set()

    def presence(self, session: MemberSession) -> Presence:
        """Whether the process of a session is there, as far as this node can tell."""
        if not self.leads():
            return Presence.UNKNOWN
        self._begin_term()
        return self.coordinator.liveness.presence(self._proposer.state, session, now_ms())

    def connected(self, cohort: CohortId) -> MembersTold:
        """The cohort's members that are connected."""
        if not self.leads():
            return MembersTold(is_leader=False)
        self._begin_term()
        state = self._proposer.state
        names = self.coordinator.liveness.connected(state, cohort, now_ms())
        members = members_of(state, cohort)
        return MembersTold(is_leader=True, connected=tuple(sorted(members[name].session for name in names)))

    # ---- rounds ---------------------------------------------------------------------------------------

    def leads(self) -> bool:
        """Whether this node leads, and has applied an entry of its own term."""
        replica = self._proposer.replica
        return bool(replica.leads and replica.applied.term == replica.term and self._proposer.state.cluster)

    def _check_leads(self) -> None:
        if not self.leads():
            raise RequestRefused(Code.CONFLICT, "this node does not lead the cluster", retry_after_ms=1_000)
        self._begin_term()

    def _begin_term(self) -> None:
        term = self._proposer.replica.term
        if term > self.coordinator.liveness.term:
            self.coordinator.begin(term, now_ms())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            has_work = bool(self._proposer.state.cohorts)
            tick = loop.call_later(TICK_S, self._wake.set) if has_work else None
            await self._wake.wait()
            if tick is not None:
                tick.cancel()
            self._wake.clear()
            self.round()

    def round(self) -> None:
        """One round: the entries that are due are proposed."""
        state = self._proposer.state
        if state.level < COHORT_LEVEL:
            return
        if not self.leads():
            if self.coordinator.liveness.leads:
                self.coordinator.end()
            return
        self._begin_term()
        made = self.coordinator.step(state, now_ms())
        for command in made.entries:
            self._spawn(self._propose(command))
        for plan in made.large:
            self._spawn(self._plan_elsewhere(state, plan))

    async def _plan_elsewhere(self, state: MetadataState, plan: LargePlan) -> None:
        """Make a large plan in a thread, on the frozen state. The log refuses it if the state moved on."""
        term, begun_s = self.coordinator.liveness.term, time.monotonic()
        entry = await asyncio.to_thread(next_entry, state, plan.cohort, plan.connected)
        self.plan_s = time.monotonic() - begun_s
        if self.coordinator.liveness.leads and self.coordinator.liveness.term == term:
            for command in self.coordinator.note_plan(entry, now_ms()):
                await self._propose(command)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._proposing.add(task)
        task.add_done_callback(self._proposing.discard)

    async def _propose(self, command: Command) -> None:
        term = self.coordinator.liveness.term
        try:
            await self._proposer.propose(command)
        except RequestRefused as refusal:
            _LOG.info("decision refused", command=repr(command)[:500], why=refusal.message)
            if self.coordinator.liveness.leads and self.coordinator.liveness.term == term:
                # Refused before it was an entry, as well: what it was about may be proposed again.
                self.coordinator.note_entry(command, now_ms(), is_refused=True)
            return
        _LOG.info("decided", command=repr(command)[:500])

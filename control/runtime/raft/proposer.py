"""Propose commands through consensus from any node, so that each is applied once.

A proposal has a sequence in its proposer's session. The proposer sends it to the leader, and sends it again
when the leader changes or no answer comes. It answers the caller when this node has applied the entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from ringfence.control.consensus import events
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.consensus.read_queue import ReadState
from ringfence.control.model.commands import Command, InitCluster, OpenSession, RestartNode
from ringfence.control.model.entries import Entry, Proposal, encode_proposal
from ringfence.control.model.ids import Index, SessionId
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import NodeRestarted, Refused, Result, SessionOpened
from ringfence.control.model.scopes import BeginScope
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.errors import NoMajorityError, RequestRefused
from ringfence.control.runtime.raft.level_gate import older_fault
from ringfence.control.runtime.raft.proposer_interface import NO_SESSION, WAITING_MAX, Applied
from ringfence.control.runtime.raft.replica import Replica, ReplicaListener
from ringfence.control.state_machines.metadata.config import SESSION_WINDOW
from ringfence.control.state_machines.metadata.etags import condition_fault
from ringfence.control.state_machines.metadata.state_machine import validate_at
from ringfence.control.store.journal import LogPosition
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.metadata")
# A proposal without an answer is sent again after this time, in seconds: well above a commit's.
RESEND_S: Final = 1.0
# Interval of the check for lost proposals, and of attempts to read, in seconds.
CHECK_S: Final = 0.05
# Timeout of a linearizable read, in seconds: two elections.
READ_TIMEOUT_S: Final = 5.0
# Time that `close` waits for pending proposals, in seconds; a slower majority counts as unavailable.
CLOSE_TIMEOUT_S: Final = 5.0

Applier = Callable[[MetadataState, MetadataState, Index], None]


@dataclass(frozen=True, slots=True)
class _QueuedCommand:
    """A command of a caller. It gets its sequence in the session when it is sent."""

    command: Command
    request: RequestKey | None = None
    expects: Condition | None = None


@dataclass(slots=True)
class _PendingProposal:
    """A proposal with a sequence that was not answered yet."""

    proposal: Proposal
    data: bytes
    answer: asyncio.Future[Applied]
    sent_s: float = -1e9  # monotonic time of the last attempt
    sent_to: tuple[int, int] = (0, 0)  # term and leader of the last attempt
    attempts: int = 0


@dataclass(slots=True)
class _PendingRead:
    answer: asyncio.Future[None]
    # The index that must be applied before the answer; None until a majority has confirmed the leader.
    index: int | None = field(default=None)


class RaftProposer(ReplicaListener):
    """Proposes commands and serves linearizable reads. Call `attach` with the replica before `start`."""

    def __init__(
        self,
        *,
        on_applied: Applier,
        on_own_start: Callable[[], None] = lambda: None,
        on_other_start: Callable[[RestartNode, Index], None] = lambda *_: None,
    ) -> None:
        """Set the callbacks.

        Args:
            on_applied: called for each entry that changed the state.
            on_own_start: called when a start that this process proposed is applied. A start has no session
                yet; without a condition (`after`), a late retry of it is applied, and reported, again.
            on_other_start: called for every other start, also for starts of this node by other processes.
        """
        self._on_applied = on_applied
        # The time of proposals; `set_clock` bounds it by the cluster's time.
        self.now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self._on_own_start, self._on_other_start = on_own_start, on_other_start
        # Called with each applied entry and its result, also with entries that were refused.
        self.on_entry: Callable[[Entry, Result], None] = lambda *_: None
        # Sequences of this process's proposals without a session: they identify its own start.
        self._without_session: deque[int] = deque(maxlen=SESSION_WINDOW)
        self._replica: Replica | None = None
        self._session, self._sequence = NO_SESSION, 0
        # Commands without a sequence, the oldest first; at most WAITING_MAX.
        self._waiting: deque[tuple[_QueuedCommand, asyncio.Future[Applied]]] = deque()
        self._has_work = asyncio.Event()  # set while a command is queued or pending
        # By session and sequence, in the order of sequences; at most SESSION_WINDOW.
        self._pending: dict[tuple[int, int], _PendingProposal] = {}
        # By context, which is unique in the cluster: `_read_prefix` and a number.
        self._reads: dict[bytes, _PendingRead] = {}
        self._read_numbers = itertools.count(1)
        self._read_prefix = secrets.token_bytes(8)
        # Callers of `until_applied`: the index that each waits for.
        self._index_waits: list[tuple[int, asyncio.Future[None]]] = []
        self._resender: asyncio.Task[None] | None = None
        self._flushing = False
        self._session_opening: asyncio.Task[None] | None = None

    def attach(self, replica: Replica) -> None:
        self._replica = replica

    def set_clock(self, now_ms: Callable[[], int]) -> None:
        """Take the times of proposals, in ms since 1970, from `now_ms` instead of the wall clock."""
        self.now_ms = now_ms

    @property
    def replica(self) -> Replica:
        assert self._replica is not None, "the proposer is not attached"
        return self._replica

    @property
    def state(self) -> MetadataState:
        return self.replica.state

    @property
    def applied(self) -> LogPosition:
        return self.replica.applied

    def start(self) -> None:
        self.replica.start()
        self._resender = asyncio.get_running_loop().create_task(self._resend_lost(), name="proposals")
        self.replica.supervise(self._resender)

    def use_session(self, session: SessionId) -> None:
        """Use `session`, which an applied entry has opened, for all further proposals."""
        self._session, self._sequence = session, 0

    async def propose(
        self, command: Command, *, request: RequestKey | None = None, expects: Condition | None = None
    ) -> Applied:
        """Wait until the command is committed and applied here.

        Args:
            command: the change.
            request: idempotency key; a key already used for the same content returns the first result.
            expects: the expected version of a resource; with another version the command is TOO_OLD.

        Raises:
            RequestRefused: the state does not allow the command, and nothing was changed; or UNKNOWN_OUTCOME.
        """
        queued = _QueuedCommand(command, request, expects)
        await self._check(queued)
        applied = await self._submit(queued)
        if isinstance(applied.result, Refused):
            if applied.result.code == Code.FORGOTTEN and self._session != NO_SESSION:
                await self._renew_session()
                return await self.propose(command, request=request, expects=expects)
            raise RequestRefused(applied.result.code, applied.result.message)
        return applied

    async def read_barrier(self) -> None:
        """Wait until this node has applied everything that was committed before the call.

        Raises:
            RequestRefused: no majority answered in time.
        """
        replica = self.replica
        if replica.is_alone and replica.leads and replica.applied.term == replica.term:
            return None
        end = time.monotonic() + READ_TIMEOUT_S
        while time.monotonic() < end:
            context = self._read_prefix + next(self._read_numbers).to_bytes(8, "big")
            read = self._reads[context] = _PendingRead(asyncio.get_running_loop().create_future())
            try:
                with contextlib.suppress(ConsensusError, TimeoutError):
                    self.replica.step(events.Read(context))
                    async with asyncio.timeout(RESEND_S):
                        return await read.answer
            finally:
                del self._reads[context]
            await asyncio.sleep(CHECK_S)
        raise NoMajorityError(
            Code.TOO_FEW_REPLICAS,
            f"no majority of the voters answered within {READ_TIMEOUT_S:g} s",
            retry_after_ms=1_000,
        )

    async def until_applied(self, index: int) -> None:
        """Wait until this node has applied the entry at `index`."""
        if self.applied.index < index:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._index_waits.append((index, reached))
            await reached

    async def close(self) -> None:
        """Wait for pending proposals, then stop."""
        resender, self._resender = self._resender, None
        if resender is not None:
            unanswered = {pending.answer for pending in self._pending.values()}
            if unanswered and (self.replica.leader or self.replica.is_alone):
                await asyncio.wait(unanswered, timeout=CLOSE_TIMEOUT_S)
            resender.cancel()
            await asyncio.wait({resender})  # the replica reports a failure of the task
        if self._session_opening is not None:
            self._session_opening.cancel()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(_unknown("the node is going down"))
                pending.answer.exception()  # the caller may have been cancelled
        if self._replica is not None:
            await self._replica.close()

    # ---- callbacks of the replica -------------------------------------------------------------------

    def state_changed(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        self._on_applied(before, after, index)
        asyncio.get_running_loop().call_soon(self._serve_reads)

    def entry_applied(self, entry: Entry, result: Result) -> None:
        proposal = entry.proposal
        _LOG.debug(
            "applied",
            index=entry.index,
            command=type(proposal.command).__name__,
            result=type(result).__name__,
        )
        if isinstance(proposal.command, RestartNode) and isinstance(result, NodeRestarted):
            if proposal.sequence in self._without_session:
                self._on_own_start()
            else:
                self._on_other_start(proposal.command, entry.index)
        self.on_entry(entry, result)
        pending = self._pending.pop((proposal.session, proposal.sequence), None)
        if pending is not None and not pending.answer.done():
            if (
                isinstance(result, Refused)
                and pending.attempts > 1
                and not _is_final(proposal.command, result)
            ):
                # A copy may still arrive, and the state machine checks a refused command again.
                pending.answer.set_exception(
                    _unknown(f"sent {pending.attempts} times, then refused: {result.message}")
                )
            else:
                pending.answer.set_result(Applied(entry.index, result))
        self._flush_soon()
        self._serve_reads()

    def read_ready(self, read: ReadState) -> None:
        pending_read = self._reads.get(read.context)
        if pending_read is not None:
            pending_read.index = read.index
            # Not immediately: entries that the same Ready commits are being applied now.
            asyncio.get_running_loop().call_soon(self._serve_reads)

    def _serve_reads(self) -> None:
        for index, reached in self._index_waits:
            if index <= self.applied.index and not reached.done():
                reached.set_result(None)
        self._index_waits = [waiting for waiting in self._index_waits if not waiting[1].done()]
        for read in self._reads.values():
            if read.index is not None and read.index <= self.applied.index and not read.answer.done():
                read.answer.set_result(None)

    # ---- sending ------------------------------------------------------------------------------------

    async def _check(self, queued: _QueuedCommand) -> None:
        """Refuse early a command that the newest state does not allow; the state here may lag."""
        refusal = self._fault(queued)
        if refusal is not None and not isinstance(queued.command, InitCluster):
            with contextlib.suppress(RequestRefused):
                await self.read_barrier()
            refusal = self._fault(queued)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        if self.replica.disk_full:
            raise RequestRefused(Code.DISK_FULL, "the metadata journal finds no space", retry_after_ms=1_000)
        if self._resender is None or self._resender.done():
            raise RequestRefused(Code.STOPPING, "the metadata log is closed", retry_after_ms=1_000)

    def _fault(self, queued: _QueuedCommand) -> Refused | None:
        if queued.request is not None and queued.request.key in self.state.requests:
            return None  # already applied: the log returns the first answer
        refusal = condition_fault(self.state, queued.expects) or validate_at(
            self.state, queued.command, self.now_ms()
        )
        return refusal or older_fault(self.state, queued.command)

    async def _submit(self, queued: _QueuedCommand) -> Applied:
        if len(self._waiting) >= WAITING_MAX:
            raise RequestRefused(
                Code.OVERLOADED,
                f"too many metadata commands are queued (limit {WAITING_MAX}); retry in 100 ms",
                retry_after_ms=100,
            )
        answer: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append((queued, answer))
        self._has_work.set()
        self._flush_soon()
        return await answer

    async def _renew_session(self) -> None:
        """Open one new session for all callers whose session expired."""
        if self._session_opening is None or self._session_opening.done():
            self._session_opening = asyncio.get_running_loop().create_task(self._open_session())
        await asyncio.shield(self._session_opening)

    async def _open_session(self) -> None:
        self._session = NO_SESSION
        opened = (await self._submit(_QueuedCommand(OpenSession()))).result
        assert isinstance(opened, SessionOpened), opened
        self.use_session(opened.session)

    def _flush_soon(self) -> None:
        if not self._flushing and self._waiting:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Give queued commands their sequences, and send them as one batch: one write, one message a node."""
        self._flushing = False
        batch: list[_PendingProposal] = []
        while self._waiting and self._has_room():
            queued, answer = self._waiting.popleft()
            if answer.done():
                continue  # the caller was cancelled, and nothing was sent
            if self._session == NO_SESSION:
                sequence = secrets.randbits(62)  # only this node uses it, to recognize its own proposal
                self._without_session.append(sequence)
            else:
                self._sequence = sequence = self._sequence + 1
            proposal = Proposal(
                self._session, sequence, self.now_ms(), queued.command, queued.request, queued.expects
            )
            pending = _PendingProposal(proposal, encode_proposal(proposal), answer)
            self._pending[proposal.session, proposal.sequence] = pending
            batch.append(pending)
        if batch:
            self._send(batch)

    def _has_room(self) -> bool:
        """Whether the pending sequences fit the session's window, so that a retry is never too old."""
        if len(self._pending) >= SESSION_WINDOW:
            return False
        oldest = next((key[1] for key in self._pending if key[0] == self._session), None)
        return self._session == NO_SESSION or oldest is None or self._sequence - oldest < SESSION_WINDOW - 1

    def _send(self, batch: list[_PendingProposal]) -> None:
        replica, now = self.replica, time.monotonic()
        try:
            replica.step(events.Propose(tuple(pending.data for pending in batch)))
        except ConsensusError:
            return  # there is no leader: `_resend_lost` tries again
        for pending in batch:
            pending.sent_s, pending.sent_to = now, (replica.term, replica.leader)
            pending.attempts += 1

    async def _resend_lost(self) -> None:
        """Send proposals again that were lost with a message or a leader."""
        while True:
            await self._has_work.wait()
            await asyncio.sleep(CHECK_S)
            if not self._waiting and not self._pending:
                self._has_work.clear()
                continue
            replica, now = self.replica, time.monotonic()
            for key in [key for key, pending in self._pending.items() if pending.answer.cancelled()]:
                if self._pending[key].attempts == 0:
                    del self._pending[key]
            if not replica.leader or replica.disk_full:
                continue
            target = (replica.term, replica.leader)
            lost = [
                pending
                for pending in self._pending.values()
                if pending.sent_to != target or now - pending.sent_s > RESEND_S
            ]
            if lost:
                self._send(lost)
            self._flush_soon()


def _is_final(command: Command, refused: Refused) -> bool:
    """Whether no other copy of a refused command can be accepted later.

    Drivers of a scope only ascend, so a BEGIN that came too late to fence one stays too late.
    """
    is_late_begin = isinstance(command, BeginScope) and command.after is not None
    return refused.code == Code.FORGOTTEN or (is_late_begin and refused.code == Code.CONFLICT)


def _unknown(why: str) -> RequestRefused:
    return RequestRefused(
        Code.UNKNOWN_OUTCOME, f"it is unknown whether the command was executed: {why}", retry_after_ms=1_000
    )

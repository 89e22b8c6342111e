"""propose(command) -> index and result, through consensus: from any node, applied once.

A proposal has a place in its proposer's session. It is sent to the leader, again when the leader changes or
nothing comes back, and answered when this node has applied it: whoever applied it first gave the result.
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
from ringfence.control.consensus.reads import ReadState
from ringfence.control.model.commands import Command, InitCluster, OpenSession, RestartNode
from ringfence.control.model.entries import Entry, Proposal, encode_proposal
from ringfence.control.model.ids import Index, SessionId
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import NodeRestarted, Refused, Result, SessionOpened
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.errors import NoMajorityError, RequestRefused
from ringfence.control.runtime.raft.level_gate import older_fault
from ringfence.control.runtime.raft.proposer_interface import NO_SESSION, WAITING_MAX, Applied
from ringfence.control.runtime.raft.replica import Listener, Replica
from ringfence.control.state_machines.metadata.config import SESSION_WINDOW
from ringfence.control.state_machines.metadata.etags import condition_fault
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.store.journal import Position
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.metadata")
RETRY_S: Final = 1.0
"""A proposal without an answer is sent again: well above a commit, below what people notice."""
LOOK_S: Final = 0.05
"""How often waiting proposals are looked at."""
READ_S: Final = 5.0
"""How long a linearizable read waits for a majority: an election, and once more."""
CLOSE_S: Final = 5.0
"""How long a close waits for what is under way; a majority that takes longer is not there."""

Applier = Callable[[MetadataState, MetadataState, Index], None]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A command as it was asked for; it gets its place in the session when it is sent."""

    command: Command
    request: RequestKey | None = None
    expects: Condition | None = None


@dataclass(slots=True)
class _Pending:
    proposal: Proposal
    data: bytes
    answer: asyncio.Future[Applied]
    sent_s: float = -1e9
    sent_to: tuple[int, int] = (0, 0)
    tries: int = 0


@dataclass(slots=True)
class _Read:
    answer: asyncio.Future[None]
    index: int | None = field(default=None)


class RaftProposer(Listener):
    """The metadata of a node as all of the cluster sees it. `attach` joins it to its replica."""

    def __init__(
        self,
        *,
        on_applied: Applier,
        on_own_start: Callable[[], None] = lambda: None,
        on_other_start: Callable[[RestartNode, Index], None] = lambda *_: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`on_applied` hears of each entry that changed the state.

        `on_own_start` hears that a start of a node is applied which this process proposed: of one that does
        not say behind which it comes more than once when a retry comes late, for it belongs to no session
        yet. `on_other_start` hears of all others, of this node included.
        """
        self._on_applied, self._now_ms = on_applied, now_ms
        self._on_own_start, self._on_other_start = on_own_start, on_other_start
        self._without_session: deque[int] = deque(maxlen=SESSION_WINDOW)
        self._replica: Replica | None = None
        self._session, self._sequence = NO_SESSION, 0
        self._waiting: deque[tuple[_Wanted, asyncio.Future[Applied]]] = deque()
        self._some_wanted = asyncio.Event()  # set while anything waits or is pending
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._reads: dict[bytes, _Read] = {}
        self._read_numbers = itertools.count(1)
        self._read_prefix = secrets.token_bytes(8)
        self._reaching: list[tuple[int, asyncio.Future[None]]] = []
        self._looker: asyncio.Task[None] | None = None
        self._flushing = False
        self._opening: asyncio.Task[None] | None = None

    def attach(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def replica(self) -> Replica:
        assert self._replica is not None, "the proposer is not attached"
        return self._replica

    @property
    def state(self) -> MetadataState:
        return self.replica.state

    @property
    def applied(self) -> Position:
        return self.replica.applied

    def start(self) -> None:
        self.replica.start()
        self._looker = asyncio.get_running_loop().create_task(self._look(), name="proposals")
        self.replica.needs(self._looker)

    def use_session(self, session: SessionId) -> None:
        """From now on proposals belong to this session, which an applied entry has opened."""
        self._session, self._sequence = session, 0

    async def propose(
        self, command: Command, *, request: RequestKey | None = None, expects: Condition | None = None
    ) -> Applied:
        """Wait until the command is committed, and applied here.

        Args:
            command: what to do.
            request: under a key that was used for the same content the first result is given again.
            expects: the command is refused (TOO_OLD) if that resource has another version by then.

        Raises:
            RequestRefused: the state does not allow it; nothing was changed. Or it is UNKNOWN_OUTCOME.
        """
        wanted = _Wanted(command, request, expects)
        await self._check(wanted)
        applied = await self._submit(wanted)
        if isinstance(applied.result, Refused):
            if applied.result.code == Code.FORGOTTEN and self._session != NO_SESSION:
                await self._renew_session()
                return await self.propose(command, request=request, expects=expects)
            raise RequestRefused(applied.result.code, applied.result.message)
        return applied

    async def read_barrier(self) -> None:
        """Wait until this node's state holds everything that was committed when this was called.

        Raises:
            RequestRefused: no majority confirmed it in time.
        """
        replica = self.replica
        if replica.is_alone and replica.leads and replica.applied.term == replica.term:
            return None
        end = time.monotonic() + READ_S
        while time.monotonic() < end:
            context = self._read_prefix + next(self._read_numbers).to_bytes(8, "big")
            read = self._reads[context] = _Read(asyncio.get_running_loop().create_future())
            try:
                with contextlib.suppress(ConsensusError, TimeoutError):
                    self.replica.step(events.Read(context))
                    async with asyncio.timeout(RETRY_S):
                        return await read.answer
            finally:
                del self._reads[context]
            await asyncio.sleep(LOOK_S)
        raise NoMajorityError(
            Code.TOO_FEW_REPLICAS,
            f"no majority of the voters answered within {READ_S:g} s",
            retry_after_ms=1_000,
        )

    async def reached(self, index: int) -> None:
        """Wait until this node has applied the entry at `index`."""
        if self.applied.index < index:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reaching.append((index, reached))
            await reached

    async def close(self) -> None:
        """Finish what is under way, then stop."""
        looker, self._looker = self._looker, None
        if looker is not None:
            unanswered = {pending.answer for pending in self._pending.values()}
            if unanswered and (self.replica.leader or self.replica.is_alone):
                await asyncio.wait(unanswered, timeout=CLOSE_S)
            looker.cancel()
            await asyncio.wait({looker})  # if it failed, that was told
        if self._opening is not None:
            self._opening.cancel()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(_unknown("the node is going down"))
                pending.answer.exception()  # who asked may be gone
        if self._replica is not None:
            await self._replica.close()

    # ---- what the replica says ----------------------------------------------------------------------

    def changed(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        self._on_applied(before, after, index)
        asyncio.get_running_loop().call_soon(self._serve_reads)

    def answered(self, entry: Entry, result: Result) -> None:
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
        pending = self._pending.pop((proposal.session, proposal.sequence), None)
        if pending is not None and not pending.answer.done():
            if isinstance(result, Refused) and pending.tries > 1 and result.code != Code.FORGOTTEN:
                # A copy of it may still be on its way, and refused ones are judged anew.
                pending.answer.set_exception(_unknown(f"tried {pending.tries} times, then: {result.message}"))
            else:
                pending.answer.set_result(Applied(entry.index, result))
        self._flush_soon()
        self._serve_reads()

    def readable(self, read: ReadState) -> None:
        known = self._reads.get(read.context)
        if known is not None:
            known.index = read.index
            # Not at once: what the same Ready commits is being applied.
            asyncio.get_running_loop().call_soon(self._serve_reads)

    def _serve_reads(self) -> None:
        for index, reached in self._reaching:
            if index <= self.applied.index and not reached.done():
                reached.set_result(None)
        self._reaching = [waiting for waiting in self._reaching if not waiting[1].done()]
        for read in self._reads.values():
            if read.index is not None and read.index <= self.applied.index and not read.answer.done():
                read.answer.set_result(None)

    # ---- sending ------------------------------------------------------------------------------------

    async def _check(self, wanted: _Wanted) -> None:
        """Refuse early what the state does not allow: on the newest state, for a follower's may lag."""
        refusal = self._fault(wanted)
        if refusal is not None and not isinstance(wanted.command, InitCluster):
            with contextlib.suppress(RequestRefused):
                await self.read_barrier()
            refusal = self._fault(wanted)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        if self.replica.disk_full:
            raise RequestRefused(Code.DISK_FULL, "the metadata journal finds no space", retry_after_ms=1_000)
        if self._looker is None or self._looker.done():
            raise RequestRefused(Code.STOPPING, "the metadata log is closed", retry_after_ms=1_000)

    def _fault(self, wanted: _Wanted) -> Refused | None:
        if wanted.request is not None and wanted.request.key in self.state.requests:
            return None  # it was applied before: the log gives its first answer
        refusal = condition_fault(self.state, wanted.expects) or validate(self.state, wanted.command)
        return refusal or older_fault(self.state, wanted.command)

    async def _submit(self, wanted: _Wanted) -> Applied:
        if len(self._waiting) >= WAITING_MAX:
            raise RequestRefused(
                Code.OVERLOADED, f"{WAITING_MAX} metadata commands wait already", retry_after_ms=100
            )
        answer: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, answer))
        self._some_wanted.set()
        self._flush_soon()
        return await answer

    async def _renew_session(self) -> None:
        """One renewal for all whose session gave way at once."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._open_session())
        await asyncio.shield(self._opening)

    async def _open_session(self) -> None:
        self._session = NO_SESSION
        opened = (await self._submit(_Wanted(OpenSession()))).result
        assert isinstance(opened, SessionOpened), opened
        self.use_session(opened.session)

    def _flush_soon(self) -> None:
        if not self._flushing and self._waiting:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Give waiting commands their places and send them together: one write, one message a follower."""
        self._flushing = False
        fresh: list[_Pending] = []
        while self._waiting and self._has_room():
            wanted, answer = self._waiting.popleft()
            if answer.done():
                continue  # who asked is gone, and nothing was sent
            if self._session == NO_SESSION:
                sequence = secrets.randbits(62)  # only this node looks at it, to know its own again
                self._without_session.append(sequence)
            else:
                self._sequence = sequence = self._sequence + 1
            proposal = Proposal(
                self._session, sequence, self._now_ms(), wanted.command, wanted.request, wanted.expects
            )
            pending = _Pending(proposal, encode_proposal(proposal), answer)
            self._pending[proposal.session, proposal.sequence] = pending
            fresh.append(pending)
        if fresh:
            self._send(fresh)

    def _has_room(self) -> bool:
        """Sequences under way fit the session's window, so that a retry is never too old."""
        if len(self._pending) >= SESSION_WINDOW:
            return False
        oldest = next((key[1] for key in self._pending if key[0] == self._session), None)
        return self._session == NO_SESSION or oldest is None or self._sequence - oldest < SESSION_WINDOW - 1

    def _send(self, sent: list[_Pending]) -> None:
        replica, now = self.replica, time.monotonic()
        try:
            replica.step(events.Propose(tuple(pending.data for pending in sent)))
        except ConsensusError:
            return  # nobody leads: the look tries again
        for pending in sent:
            pending.sent_s, pending.sent_to = now, (replica.term, replica.leader)
            pending.tries += 1

    async def _look(self) -> None:
        """Send again what was lost with a message or a leader."""
        while True:
            await self._some_wanted.wait()
            await asyncio.sleep(LOOK_S)
            if not self._waiting and not self._pending:
                self._some_wanted.clear()
                continue
            replica, now = self.replica, time.monotonic()
            for key in [key for key, pending in self._pending.items() if pending.answer.cancelled()]:
                if self._pending[key].tries == 0:
                    del self._pending[key]
            if not replica.leader or replica.disk_full:
                continue
            target = (replica.term, replica.leader)
            due = [
                pending
                for pending in self._pending.values()
                if pending.sent_to != target or now - pending.sent_s > RETRY_S
            ]
            if due:
                self._send(due)
            self._flush_soon()


def _unknown(why: str) -> RequestRefused:
    return RequestRefused(Code.UNKNOWN_OUTCOME, f"not known whether it was done: {why}", retry_after_ms=1_000)

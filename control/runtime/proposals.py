"""propose(command) -> index and result. One node commits at once; a cluster will put consensus in this place.

Waiting proposals share a sync: while one group is being written the next one gathers, so that a hundred
topics created at once cost a few syncs, not a hundred.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from ringfence.control.machines.metadata import apply, validate
from ringfence.control.model.commands import Command, OpenSession
from ringfence.control.model.entries import Entry, Proposal
from ringfence.control.model.ids import Index, SessionId
from ringfence.control.model.results import Refused, Result, SessionOpened
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.store.journal import Position
from ringfence.control.store.metadata_store import MetadataStore
from ringfence.native.errors import StorageError
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.metadata")
GROUP_MAX: Final = 64
"""Entries of one sync, which is also a session's window: a proposer has at most so many unanswered."""
WAITING_MAX: Final = 4_096
"""Proposals that may wait; beyond it clients are told to come back. A few MB at the most."""
NO_SESSION: Final = SessionId(0)
CLOSE_S: Final = 5.0
"""How long a close waits for the last group; a disk that takes longer is as good as dead."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A command that took effect, at `index`."""

    index: int
    result: Result


class Proposer(Protocol):
    """What the rest of the control plane sees of consensus."""

    @property
    def state(self) -> MetadataState: ...
    @property
    def applied(self) -> Position: ...
    async def propose(self, command: Command) -> Applied: ...


Listener = Callable[[MetadataState, MetadataState, Index], None]


@dataclass(slots=True)
class _Waiting:
    command: Command
    answer: asyncio.Future[Applied]


class SoloProposer:
    """The metadata log of a node alone: the journal is the majority."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        on_applied: Listener,
        on_failed: Callable[[Exception], None],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`on_applied` hears of each entry that changed the state; `on_failed` of a dead journal."""
        self._store, self._on_applied, self._on_failed, self._now_ms = store, on_applied, on_failed, now_ms
        self._state, self._applied = store.state, store.recovered
        # A start is an election won unopposed: its entries carry a term of their own.
        self._term = store.recovered.term + 1
        self._session, self._sequence = NO_SESSION, 0
        self._waiting: deque[_Waiting] = deque()
        self._some_waiting = asyncio.Event()
        # One thread, so that appends and compaction never overlap.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringfence-journal")
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> MetadataState:
        return self._state

    @property
    def applied(self) -> Position:
        return self._applied

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._commit_groups(), name="metadata")
        self._task.add_done_callback(self._ended)

    def use_session(self, session: SessionId) -> None:
        """From now on proposals belong to this session, which an applied entry has opened."""
        self._session, self._sequence = session, 0

    async def propose(self, command: Command) -> Applied:
        """Wait until the command is durable and applied.

        Raises:
            RequestRefused: the state does not allow it, or the journal could not take it; nothing changed.
        """
        refusal = validate(self._state, command)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        if len(self._waiting) >= WAITING_MAX:
            raise RequestRefused(
                Code.OVERLOADED, f"{WAITING_MAX} metadata commands wait already", retry_after_ms=100
            )
        if self._task is None or self._task.done():
            raise RequestRefused(Code.STOPPING, "the metadata log is closed", retry_after_ms=1_000)
        answer: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(command, answer))
        self._some_waiting.set()
        applied = await answer
        if isinstance(applied.result, Refused):
            if applied.result.code == Code.FORGOTTEN and self._session != NO_SESSION:
                await self._open_session()
                return await self.propose(command)
            raise RequestRefused(applied.result.code, applied.result.message)
        return applied

    async def close(self) -> None:
        """Finish what waits, then stop."""
        task, self._task = self._task, None
        if task is not None:
            unanswered = {waiting.answer for waiting in self._waiting}
            if unanswered and not task.done():
                await asyncio.wait(unanswered, timeout=CLOSE_S)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._writer.shutdown(wait=True)
        self._store.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception), error
            self._on_failed(error)

    async def _open_session(self) -> None:
        self._session = NO_SESSION
        opened = (await self.propose(OpenSession())).result
        assert isinstance(opened, SessionOpened), opened
        self.use_session(opened.session)

    async def _commit_groups(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some_waiting.wait()
            group = [self._waiting[place] for place in range(min(GROUP_MAX, len(self._waiting)))]
            entries = [self._entry(place, waiting.command) for place, waiting in enumerate(group)]
            try:
                # The barrier: nothing of these entries is applied, ordered or answered before this returns.
                await loop.run_in_executor(self._writer, self._store.append, entries)
            except OSError as error:
                self._drop(
                    group, RequestRefused(Code.DISK_FULL, f"metadata journal: {error}", retry_after_ms=1_000)
                )
                continue
            except StorageError as error:
                self._drop(group, RequestRefused(Code.STORAGE_FAILED, str(error)))
                self._on_failed(error)
                return
            for waiting, entry in zip(group, entries, strict=True):
                self._apply(entry, waiting)
            self._drop(group, None)
            if self._store.wants_compaction:
                await self._compact(loop)

    def _entry(self, place: int, command: Command) -> Entry:
        if self._session != NO_SESSION:
            self._sequence += 1
        proposal = Proposal(
            session=self._session,
            sequence=self._sequence,
            time_ms=self._now_ms(),
            command=command,
        )
        return Entry(index=Index(self._applied.index + 1 + place), term=self._term, proposal=proposal)

    def _apply(self, entry: Entry, waiting: _Waiting) -> None:
        before = self._state
        self._state, result = apply(before, entry)
        self._applied = Position(entry.index, entry.term)
        if self._state is not before:
            self._on_applied(before, self._state, entry.index)
        _LOG.debug(
            "applied", index=entry.index, command=type(waiting.command).__name__, result=type(result).__name__
        )
        if not waiting.answer.done():
            waiting.answer.set_result(Applied(entry.index, result))

    def _drop(self, group: list[_Waiting], refusal: RequestRefused | None) -> None:
        for waiting in group:
            assert self._waiting.popleft() is waiting, "proposals left the queue out of order"
            if refusal is not None and not waiting.answer.done():
                waiting.answer.set_exception(refusal)
        if not self._waiting:
            self._some_waiting.clear()

    async def _compact(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await loop.run_in_executor(self._writer, self._store.compact, self._applied, self._state)
            _LOG.info("compacted", index=self._applied.index)
        except OSError as error:
            # The journal goes on growing, nothing is lost; the next group tries again.
            _LOG.warning("compaction failed", error=str(error))

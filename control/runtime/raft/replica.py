"""Consensus at work: events in, orders carried out, ticks; all on the loop's thread but for the disk.

Storage is asynchronous: work for the disk goes to one writing thread, in order, as many pieces at once as
have gathered; its responses leave when it is durable. Meanwhile heartbeats go on, so a slow disk loses no
leader.

A tick that comes late counts once: what has waited in the sockets is heard first, so a node that was stopped
or starved does not take its own silence for that of the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Final

import msgspec
import structlog

from ringfence.control.consensus import changes, events
from ringfence.control.consensus.core import Role
from ringfence.control.consensus.errors import ConsensusError, LogLostError
from ringfence.control.consensus.events import Event
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    APPLY_THREAD,
    ConfigurationState,
    Entry,
    EntryType,
    Message,
    StorageMessage,
)
from ringfence.control.consensus.node import Node
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.reads import ReadState
from ringfence.control.consensus.recording import Changed, Compacted, Noted, Recorder, Recording
from ringfence.control.model.entries import Entry as MetadataEntry
from ringfence.control.model.ids import Index
from ringfence.control.model.results import Result
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.store.journal import Position
from ringfence.control.store.raft_store import TRAIL_ENTRIES, RaftStore, metadata_entry
from ringfence.native.errors import StorageError

_LOG = structlog.get_logger("ringfence.consensus")
TICK_S: Final = 0.04
ELECTION_TICKS: Final = 18
"""0.7 to 1.4 s: a killed leader is replaced within 2 s, and a starved machine of 0.5 s elects nobody."""
HEARTBEAT_TICKS: Final = 2
STEPS_SHOWN: Final = 64
"""Steps that the log shows when an invariant breaks; the recording holds more."""
FULL_DISK_S: Final = 1.0
"""How long a write that found no space waits before it is tried again."""
BATCH_MAX: Final = 1_024
"""Pieces of work of one sync; consensus bounds their bytes."""


class Listener:
    """What the rest of the node hears. All on the loop's thread, in the order of the log."""

    def changed(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        """The state changed; by an entry, or by a snapshot."""

    def answered(self, entry: MetadataEntry, result: Result) -> None:
        """What an entry gave, here and everywhere."""

    def readable(self, read: ReadState) -> None:
        """A linearizable read may be answered once the state is at its index."""


class Replica:
    """One member's consensus over its durable log."""

    def __init__(
        self,
        store: RaftStore,
        node: int,
        *,
        listener: Listener,
        send: Callable[[Message], None],
        before_tick: Callable[[], None] = lambda: None,
        on_failed: Callable[[Exception], None],
        keep: Callable[[Recording], object] = lambda _: "FILE",
    ) -> None:
        """`send` takes messages to others, and may lose them; `on_failed` hears once that this must end.

        `keep` writes what was recorded when an invariant breaks, and says where.
        """
        self._store, self._listener, self._send = store, listener, send
        self._before_tick, self._on_failed, self._keep = before_tick, on_failed, keep
        self.state, self.applied = store.state, store.base
        self.configuration: ConfigurationState = store.configuration
        options = Options(
            id=node, election_ticks=ELECTION_TICKS, heartbeat_ticks=HEARTBEAT_TICKS, async_storage_writes=True
        )
        self._recorder = Recorder(random.SystemRandom().randrange)
        self.node = Node(options, store, draw=self._recorder.draw, applied=store.base.index)
        self.disk_full = False
        self._work: deque[StorageMessage] = deque()
        self._recorder.attach(self.node, lambda: [work for work in self._work if work.to == APPEND_THREAD])
        self._some_work = asyncio.Event()
        # One thread, so that appends and compaction never overlap.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringfence-journal")
        self._tasks: list[asyncio.Task[None]] = []
        self._compacting: asyncio.Task[None] | None = None
        self._applies_waiting = 0
        self._pumping = False
        self._failed = False
        self._due_s = float("inf")  # until it starts

    @property
    def id(self) -> int:
        return self.node.core.id

    @property
    def term(self) -> int:
        return self.node.core.term

    @property
    def leader(self) -> int:
        """The leader's id as this node knows it, 0 for nobody."""
        return self.node.core.lead

    @property
    def leads(self) -> bool:
        return self.node.core.role is Role.LEADER

    @property
    def role(self) -> str:
        """What this node is in consensus: leader, candidate, voter, learner or none."""
        core, configuration = self.node.core, self.configuration
        if core.role in {Role.CANDIDATE, Role.PRE_CANDIDATE}:
            return "candidate"
        if self.leads:
            return "leader"
        if self.id in {*configuration.voters, *configuration.voters_outgoing}:
            return "voter"
        return "learner" if self.id in configuration.learners else "none"

    @property
    def is_alone(self) -> bool:
        """Whether this node is the majority."""
        return self.configuration.voters == (self.id,) and not self.configuration.voters_outgoing

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._write(), name="journal"),
            loop.create_task(self._tick(), name="ticks"),
        ]
        for task in self._tasks:
            self.needs(task)
        self._pump()
        if self.is_alone:
            # Nobody else could lead: there is nothing to wait for. Consensus refuses while a change of the
            # configuration is committed, but not yet applied.
            self.step(events.Campaign())

    def step(self, event: Event) -> None:
        """Take one event and carry out what follows.

        Raises:
            ConsensusError: it was not taken.
        """
        if self._failed:
            return
        self._recorder.event(event)
        try:
            self.node.step(event)
        except LogLostError as error:
            where = self._keep(self.recording(str(error)))
            self._fail(StorageError(f"{error} (`ringfence debug replay {where}`)"))
        except AssertionError as error:
            self._broken(error)
        finally:
            self._pump()

    async def close(self) -> None:
        """End. What was not answered is unknown to who asked."""
        for task in [*self._tasks, *([self._compacting] if self._compacting else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, StorageError):
                await task
        self._failed = True
        await asyncio.get_running_loop().run_in_executor(None, self._writer.shutdown)
        self._store.close()

    # ---- orders -------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Carry out everything that is ready. Applying gives new events, which the same loop takes up."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._failed and self.node.has_ready():
                self._recorder.took()
                ready = self.node.ready()
                for read in ready.read_states:
                    self._listener.readable(read)
                for message in ready.messages:
                    if message.to == APPEND_THREAD:
                        assert isinstance(message, StorageMessage), message
                        self._work.append(message)
                        self._some_work.set()
                    elif message.to == APPLY_THREAD:
                        assert isinstance(message, StorageMessage), message
                        self._apply_in_turn(message)
                    else:
                        self._send(message)
        except AssertionError as error:
            self._broken(error)
        except StorageError as error:
            self._fail(error)
        finally:
            self._pumping = False
        if not self._failed and self._compacting is None and self._is_compaction_due():
            self._compacting = asyncio.get_running_loop().create_task(self._compact(), name="compaction")
            self._compacting.add_done_callback(self._compacted)

    def _apply_in_turn(self, work: StorageMessage) -> None:
        """Apply entries, at once or after the disk.

        A change of the configuration takes effect only once it is durable here that it is committed: who
        started anew in the configuration before it might be a majority there, alone.
        """
        waits = self._applies_waiting or any(entry.type is not EntryType.NORMAL for entry in work.entries)
        if waits:
            self._applies_waiting += 1
            self._work.append(work)
            self._some_work.set()
        else:
            self._apply(work.entries)
            self._respond(work)

    def _respond(self, work: StorageMessage) -> None:
        for response in work.responses:
            if response.to != self.id:
                self._send(response)
                continue
            with contextlib.suppress(ConsensusError):
                event = events.Received(response)
                self._recorder.event(event)
                self.node.step(event)

    def _apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            before = self.state
            if entry.type is not EntryType.NORMAL and self.node.is_overtaken(entry.index):
                # The snapshot is installed behind this work, with its own configuration.
                self.applied = Position(entry.index, entry.term)
                continue
            if entry.type is not EntryType.NORMAL:
                change = changes.from_entry(entry)
                self._recorder.add(Changed(change))
                self.configuration = self.node.apply_change(change)
                self.applied = Position(entry.index, entry.term)
                _LOG.info(
                    "configuration",
                    index=entry.index,
                    voters=self.configuration.voters,
                    learners=self.configuration.learners,
                )
                continue
            if not entry.data:
                self.applied = Position(entry.index, entry.term)
                continue
            command = metadata_entry(entry, "the metadata log")
            self.state, result = apply(before, command)
            self.applied = Position(entry.index, entry.term)
            if self.state is not before:
                self._listener.changed(before, self.state, command.index)
            self._listener.answered(command, result)

    # ---- the disk -----------------------------------------------------------------------------------

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some_work.wait()
            batch = [self._work[place] for place in range(min(BATCH_MAX, len(self._work)))]
            try:
                # The barrier: no response of this batch leaves before this returns.
                await loop.run_in_executor(self._writer, self._store.persist, batch)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise StorageError(f"metadata journal: {error}; check the disk") from error
                self.disk_full = True
                _LOG.error("no space for metadata", error=str(error), tried_again_s=FULL_DISK_S)
                # What a leader commits it applies behind this write: another one has to lead.
                self.step(events.StorageFull(full=True))
                await asyncio.sleep(FULL_DISK_S)
                continue
            was_full, self.disk_full = self.disk_full, False
            self._recorder.add(Noted(sum(work.to == APPEND_THREAD for work in batch)))
            for _ in batch:
                self._work.popleft()
            if not self._work:
                self._some_work.clear()
            self._store.note(batch)
            for work in batch:
                if work.snapshot is not None:
                    await self._installed(work)
                if work.to == APPLY_THREAD:
                    self._applies_waiting -= 1
                    self._apply(work.entries)
                self._respond(work)
            if was_full:
                self.step(events.StorageFull(full=False))
            self._pump()

    async def _installed(self, work: StorageMessage) -> None:
        """A received snapshot is durable: it is the state now."""
        snapshot, before = work.snapshot, self.state
        assert snapshot is not None
        opened = await asyncio.get_running_loop().run_in_executor(None, self._store.opened, snapshot.data)
        self.state, self.applied = opened.state, opened.position
        self.configuration = snapshot.configuration
        _LOG.info("snapshot installed", index=snapshot.index)
        self._listener.changed(before, self.state, Index(snapshot.index))

    def _is_compaction_due(self) -> bool:
        newer = self.applied.index > self._snapshot_index
        return newer and (self._store.wants_compaction or self.node.wants_snapshot())

    @property
    def _snapshot_index(self) -> int:
        known = self._store.snapshot()
        return 0 if known is None else known.index

    async def _compact(self) -> None:
        loop = asyncio.get_running_loop()
        position, state, configuration = self.applied, self.state, self.configuration
        try:
            await loop.run_in_executor(None, self._store.write_snapshot, position, state, configuration)
            keep = max(0, position.index - TRAIL_ENTRIES)
            # A large trail is no trail: it would be written again and again.
            behind = position.index if self._store.wants_compaction else keep
            base = await loop.run_in_executor(self._writer, self._store.compact, behind)
            self._recorder.add(Compacted(position.index, position.term, configuration, base.index))
            self._store.note_snapshot(position, configuration, base)
            _LOG.info("compacted", index=position.index, journal_begins_behind=base.index)
        except OSError as error:
            # The journal goes on growing, nothing is lost; the next try comes after a while.
            _LOG.warning("compaction failed", error=str(error))
            await asyncio.sleep(FULL_DISK_S)

    def _compacted(self, task: asyncio.Task[None]) -> None:
        self._compacting = None
        self._ended(task)

    # ---- time ---------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + TICK_S
        while True:
            await asyncio.sleep(max(0.0, self._due_s - loop.time()))
            self.pulse()

    def pulse(self) -> None:
        """Tick if it is time to: who keeps the loop busy calls it between two pieces of work.

        A loop with a thousand requests ready runs them all before it looks at its timers.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._due_s or self._pumping or self._failed:
            return
        self._due_s = max(self._due_s + TICK_S, now_s)
        self._before_tick()
        with contextlib.suppress(ConsensusError):
            self.step(events.Tick())

    # ---- the end ------------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception), error
            self._fail(error)

    def _broken(self, error: AssertionError) -> None:
        """An invariant of consensus does not hold: nothing more may be said or stored."""
        for step in self._recorder.newest(STEPS_SHOWN):
            _LOG.error("before a broken invariant", step=repr(step)[:400])
        where = self._keep(self.recording(f"an invariant is broken: {error}"))
        self._fail(
            StorageError(f"an invariant of consensus is broken: {error}; `ringfence debug replay {where}`")
        )

    def needs(self, task: asyncio.Task[None]) -> None:
        """A node that lost this task would go on without what it does: an error of it ends the node."""
        task.add_done_callback(self._ended)

    def recording(self, why: str) -> Recording:
        """The last steps with where they began, for `ringfence debug replay`."""
        return self._recorder.recording(version("ringfence"), why)

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._on_failed(error)


def message_of(snapshot_data: bytes, message: Message, store: RaftStore) -> Message:
    """A snapshot message as it is sent: with the file's position, which may be newer, and its bytes."""
    opened = store.opened(snapshot_data)
    assert message.snapshot is not None
    assert opened.configuration is not None, "a snapshot that consensus wrote has a configuration"
    snapshot = msgspec.structs.replace(
        message.snapshot,
        index=opened.position.index,
        term=opened.position.term,
        configuration=opened.configuration,
        data=snapshot_data,
    )
    return msgspec.structs.replace(message, snapshot=snapshot)

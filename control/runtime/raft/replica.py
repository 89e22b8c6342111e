"""Drive the Raft core: feed it events and ticks, carry out its effects. Only disk work leaves the loop.

Storage is asynchronous. One writer thread persists work in order, as one batch of all that is queued. The
responses of a batch leave when it is durable. Heartbeats go on meanwhile, so a slow disk loses no leader.

A late tick counts once, and queued messages are processed before it. So a node that was stopped or starved
does not mistake its own silence for the leader's.
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

from ringfence.control.consensus import configuration_changes, events
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
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.read_queue import ReadState
from ringfence.control.consensus.step_recording import Changed, Compacted, Noted, Recorder, Recording
from ringfence.control.model.entries import Entry as MetadataEntry
from ringfence.control.model.ids import Index
from ringfence.control.model.results import Result
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.tasks import failure_of
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.store.journal import LogPosition
from ringfence.control.store.raft_store import TRAIL_ENTRIES, RaftStore, metadata_entry
from ringfence.native.errors import StorageError

_LOG = structlog.get_logger("ringfence.consensus")
TICK_S: Final = 0.04
# 0.7 to 1.4 s: a killed leader is replaced within 2 s, and 0.5 s of starvation start no election.
ELECTION_TICKS: Final = 18
HEARTBEAT_TICKS: Final = 2
# Steps that the log shows when an invariant is broken; the recording has more.
STEPS_SHOWN: Final = 64
# Pause before a write is repeated after a full disk, in seconds.
FULL_DISK_PAUSE_S: Final = 1.0
# Pieces of work per sync; consensus bounds their bytes.
BATCH_MAX: Final = 1_024


class ReplicaListener:
    """Callbacks of the rest of the node. All run on the loop's thread, in log order."""

    def state_changed(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        """An entry or a snapshot changed the state."""

    def entry_applied(self, entry: MetadataEntry, result: Result) -> None:
        """An entry was applied; its result is the same on every node."""

    def read_ready(self, read: ReadState) -> None:
        """A linearizable read may be answered once `read.index` is applied."""


class Replica:
    """The Raft replica of one node, over its durable log."""

    def __init__(
        self,
        store: RaftStore,
        node: int,
        *,
        listener: ReplicaListener,
        send: Callable[[Message], None],
        before_tick: Callable[[], None] = lambda: None,
        on_failed: Callable[[Exception], None],
        save_recording: Callable[[Recording], object] = lambda _: "FILE",
    ) -> None:
        """Set the callbacks; `start` starts the tasks.

        Args:
            store: the durable log; the replica closes it.
            node: this node's id.
            listener: gets applied entries.
            send: sends a message to another node; messages may be lost.
            before_tick: processes messages that wait in the sockets.
            on_failed: called once with the error after which the node must stop.
            save_recording: writes a recording when an invariant is broken; returns its path.
        """
        self._store, self._listener, self._send = store, listener, send
        self._before_tick, self._on_failed, self._save_recording = before_tick, on_failed, save_recording
        self.state, self.applied = store.state, store.base
        self.configuration: ConfigurationState = store.configuration
        options = Options(
            id=node, election_ticks=ELECTION_TICKS, heartbeat_ticks=HEARTBEAT_TICKS, async_storage_writes=True
        )
        self._recorder = Recorder(random.SystemRandom().randrange)
        self.node = Node(options, store, draw=self._recorder.draw, applied=store.base.index)
        self.disk_full = False
        # Work for the writer thread in log order. It is removed once it is durable.
        self._work: deque[StorageMessage] = deque()
        self._recorder.attach(self.node, lambda: [work for work in self._work if work.to == APPEND_THREAD])
        self._has_work = asyncio.Event()
        # One thread, so that appends and compaction never overlap.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringfence-journal")
        self._tasks: list[asyncio.Task[None]] = []
        self._compacting: asyncio.Task[None] | None = None
        self._pending_applies = 0  # pieces of apply work in `_work`
        self._pumping = False
        self._failed = False
        self._next_tick_s = float("inf")  # on the loop's clock; set by `start`

    @property
    def id(self) -> int:
        return self.node.core.id

    @property
    def term(self) -> int:
        return self.node.core.term

    @property
    def leader(self) -> int:
        """The leader's id as far as this node knows; 0: none."""
        return self.node.core.lead

    @property
    def leads(self) -> bool:
        return self.node.core.role is Role.LEADER

    @property
    def role(self) -> str:
        """This node's role in consensus: leader, candidate, voter, learner or none."""
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
        """Whether this node is the only voter."""
        return self.configuration.voters == (self.id,) and not self.configuration.voters_outgoing

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._write(), name="journal"),
            loop.create_task(self._tick(), name="ticks"),
        ]
        for task in self._tasks:
            self.supervise(task)
        self._pump()
        if self.is_alone:
            # No other node can lead, so this one need not wait. The core refuses the event while a change of
            # the configuration is committed, but not yet applied.
            self.step(events.Campaign())

    def step(self, event: Event) -> None:
        """Process one event, and carry out its effects.

        Raises:
            ConsensusError: the core refused the event.
        """
        if self._failed:
            return
        self._recorder.event(event)
        try:
            self.node.step(event)
        except LogLostError as error:
            where = self._save_recording(self.recording(str(error)))
            self._fail(StorageError(f"{error} (`ringfence debug replay {where}`)"))
        except AssertionError as error:
            self._invariant_broken(error)
        finally:
            self._pump()

    async def close(self) -> None:
        """Stop. Proposals without an answer have an unknown outcome for their callers."""
        for task in [*self._tasks, *([self._compacting] if self._compacting else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, StorageError):
                await task
        self._failed = True
        await asyncio.get_running_loop().run_in_executor(None, self._writer.shutdown)
        self._store.close()

    # ---- effects ------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Carry out all effects that are ready. Applying creates events; the same loop processes them."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._failed and self.node.has_ready():
                self._recorder.took()
                ready = self.node.ready()
                for read in ready.read_states:
                    self._listener.read_ready(read)
                for message in ready.messages:
                    if message.to == APPEND_THREAD:
                        assert isinstance(message, StorageMessage), message
                        self._work.append(message)
                        self._has_work.set()
                    elif message.to == APPLY_THREAD:
                        assert isinstance(message, StorageMessage), message
                        self._apply_in_turn(message)
                    else:
                        self._send(message)
        except AssertionError as error:
            self._invariant_broken(error)
        except StorageError as error:
            self._fail(error)
        finally:
            self._pumping = False
        if not self._failed and self._compacting is None and self._is_compaction_due():
            self._compacting = asyncio.get_running_loop().create_task(self._compact(), name="compaction")
            self._compacting.add_done_callback(self._compacted)

    def _apply_in_turn(self, work: StorageMessage) -> None:
        """Apply entries immediately, or after the disk work that is queued.

        A change of the configuration takes effect only after its commit is durable here. A node that
        restarted with the older configuration could otherwise be a majority of it, alone.
        """
        must_wait = self._pending_applies or any(entry.type is not EntryType.NORMAL for entry in work.entries)
        if must_wait:
            self._pending_applies += 1
            self._work.append(work)
            self._has_work.set()
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
                # A snapshot with a configuration of its own is installed after this work.
                self.applied = LogPosition(entry.index, entry.term)
                continue
            if entry.type is not EntryType.NORMAL:
                change = configuration_changes.from_entry(entry)
                self._recorder.add(Changed(change))
                self.configuration = self.node.apply_change(change)
                self.applied = LogPosition(entry.index, entry.term)
                _LOG.info(
                    "configuration",
                    index=entry.index,
                    voters=self.configuration.voters,
                    learners=self.configuration.learners,
                )
                continue
            if not entry.data:
                self.applied = LogPosition(entry.index, entry.term)
                continue
            command = metadata_entry(entry, "the metadata log")
            self.state, result = apply(before, command)
            self.applied = LogPosition(entry.index, entry.term)
            if self.state is not before:
                self._listener.state_changed(before, self.state, command.index)
            self._listener.entry_applied(command, result)

    # ---- the disk -----------------------------------------------------------------------------------

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._has_work.wait()
            batch = [self._work[index] for index in range(min(BATCH_MAX, len(self._work)))]
            try:
                # The barrier: no response of this batch leaves before this returns.
                await loop.run_in_executor(self._writer, self._store.persist, batch)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise StorageError(f"metadata journal: {error}; check the disk") from error
                self.disk_full = True
                _LOG.error("no space for metadata", error=str(error), retry_after_s=FULL_DISK_PAUSE_S)
                # A leader would apply its commits only after this write: another node must lead.
                self.step(events.StorageFull(full=True))
                await asyncio.sleep(FULL_DISK_PAUSE_S)
                continue
            was_full, self.disk_full = self.disk_full, False
            self._recorder.add(Noted(sum(work.to == APPEND_THREAD for work in batch)))
            for _ in batch:
                self._work.popleft()
            if not self._work:
                self._has_work.clear()
            self._store.note(batch)
            for work in batch:
                if work.snapshot is not None:
                    await self._install_snapshot(work)
                if work.to == APPLY_THREAD:
                    self._pending_applies -= 1
                    self._apply(work.entries)
                self._respond(work)
            if was_full:
                self.step(events.StorageFull(full=False))
            self._pump()

    async def _install_snapshot(self, work: StorageMessage) -> None:
        """Replace the state by a received snapshot, which is durable."""
        snapshot, before = work.snapshot, self.state
        assert snapshot is not None
        opened = await asyncio.get_running_loop().run_in_executor(
            None, self._store.unpack_snapshot, snapshot.data
        )
        self.state, self.applied = opened.state, opened.position
        self.configuration = snapshot.configuration
        _LOG.info("snapshot installed", index=snapshot.index)
        self._listener.state_changed(before, self.state, Index(snapshot.index))

    def _is_compaction_due(self) -> bool:
        is_wanted = self.node.wants_snapshot() or self._store.needs_compaction
        return is_wanted and self.applied.index > self._snapshot_index

    @property
    def _snapshot_index(self) -> int:
        snapshot = self._store.snapshot()
        return 0 if snapshot is None else snapshot.index

    async def _compact(self) -> None:
        loop = asyncio.get_running_loop()
        position, state, configuration = self.applied, self.state, self.configuration
        try:
            await loop.run_in_executor(None, self._store.write_snapshot, position, state, configuration)
            trail_start = max(0, position.index - TRAIL_ENTRIES)
            # A journal that is still too large keeps no trail: every compaction would write the trail again.
            upto = position.index if self._store.needs_compaction else trail_start
            base = await loop.run_in_executor(self._writer, self._store.compact, upto)
            self._recorder.add(Compacted(position.index, position.term, configuration, base.index))
            self._store.note_snapshot(position, configuration, base)
            _LOG.info("compacted", index=position.index, journal_begins_behind=base.index)
        except OSError as error:
            # The journal keeps growing, and nothing is lost. The next attempt follows after a pause.
            _LOG.warning("compaction failed", error=str(error))
            await asyncio.sleep(FULL_DISK_PAUSE_S)

    def _compacted(self, task: asyncio.Task[None]) -> None:
        self._compacting = None
        self._task_ended(task)

    # ---- time ---------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_tick_s = loop.time() + TICK_S
        while True:
            await asyncio.sleep(max(0.0, self._next_tick_s - loop.time()))
            self.pulse()

    def pulse(self) -> None:
        """Tick if a tick is due. Callers that keep the loop busy call this between two pieces of work.

        A loop with a thousand requests ready runs them all before it looks at its timers.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_tick_s or self._pumping or self._failed:
            return
        self._next_tick_s = max(self._next_tick_s + TICK_S, now_s)
        self._before_tick()
        with contextlib.suppress(ConsensusError):
            self.step(events.Tick())

    # ---- failures -----------------------------------------------------------------------------------

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if (error := failure_of(task)) is not None:
            self._fail(error)

    def _invariant_broken(self, error: AssertionError) -> None:
        """Fail on a broken invariant of consensus: this node must send and store nothing more."""
        for step in self._recorder.newest(STEPS_SHOWN):
            _LOG.error("before a broken invariant", step=repr(step)[:400])
        where = self._save_recording(self.recording(f"an invariant is broken: {error}"))
        self._fail(
            StorageError(f"an invariant of consensus is broken: {error}; `ringfence debug replay {where}`")
        )

    def supervise(self, task: asyncio.Task[None]) -> None:
        """Fail the node if `task` ends with an error: the node must not run without the task."""
        task.add_done_callback(self._task_ended)

    def recording(self, why: str) -> Recording:
        """The last steps and the state before them, for `ringfence debug replay`."""
        return self._recorder.recording(version("ringfence"), why)

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._on_failed(error)


def snapshot_message(snapshot_data: bytes, message: Message, store: RaftStore) -> Message:
    """Complete a snapshot message with the file's bytes, and its position, which may be newer."""
    opened = store.unpack_snapshot(snapshot_data)
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

"""Store the log of consensus durably: journal, snapshot, and a copy in memory for reads.

The class has two halves, for two threads. `persist`, `write_snapshot` and `compact` write; one thread at a
time calls them. All other methods belong to the thread of consensus. It calls `note` for persisted work, and
from then on the reads of `consensus.Storage` return that work.

A directory of the first version, or of a node that was always alone, has no configuration: every history
began with one voter, the first node. All entries in a journal of a program before consensus are committed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from ringfence.control.consensus.messages import (
    ConfigurationState,
    Entry,
    EntryType,
    HardState,
    MessageType,
    Snapshot,
    StorageMessage,
)
from ringfence.control.consensus.storage import MemoryStorage
from ringfence.control.model.entries import Entry as MetadataEntry
from ringfence.control.model.entries import decode_proposal
from ringfence.control.model.ids import Index
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.store import install_mark, records
from ringfence.control.store import write_and_read_snapshot as snapshots
from ringfence.control.store.directory import NODE_FIRST, DataDirectory
from ringfence.control.store.files import write_atomically
from ringfence.control.store.journal import START, HardRecord, Journal, JournalEntry, LogPosition
from ringfence.native.errors import RecordError

# A larger journal is compacted. Replaying 8 MiB of commands takes about a second.
JOURNAL_BYTES_MAX: Final = 8 * 1024 * 1024
# Entries that stay in the journal before a snapshot's index, so that a follower that was away for a moment
# needs no snapshot.
TRAIL_ENTRIES: Final = 1_024
# Lag of the stored commit index, in entries. After a start the entries above it are applied once a leader
# commits them.
COMMIT_LAG_MAX: Final = 256
FIRST_CONFIGURATION: Final = ConfigurationState(voters=(NODE_FIRST,))


class RaftStore:
    """The log of one node; a `consensus.storage.Storage`."""

    def __init__(
        self, directory: DataDirectory, *, read_only: bool = False, journal_bytes_max: int | None = None
    ) -> None:
        """Recover from journal and snapshot. With `read_only` a torn group stays, and writes are refused.

        A journal above `journal_bytes_max` needs compaction; None: JOURNAL_BYTES_MAX. `state` and `base` are
        those of the snapshot; consensus applies later entries as they are committed.

        Raises:
            RecordError: journal or snapshot is damaged, or they do not fit together. Nothing was changed.
            NewerFormatError, StoreIdentityError: as `Journal` and `snapshot.read`.
        """
        self._directory, self._history = directory, directory.identity.history
        self._journal_bytes_max = journal_bytes_max
        self.journal = Journal(directory.journal, history=self._history, read_only=read_only)
        begin = snapshots.Snapshot(START, EMPTY)
        if directory.snapshot.exists():
            begin = snapshots.read(directory.snapshot, history=self._history)
        self._check_ages(begin, read_only=read_only)
        if not read_only:
            install_mark.unmark(directory.installing)
        self.base, self.state = begin.position, begin.state
        self.configuration = begin.configuration or FIRST_CONFIGURATION
        self.recovered = self.journal.last if self._continues(begin.position) else begin.position
        self._hard = self._first_hard()
        self._snapshot_lock = threading.Lock()
        self._snapshot_at = begin.position
        self._memory = MemoryStorage()
        self._fill_memory()

    # ---- consensus reads ----------------------------------------------------------------------------

    def initial_state(self) -> tuple[HardState, ConfigurationState]:
        return HardState(self._hard.term, self._hard.vote, self._hard.commit), self.configuration

    def first_index(self) -> int:
        return self._memory.first_index()

    def last_index(self) -> int:
        return self._memory.last_index()

    def term(self, index: int) -> int | None:
        return self._memory.term(index)

    def entries(self, low: int, high: int, bytes_max: int) -> Sequence[Entry]:
        return self._memory.entries(low, high, bytes_max)

    def snapshot(self) -> Snapshot | None:
        """The snapshot without its bytes; `snapshot_bytes` reads them from the file when it is sent."""
        return self._memory.snapshot()

    # ---- the writing thread -------------------------------------------------------------------------

    def persist(self, work: Sequence[StorageMessage]) -> None:
        """Make a batch of work durable, in order. Its responses may leave only after the return.

        A STORAGE_APPLY has no entries to store; it raises the commit index to its last entry.

        Raises:
            OSError: ENOSPC or EDQUOT; the rest of the batch was not written, and the caller may retry.
            StorageError: the disk failed; the journal refuses all further writes.
        """
        group: list[JournalEntry] = []
        hard, writes_commit = self._hard, False
        for message in work:
            if message.type is MessageType.STORAGE_APPLY:
                writes_commit = True
                hard = replace(hard, commit=max(hard.commit, message.entries[-1].index))
                continue
            committed = hard.commit
            if message.term or message.vote or message.commit:
                hard = HardRecord(message.term, message.vote, message.commit)
            if message.snapshot is not None:
                # The old log's entries up to the snapshot may differ from the committed ones, so the commit
                # index must not cover them.
                self._write(group, replace(hard, commit=committed), writes_commit=writes_commit)
                group = []
                self._install(message.snapshot, hard)
            if message.entries:
                first = message.entries[0].index
                group = [payload for payload in group if payload.index < first]
                group += [_payload(entry) for entry in message.entries]
        self._write(group, hard, writes_commit=writes_commit)

    def write_snapshot(
        self, position: LogPosition, state: MetadataState, configuration: ConfigurationState
    ) -> None:
        """Replace the snapshot by a newer one. OSError if the disk fails; the old one then stays."""
        packed = snapshots.pack(snapshots.Snapshot(position, state, configuration))
        with self._snapshot_lock:
            # A snapshot that was received meanwhile may be newer.
            if position.index > self._snapshot_at.index:
                write_atomically(self._directory.snapshot, *packed)
                self._snapshot_at = position

    def compact(self, index: int) -> LogPosition:
        """Drop the journal's entries up to `index`, which a durable snapshot covers; return the new base."""
        count = index - self.journal.base.index
        if count > 0:
            last = self.journal.entries[count - 1]
            self.journal.rewrite(LogPosition(last.index, last.term), self.journal.entries[count:])
        return self.journal.base

    def snapshot_bytes(self) -> bytes:
        """The snapshot's file, for sending to other nodes. OSError if it cannot be read."""
        with self._snapshot_lock:
            return self._directory.snapshot.read_bytes()

    # ---- the thread of consensus --------------------------------------------------------------------

    def note(self, work: Sequence[StorageMessage]) -> None:
        """Make durable `work` visible to reads."""
        for message in work:
            if message.snapshot is not None:
                self._memory.install(msgspec.structs.replace(message.snapshot, data=b""))
            if message.type is not MessageType.STORAGE_APPLY:
                self._memory.append(message.entries)

    def note_snapshot(
        self, position: LogPosition, configuration: ConfigurationState, journal_base: LogPosition
    ) -> None:
        """Make a durable snapshot of this node visible to reads; the journal begins after `journal_base`."""
        if position.index > self._memory.snapshot_index:
            self._memory.set_snapshot(Snapshot(position.index, position.term, configuration))
        if journal_base.index >= self._memory.first_index():
            self._memory.compact(journal_base.index)

    def unpack_snapshot(self, data: bytes) -> snapshots.Snapshot:
        """Decode a snapshot from another node. Raises as `snapshot.unpack`."""
        return snapshots.unpack("a received snapshot", data, history=self._history)

    @property
    def needs_compaction(self) -> bool:
        return self.journal.size_bytes > (self._journal_bytes_max or JOURNAL_BYTES_MAX)

    def end_state(self, *, committed: bool = False) -> MetadataState:
        """The state after all entries: for checks of a stopped node, and to find the other members.

        `committed`: only after the entries that are known to be committed. RecordError if this program cannot
        decode an entry.
        """
        state, end = self.state, self._hard.commit if committed else self.recovered.index
        for payload in self.journal.entries if self._continues(self.base) else ():
            if self.base.index < payload.index <= end and payload.kind == records.ENTRY and payload.data:
                state, _ = apply(state, metadata_entry(_entry(payload), str(self.journal.path)))
        return state

    def close(self) -> None:
        self.journal.close()

    # ---- parts --------------------------------------------------------------------------------------

    def _check_ages(self, begin: snapshots.Snapshot, *, read_only: bool) -> None:
        journal = self.journal
        if journal.base.index > begin.position.index:
            raise RecordError(
                f"{journal.path} begins after entry {journal.base.index}, the snapshot ends at "
                f"{begin.position.index}: the entries between are missing; restore both from one backup",
                position=0,
            )
        if self._continues(begin.position):
            return
        installing = install_mark.marked_position(self._directory.installing)
        # Older programs wrote no mark. There a higher commit index shows that a snapshot was received.
        is_committed = journal.hard is not None and journal.hard.commit >= begin.position.index
        if installing != begin.position and not is_committed:
            raise RecordError(
                f"{journal.path} ends at entry {journal.last.index} of term {journal.last.term}, and lacks "
                f"entry {begin.position.index} of term {begin.position.term}, the snapshot's last one: the "
                "journal has lost its durable end; restore both from one backup",
                position=0,
            )
        # A received snapshot was installed, and a crash came before the journal was replaced.
        if not read_only:
            journal.rewrite(begin.position, [])

    def _continues(self, position: LogPosition) -> bool:
        """Whether the journal's entries belong to the same log as a snapshot at `position`."""
        return self.journal.term(position.index) == position.term

    def _first_hard(self) -> HardRecord:
        hard, last = self.journal.hard, self.recovered
        if hard is None:
            return HardRecord(last.term, 0, last.index)
        commit = max(min(hard.commit, last.index), self.base.index)
        if hard.term < last.term:
            # A group was torn after its entries: a vote of this term, if any, was never answered.
            return HardRecord(last.term, 0, commit)
        return HardRecord(hard.term, hard.vote, commit)

    def _fill_memory(self) -> None:
        is_continued = self._continues(self.base)
        first = self.journal.base if is_continued else self.base
        if first.index:
            self._memory.install(Snapshot(first.index, first.term, self.configuration))
        if is_continued:
            self._memory.append([_entry(payload) for payload in self.journal.entries])
        if self.base.index:
            self._memory.set_snapshot(Snapshot(self.base.index, self.base.term, self.configuration))

    def _write(self, group: Sequence[JournalEntry], hard: HardRecord, *, writes_commit: bool) -> None:
        old, journal = self._hard, self.journal
        has_new_vote = (hard.term, hard.vote) != (old.term, old.vote) or journal.hard is None
        lag = 0 if journal.hard is None else hard.commit - journal.hard.commit
        # The commit index alone costs a sync only if a caller requires it, or if it lags far.
        needs_record = has_new_vote or (writes_commit and lag > 0) or (group and lag >= COMMIT_LAG_MAX)
        if group and group[0].index <= journal.last.index:
            kept_count = max(0, group[0].index - journal.base.index - 1)
            group = group[max(0, journal.base.index + 1 - group[0].index) :]
            journal.rewrite(journal.base, [*journal.entries[:kept_count], *group], hard)
        elif group or needs_record:
            journal.append(group, hard if needs_record else None)
        self._hard = hard

    def _install(self, snapshot: Snapshot, hard: HardRecord) -> None:
        """Replace the log by a received snapshot. A crash at any step leaves the old log or the new one."""
        position = LogPosition(snapshot.index, snapshot.term)
        assert hard.commit >= position.index, f"a snapshot at {position.index}, commit {hard.commit}"
        install_mark.mark(self._directory.installing, position)
        with self._snapshot_lock:
            if position.index > self._snapshot_at.index:
                write_atomically(self._directory.snapshot, snapshot.data)
                self._snapshot_at = position
        self.journal.rewrite(position, [], hard)
        self._hard = hard
        install_mark.unmark(self._directory.installing)


def metadata_entry(entry: Entry, where: str) -> MetadataEntry:
    """The command of an entry. RecordError if this program cannot decode it."""
    try:
        proposal = decode_proposal(entry.data)
    except msgspec.MsgspecError as error:
        raise RecordError(
            f"{where}: entry {entry.index} is intact, but this program does not know its content ({error}); "
            "use the newer program that wrote it. Nothing was changed",
            position=entry.index,
        ) from error
    return MetadataEntry(index=Index(entry.index), term=entry.term, proposal=proposal)


def commands(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries with a command: no changes of the configuration, no empty first entries of a term."""
    return (entry for entry in entries if entry.type is EntryType.NORMAL and entry.data)


def _payload(entry: Entry) -> JournalEntry:
    kind = records.ENTRY if entry.type is EntryType.NORMAL else records.CHANGE
    # There are two entry types for changes, so a byte with the type precedes the data.
    data = entry.data if kind == records.ENTRY else bytes([entry.type]) + entry.data
    return JournalEntry(entry.index, entry.term, data, kind)


def _entry(payload: JournalEntry) -> Entry:
    if payload.kind == records.ENTRY:
        return Entry(payload.term, payload.index, EntryType.NORMAL, payload.data)
    return Entry(payload.term, payload.index, EntryType(payload.data[0]), payload.data[1:])

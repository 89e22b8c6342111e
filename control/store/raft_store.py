"""The durable log of consensus in a data directory: journal, snapshot, and a copy in memory to read from.

Two halves, for two threads. `persist`, `write_snapshot` and `compact` write; one thread at a time calls them.
Everything else belongs to the thread of consensus: what was persisted is `note`d there, and from then on
`consensus.Storage` answers with it.

A directory of the first version, or of a node that never had company, has no configuration: every history
began with one voter, its first node. All entries of a journal that consensus never wrote are committed.
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
from ringfence.control.store import records, snapshot_install
from ringfence.control.store import snapshot as snapshots
from ringfence.control.store.directory import NODE_FIRST, DataDirectory
from ringfence.control.store.files import write_atomically
from ringfence.control.store.journal import START, Hard, Journal, Payload, Position
from ringfence.native.errors import RecordError

JOURNAL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Compaction begins here: replaying 8 MiB of commands takes about a second."""
TRAIL_ENTRIES: Final = 1_024
"""Entries kept behind a snapshot: who was away for a moment needs no snapshot."""
COMMIT_LAG_MAX: Final = 256
"""Entries that the stored commit index may lag; a start applies what lies behind it once a leader says so."""
FIRST_CONFIGURATION: Final = ConfigurationState(voters=(NODE_FIRST,))


class RaftStore:
    """The log of one node; a `consensus.storage.Storage`."""

    def __init__(
        self, directory: DataDirectory, *, read_only: bool = False, journal_bytes_max: int | None = None
    ) -> None:
        """Recover; `read_only` leaves a torn group where it is, and takes no entries.

        A journal of more than `journal_bytes_max` wants compaction; None is JOURNAL_BYTES_MAX.

        `state` and `base` are those of the snapshot: what lies behind it is applied as it commits.

        Raises:
            RecordError: journal or snapshot are damaged, or not of one age. Nothing was changed.
            NewerFormatError, StoreIdentityError: as journal and snapshot do.
        """
        self._directory, self._history = directory, directory.identity.history
        self._journal_bytes_max = journal_bytes_max
        self.journal = Journal(directory.journal, history=self._history, read_only=read_only)
        begin = snapshots.Snapshot(START, EMPTY)
        if directory.snapshot.exists():
            begin = snapshots.read(directory.snapshot, history=self._history)
        self._check_ages(begin, read_only=read_only)
        if not read_only:
            snapshot_install.unmark(directory.installing)
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
        """Where the snapshot is; its bytes are read from the file when it is sent (`snapshot_bytes`)."""
        return self._memory.snapshot()

    # ---- the writing thread -------------------------------------------------------------------------

    def persist(self, work: Sequence[StorageMessage]) -> None:
        """Make a batch of work durable, in order. The barrier: only then may its responses leave.

        Work of the kind STORAGE_APPLY holds nothing to store; the commit index reaches its last entry then.

        Raises:
            OSError: ENOSPC or EDQUOT; nothing of the rest was written, and it may be tried again.
            StorageError: the disk failed; the journal takes nothing more.
        """
        group: list[Payload] = []
        hard, must = self._hard, False
        for message in work:
            if message.type is MessageType.STORAGE_APPLY:
                must = True
                hard = replace(hard, commit=max(hard.commit, message.entries[-1].index))
                continue
            committed = hard.commit
            if message.term or message.vote or message.commit:
                hard = Hard(message.term, message.vote, message.commit)
            if message.snapshot is not None:
                # What this log holds at the snapshot's places may be of no majority: not committed here.
                self._write(group, replace(hard, commit=committed), must=must)
                group = []
                self._install(message.snapshot, hard)
            if message.entries:
                first = message.entries[0].index
                group = [payload for payload in group if payload.index < first]
                group += [_payload(entry) for entry in message.entries]
        self._write(group, hard, must=must)

    def write_snapshot(
        self, position: Position, state: MetadataState, configuration: ConfigurationState
    ) -> None:
        """Replace the snapshot by a newer one. OSError when the disk fails; the old one then stands."""
        packed = snapshots.pack(snapshots.Snapshot(position, state, configuration))
        with self._snapshot_lock:
            # One that was received meanwhile may be newer.
            if position.index > self._snapshot_at.index:
                write_atomically(self._directory.snapshot, *packed)
                self._snapshot_at = position

    def compact(self, index: int) -> Position:
        """Drop the journal's entries up to `index`, which a durable snapshot holds; what it begins behind."""
        at = index - self.journal.base.index
        if at > 0:
            last = self.journal.entries[at - 1]
            self.journal.rewrite(Position(last.index, last.term), self.journal.entries[at:])
        return self.journal.base

    def snapshot_bytes(self) -> bytes:
        """The snapshot's file, as it is sent to others. OSError when it cannot be read."""
        with self._snapshot_lock:
            return self._directory.snapshot.read_bytes()

    # ---- the thread of consensus --------------------------------------------------------------------

    def note(self, work: Sequence[StorageMessage]) -> None:
        """`work` is durable: reads answer with it from now on."""
        for message in work:
            if message.snapshot is not None:
                self._memory.install(msgspec.structs.replace(message.snapshot, data=b""))
            if message.type is not MessageType.STORAGE_APPLY:
                self._memory.append(message.entries)

    def note_snapshot(
        self, position: Position, configuration: ConfigurationState, begins_behind: Position
    ) -> None:
        """A snapshot of this node is durable, and the journal begins behind `begins_behind`."""
        if position.index > self._memory.snapshot_index:
            self._memory.set_snapshot(Snapshot(position.index, position.term, configuration))
        if begins_behind.index >= self._memory.first_index():
            self._memory.compact(begins_behind.index)

    def opened(self, data: bytes) -> snapshots.Snapshot:
        """A snapshot that another node sent. Raises as `snapshot.unpack`."""
        return snapshots.unpack("a received snapshot", data, history=self._history)

    @property
    def wants_compaction(self) -> bool:
        return self.journal.size_bytes > (self._journal_bytes_max or JOURNAL_BYTES_MAX)

    def end_state(self, *, committed: bool = False) -> MetadataState:
        """The state if all entries were committed: for checks of a stopped node, and to find the others.

        `committed`: only those that are known to be. RecordError where an entry is none that this program
        knows.
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
                f"{journal.path} begins behind entry {journal.base.index}, the snapshot ends at "
                f"{begin.position.index}: entries between are missing; restore both from one backup",
                position=0,
            )
        if self._continues(begin.position):
            return
        coming = snapshot_install.marked(self._directory.installing)
        # Before there was a mark, the commit index told that a snapshot was received.
        known = journal.hard is not None and journal.hard.commit >= begin.position.index
        if coming != begin.position and not known:
            raise RecordError(
                f"{journal.path} ends at entry {journal.last.index} of term {journal.last.term}, and has no "
                f"{begin.position.index} of term {begin.position.term}, the snapshot's: its durable end is "
                "lost; restore both from one backup",
                position=0,
            )
        # A received snapshot was installed, and a crash came before the journal began behind it.
        if not read_only:
            journal.rewrite(begin.position, [])

    def _continues(self, position: Position) -> bool:
        """Whether the journal's entries are of the log that a snapshot at `position` is of."""
        return self.journal.term(position.index) == position.term

    def _first_hard(self) -> Hard:
        known, last = self.journal.hard, self.recovered
        if known is None:
            return Hard(last.term, 0, last.index)
        commit = max(min(known.commit, last.index), self.base.index)
        if known.term < last.term:
            # A group was torn behind its entries: this term's vote, if any, was never answered.
            return Hard(last.term, 0, commit)
        return Hard(known.term, known.vote, commit)

    def _fill_memory(self) -> None:
        continues = self._continues(self.base)
        begins = self.journal.base if continues else self.base
        if begins.index:
            self._memory.install(Snapshot(begins.index, begins.term, self.configuration))
        if continues:
            self._memory.append([_entry(payload) for payload in self.journal.entries])
        if self.base.index:
            self._memory.set_snapshot(Snapshot(self.base.index, self.base.term, self.configuration))

    def _write(self, group: Sequence[Payload], hard: Hard, *, must: bool) -> None:
        old, journal = self._hard, self.journal
        promised = (hard.term, hard.vote) != (old.term, old.vote) or journal.hard is None
        lag = 0 if journal.hard is None else hard.commit - journal.hard.commit
        written = hard if promised or (must and lag > 0) or (group and lag >= COMMIT_LAG_MAX) else None
        if group and group[0].index <= journal.last.index:
            at = max(0, group[0].index - journal.base.index - 1)
            group = group[max(0, journal.base.index + 1 - group[0].index) :]
            journal.rewrite(journal.base, [*journal.entries[:at], *group], hard)
        elif group or written is not None:
            journal.append(group, written)
        self._hard = hard

    def _install(self, snapshot: Snapshot, hard: Hard) -> None:
        """A received snapshot in place of the log. A crash at any step leaves the old log or the new one."""
        position = Position(snapshot.index, snapshot.term)
        assert hard.commit >= position.index, f"a snapshot at {position.index}, commit {hard.commit}"
        snapshot_install.mark(self._directory.installing, position)
        with self._snapshot_lock:
            if position.index > self._snapshot_at.index:
                write_atomically(self._directory.snapshot, snapshot.data)
                self._snapshot_at = position
        self.journal.rewrite(position, [], hard)
        self._hard = hard
        snapshot_install.unmark(self._directory.installing)


def metadata_entry(entry: Entry, where: str) -> MetadataEntry:
    """The command of an entry. RecordError when a newer program wrote it."""
    try:
        proposal = decode_proposal(entry.data)
    except msgspec.MsgspecError as error:
        raise RecordError(
            f"{where}: entry {entry.index} is whole, but none that this program knows ({error}); a newer "
            "program wrote it: use that one. Nothing was changed",
            position=entry.index,
        ) from error
    return MetadataEntry(index=Index(entry.index), term=entry.term, proposal=proposal)


def commands(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries that hold a command: neither a change of the configuration nor a term's empty first one."""
    return (entry for entry in entries if entry.type is EntryType.NORMAL and entry.data)


def _payload(entry: Entry) -> Payload:
    kind = records.ENTRY if entry.type is EntryType.NORMAL else records.CHANGE
    # The kind of change travels in front of it: there are two.
    data = entry.data if kind == records.ENTRY else bytes([entry.type]) + entry.data
    return Payload(entry.index, entry.term, data, kind)


def _entry(payload: Payload) -> Entry:
    if payload.kind == records.ENTRY:
        return Entry(payload.term, payload.index, EntryType.NORMAL, payload.data)
    return Entry(payload.term, payload.index, EntryType(payload.data[0]), payload.data[1:])

"""Combine the log of a node: stored entries, then the unstable tail; with commit and applied indexes.

    applied <= applying <= commit <= last index

Entries up to `applying` were handed out; those up to `applied` have taken effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus.errors import CompactedError, LogLostError
from ringfence.control.consensus.messages import Entry, EntryType, Snapshot, size_bytes
from ringfence.control.consensus.options import UNLIMITED
from ringfence.control.consensus.storage import Storage, cut
from ringfence.control.consensus.trace import Level, Trace
from ringfence.control.consensus.unstable import UnstableTail

# Size of one page in a search of committed entries, so that the log need not fit into memory twice.
_SCAN_BYTES: int = 1 << 20


class Log:
    """The log of one node."""

    __slots__ = (
        "_trace",
        "applied",
        "applying",
        "applying_bytes",
        "applying_bytes_max",
        "applying_paused",
        "commit",
        "storage",
        "unstable",
    )

    def __init__(self, storage: Storage, trace: Trace, applying_bytes_max: int = UNLIMITED) -> None:
        self.storage = storage
        self.unstable = UnstableTail(storage.last_index() + 1, trace)
        self._trace = trace
        self.commit = self.applying = self.applied = storage.first_index() - 1
        self.applying_bytes_max = applying_bytes_max
        self.applying_bytes = 0
        self.applying_paused = False

    # Positions

    def first_index(self) -> int:
        snapshot = self.unstable.snapshot
        return snapshot.index + 1 if snapshot is not None else self.storage.first_index()

    def last_index(self) -> int:
        # A tail without entries begins after the last durable entry or snapshot (`check_node`).
        return self.unstable.last_index()

    def last_term(self) -> int:
        term = self.term(self.unstable.last_index())
        assert term is not None, f"the term of the last entry, {self.last_index()}, is unknown"
        return term

    def term(self, index: int) -> int | None:
        """Term of an index in `first_index() - 1 .. last_index()`; None outside."""
        unstable = self.unstable
        if index >= unstable.offset or unstable.snapshot is not None:
            return unstable.term(index)  # a snapshot comes after all of storage
        return self.storage.term(index)

    def matches(self, index: int, term: int) -> bool:
        return self.term(index) == term

    def is_up_to_date(self, index: int, term: int) -> bool:
        """Whether a log that ends there has at least this log's committed entries."""
        own_term = self.last_term()
        return term > own_term or (term == own_term and index >= self.last_index())

    def last_at_or_below_term(self, index: int, term: int) -> tuple[int, int]:
        """(greatest index <= `index` whose term is <= `term`, that term); term 0 if it is not known.

        Terms never fall along the log, so this is a binary search: O(log n) reads of a term.
        """
        low, high = self.first_index() - 1, min(index, self.last_index())
        if index < low or index > high:
            return index, 0
        base_term = self.term(low)
        if base_term is None or base_term > term:
            return max(low - 1, 0), 0
        while low < high:  # invariant: term(low) <= term
            middle = (low + high + 1) // 2
            found = self.term(middle)
            if found is not None and found <= term:
                low = middle
            else:
                high = middle - 1
        return low, self.term(low) or 0

    # Reading

    def entries(self, low: int, high: int, bytes_max: int = UNLIMITED) -> Sequence[Entry]:
        """Entries low .. high - 1, cut at `bytes_max`, but at least one.

        Raises:
            CompactedError: low is compacted.
        """
        if low >= high:
            return []
        first = self.first_index()
        if low < first:
            raise CompactedError(low, first)
        offset = self.unstable.offset
        tail = self.unstable.entries
        assert high <= offset + len(tail), f"entry {high - 1} is not there, the last is {self.last_index()}"
        if low >= offset:
            return cut(tail, low - offset, high - offset, bytes_max)
        durable = self.storage.entries(low, min(high, offset), bytes_max)
        if high <= offset or len(durable) < offset - low:
            return durable
        room = bytes_max - sum(size_bytes(entry) for entry in durable)
        if room < size_bytes(tail[0]):
            return durable
        return [*durable, *cut(tail, 0, high - offset, room)]

    def snapshot(self) -> Snapshot | None:
        """The snapshot for a node that needs compacted entries; None if it is not ready."""
        return self.unstable.snapshot if self.unstable.snapshot is not None else self.storage.snapshot()

    def has_unapplied_change(self) -> bool:
        """Whether a change of the configuration is committed and has not taken effect here."""
        low = self.applied + 1
        if self.unstable.snapshot is not None:
            low = max(low, self.first_index())
        return self._has_change(low, self.commit)

    def has_uncommitted_change(self) -> bool:
        """Whether the log has a change of the configuration that is not known to be committed."""
        return self._has_change(self.commit + 1, self.last_index())

    def _has_change(self, low: int, last: int) -> bool:
        while low <= last:
            page = self.entries(low, last + 1, _SCAN_BYTES)
            if any(entry.type is not EntryType.NORMAL for entry in page):
                return True
            low += len(page)
        return False

    # Writing

    def append(self, entries: Sequence[Entry]) -> int:
        """Append entries after the matching ones; return the last index."""
        if entries:
            assert entries[0].index > self.commit, (
                f"entry {entries[0].index} would replace a committed one, {self.commit} are committed"
            )
            self.unstable.append(entries)
        return self.last_index()

    def maybe_append(self, index: int, term: int, entries: Sequence[Entry], commit: int) -> int | None:
        """Append a leader's entries after (index, term).

        Returns the last new index, or None if the log has no such entry.
        """
        if not self.matches(index, term):
            return None
        last_new = index + len(entries)
        fresh = self._first_that_differs(entries)
        if fresh < len(entries):
            self.append(entries[fresh:])
        self.commit_to(min(commit, last_new))
        return last_new

    def _first_that_differs(self, entries: Sequence[Entry]) -> int:
        last = self.last_index()
        for at, entry in enumerate(entries):
            if entry.index > last:
                return at
            own = self.term(entry.index)
            if own != entry.term:
                self._trace(
                    Level.INFO,
                    f"found conflict at index {entry.index} [existing term: {own or 0}, conflicting term: "
                    f"{entry.term}]",
                )
                return at
        return len(entries)

    def restore(self, snapshot: Snapshot) -> None:
        unstable = self.unstable
        self._trace(
            Level.INFO,
            f"log [committed={self.commit}, applied={self.applied}, applying={self.applying}, "
            f"unstable.offset={unstable.offset}, unstable.offsetInProgress={unstable.handed}, "
            f"len(unstable.Entries)={len(unstable.entries)}] starts to restore snapshot "
            f"[index: {snapshot.index}, term: {snapshot.term}]",
        )
        self.commit = snapshot.index
        unstable.restore(snapshot)

    # Committing and applying

    def commit_to(self, commit: int) -> None:
        """Raise the commit index; it never falls.

        Raises:
            LogLostError: the log does not reach so far.
        """
        if commit > self.commit:
            if commit > self.last_index():
                raise LogLostError(commit, self.last_index())
            self.commit = commit

    def maybe_commit(self, index: int, term: int) -> bool:
        """Commit up to `index` if its entry is of `term`; True if the commit index rose.

        Only an entry of the current term may be committed by counting (Raft paper, 5.4.2).
        """
        if index > self.commit and self.term(index) == term:
            self.commit = index
            return True
        return False

    def appliable_index(self, *, unstable: bool) -> int:
        """The last index that may be handed out; without `unstable` only what is durable."""
        return self.commit if unstable else min(self.commit, self.unstable.offset - 1)

    def has_next_committed(self, *, unstable: bool) -> bool:
        if self.applying_paused or self.unstable.snapshot is not None:
            return False
        return self.applying < self.appliable_index(unstable=unstable)

    def next_committed(self, *, unstable: bool) -> Sequence[Entry]:
        """The entries to apply next, within the limit on bytes that are being applied."""
        if not self.has_next_committed(unstable=unstable):
            return []
        room = self.applying_bytes_max - self.applying_bytes
        assert room > 0, (
            f"{self.applying_bytes} bytes are being applied, {self.applying_bytes_max} is the limit"
        )
        return self.entries(self.applying + 1, self.appliable_index(unstable=unstable) + 1, room)

    def start_applying(self, index: int, bytes_count: int, *, unstable: bool) -> None:
        """Note that entries up to `index` were handed out."""
        assert self.applying <= index <= self.commit, (self.applying, index, self.commit)
        self.applying = index
        self.applying_bytes += bytes_count
        self.applying_paused = self.applying_bytes >= self.applying_bytes_max or index < self.appliable_index(
            unstable=unstable
        )

    def applied_to(self, index: int, bytes_count: int) -> None:
        """Note that entries up to `index`, of `bytes_count` bytes, have taken effect."""
        assert self.applied <= index <= self.commit, (
            f"applied {index} is outside of {self.applied}..{self.commit}"
        )
        self.applied = index
        self.applying = max(self.applying, index)
        self.applying_bytes = max(self.applying_bytes - bytes_count, 0)
        self.applying_paused = self.applying_bytes >= self.applying_bytes_max

"""The tail of the log that is not yet known to be durable: entries, and perhaps a snapshot before them.

    offset            handed                 end
      | being written   | not handed out yet  |

Entries stay here until storage confirms them by index *and term*: a confirmation of entries that were
replaced meanwhile must not confirm their successors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus.messages import Entry, Snapshot
from ringfence.control.consensus.trace import Level, Trace


class UnstableTail:
    """See the top of the file.

    `offset` is the index of `entries[0]`, or of the next entry if there is none.
    """

    __slots__ = ("_trace", "entries", "handed", "offset", "snapshot", "snapshot_handed")

    def __init__(self, offset: int, trace: Trace) -> None:
        self.entries: list[Entry] = []
        self.offset = self.handed = offset
        self.snapshot: Snapshot | None = None
        self.snapshot_handed = False
        self._trace = trace

    def last_index(self) -> int | None:
        """None if storage has the last index."""
        if self.entries:
            return self.offset + len(self.entries) - 1
        return self.snapshot.index if self.snapshot is not None else None

    def term(self, index: int) -> int | None:
        """None if storage may know it."""
        at = index - self.offset
        if 0 <= at < len(self.entries):
            return self.entries[at].term
        if self.snapshot is not None and index == self.snapshot.index:
            return self.snapshot.term
        return None

    def not_handed(self) -> list[Entry]:
        return self.entries[self.handed - self.offset :]

    def hand_out(self) -> None:
        """All that is here is being written."""
        self.handed = self.offset + len(self.entries)
        self.snapshot_handed = self.snapshot is not None

    def append(self, entries: Sequence[Entry]) -> None:
        """Put entries at the end, or in place of those from their first index on."""
        first = entries[0].index
        if first == self.offset + len(self.entries):
            self.entries.extend(entries)
        elif first <= self.offset:
            self._trace(Level.INFO, f"replace the unstable entries from index {first}")
            self.entries = list(entries)
            self.offset = self.handed = first
        else:
            self._trace(Level.INFO, f"truncate the unstable entries before index {first}")
            del self.entries[first - self.offset :]
            self.entries.extend(entries)
            self.handed = min(self.handed, first)

    def restore(self, snapshot: Snapshot) -> None:
        """A snapshot takes the place of everything."""
        self.entries = []
        self.offset = self.handed = snapshot.index + 1
        self.snapshot, self.snapshot_handed = snapshot, False

    def confirm(self, index: int, term: int) -> None:
        """Entries up to `index`, the last of `term`, are durable."""
        own = self.term(index)
        if own is None:
            self._trace(Level.INFO, f"entry at index {index} missing from unstable log; ignoring")
        elif index < self.offset:
            self._trace(Level.INFO, f"entry at index {index} matched unstable snapshot; ignoring")
        elif own != term:
            self._trace(
                Level.INFO,
                f"entry at (index,term)=({index},{term}) mismatched with entry at ({index},{own}) in "
                "unstable "
                "log; ignoring",
            )
        else:
            del self.entries[: index + 1 - self.offset]
            self.offset = index + 1
            self.handed = max(self.handed, self.offset)

    def confirm_snapshot(self, index: int) -> None:
        """The snapshot at `index` is durable."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot, self.snapshot_handed = None, False

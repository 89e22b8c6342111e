"""Hold the tail of the log that is not known to be durable: entries, and possibly a snapshot before them.

    offset            handed                 end
      | being written   | not handed out yet  |

Entries stay here until storage confirms them by index *and term*: a confirmation of replaced entries must not
confirm their successors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus.messages import Entry, Snapshot
from ringfence.control.consensus.trace import Level, Trace


class UnstableTail:
    """The unstable tail of one node's log.

    `offset` is the index of `entries[0]`, or of the next entry if there is none.
    """

    __slots__ = ("_trace", "entries", "handed", "offset", "snapshot", "snapshot_handed")

    def __init__(self, offset: int, trace: Trace) -> None:
        self.entries: list[Entry] = []
        self.offset = self.handed = offset
        self.snapshot: Snapshot | None = None
        self.snapshot_handed = False
        self._trace = trace

    def last_index(self) -> int:
        """The last index of the tail; without entries that of the snapshot, or of storage."""
        return self.offset + len(self.entries) - 1

    def term(self, index: int) -> int | None:
        """The term of an index in the tail; None outside."""
        at = index - self.offset
        if 0 <= at < len(self.entries):
            return self.entries[at].term
        if self.snapshot is not None and index == self.snapshot.index:
            return self.snapshot.term
        return None

    def not_handed(self) -> list[Entry]:
        return self.entries[self.handed - self.offset :]

    def hand_out(self) -> None:
        """Note that the whole tail is being written."""
        self.handed = self.offset + len(self.entries)
        self.snapshot_handed = self.snapshot is not None

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries, or replace those from the first new index on."""
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
        """Replace the whole tail by a snapshot."""
        self.entries = []
        self.offset = self.handed = snapshot.index + 1
        self.snapshot, self.snapshot_handed = snapshot, False

    def confirm(self, index: int, term: int) -> None:
        """Note that entries up to `index`, the last of `term`, are durable."""
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
        """Note that the snapshot at `index` is durable."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot, self.snapshot_handed = None, False

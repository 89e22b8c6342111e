"""Define the node's read access to its durable log, with an implementation in memory.

The node only reads. The driver writes, in the order of the Readys or storage messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ringfence.control.consensus.errors import CompactedError, ConsensusError
from ringfence.control.consensus.messages import ConfigurationState, Entry, HardState, Snapshot, size_bytes
from ringfence.control.consensus.options import UNLIMITED


class Storage(Protocol):
    """The durable log. All calls answer from memory, because a step makes them.

    The driver compacts only entries that the application has applied and a snapshot includes.

    The log was compacted up to `first_index() - 1`; the term of that index is still known.
    """

    def initial_state(self) -> tuple[HardState, ConfigurationState]:
        """Hard state, and the configuration as of the last *applied* entry or snapshot.

        Read once, at start.
        """

    def first_index(self) -> int:
        """Index of the first entry; of the next one if there is none."""

    def last_index(self) -> int:
        """Index of the last entry; `first_index() - 1` if there is none."""

    def term(self, index: int) -> int | None:
        """Term of an index in `first_index() - 1 .. last_index()`; None outside."""

    def entries(self, low: int, high: int, bytes_max: int) -> Sequence[Entry]:
        """Entries low .. high - 1, cut where their `size_bytes` exceed `bytes_max`, but at least one.

        Raises:
            CompactedError: low is below `first_index()`.
        """

    def snapshot(self) -> Snapshot | None:
        """A snapshot at or above `first_index() - 1`; None while one is being made: call again later.

        The snapshot need not be the newest, but a node that was added later cannot use it: see
        `Node.wants_snapshot`.
        """


def cut(entries: Sequence[Entry], start: int, stop: int, bytes_max: int) -> Sequence[Entry]:
    """entries[start:stop], cut where they exceed `bytes_max` bytes, but at least one if there is one.

    Reads at most one entry more than it returns, so that the beginning of a long tail is cheap to send.
    """
    if bytes_max < UNLIMITED:
        total = 0
        for at in range(start, stop):
            total += size_bytes(entries[at])
            if total > bytes_max:
                stop = max(at, start + 1)
                break
    return entries[start:stop]


class MemoryStorage:
    """A log in memory, for tests, simulators and as a cache in front of a journal. Not thread-safe."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.configuration = ConfigurationState()
        self._snapshot = Snapshot()
        self._base = (0, 0)  # Index and term of the position before the first entry.
        self._entries: list[Entry] = []

    def initial_state(self) -> tuple[HardState, ConfigurationState]:
        return self.hard_state, self.configuration

    def first_index(self) -> int:
        return self._base[0] + 1

    def last_index(self) -> int:
        return self._base[0] + len(self._entries)

    def term(self, index: int) -> int | None:
        base, term = self._base
        if base < index <= base + len(self._entries):
            return self._entries[index - base - 1].term
        return term if index == base else None

    def entries(self, low: int, high: int, bytes_max: int) -> Sequence[Entry]:
        base = self._base[0]
        if low <= base:
            raise CompactedError(low, base + 1)
        assert high <= self.last_index() + 1, (
            f"entry {high - 1} is not there, the last is {self.last_index()}"
        )
        return cut(self._entries, low - base - 1, high - base - 1, bytes_max)

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    @property
    def snapshot_index(self) -> int:
        return self._snapshot.index

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Set a newer snapshot for sending; the log does not change."""
        assert snapshot.index >= self._snapshot.index, (
            f"{snapshot.index} is older than {self._snapshot.index}"
        )
        self._snapshot = snapshot

    def install(self, snapshot: Snapshot) -> None:
        """Replace the log by a received snapshot.

        Raises:
            ConsensusError: it is not newer than the present one.
        """
        if self._snapshot.index >= snapshot.index > 0:
            raise ConsensusError("requested index is older than the existing snapshot")
        self._snapshot = snapshot
        self.configuration = snapshot.configuration
        self._base = (snapshot.index, snapshot.term)
        self._entries = []

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries; they replace existing ones from the first new index on."""
        base = self._base[0]
        entries = entries[max(0, base + 1 - entries[0].index) :] if entries else entries
        if not entries:
            return
        at = entries[0].index - base - 1
        assert at <= len(self._entries), f"entry {entries[0].index} does not follow {self.last_index()}"
        del self._entries[at:]
        self._entries.extend(entries)

    def compact(self, index: int) -> None:
        """Drop the entries up to `index`; the term of `index` stays known.

        Raises:
            ConsensusError: `index` is compacted already.
        """
        base = self._base[0]
        if index <= base:
            raise ConsensusError("requested index is unavailable due to compaction")
        term = self.term(index)
        assert term is not None, f"entry {index} is not there, the last is {self.last_index()}"
        del self._entries[: index - base]
        self._base = (index, term)

"""Journal and snapshot together: the durable metadata log of one node, and the state that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ringfence.control.machines.metadata import apply
from ringfence.control.model.entries import Entry, decode_proposal, encode_proposal
from ringfence.control.model.ids import Index
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.store import snapshot as snapshots
from ringfence.control.store.directory import DataDirectory
from ringfence.control.store.journal import START, Journal, Payload, Position
from ringfence.control.store.snapshot import Snapshot
from ringfence.native.errors import RecordError

JOURNAL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Compaction begins here: replaying 8 MiB of commands takes about a second."""


class MetadataStore:
    """The metadata log in a data directory. `state` is the state after `recovered`."""

    def __init__(self, directory: DataDirectory, *, read_only: bool = False) -> None:
        """Recover; `read_only` leaves a torn group where it is, and takes no entries.

        Raises RecordError, NewerFormatError, StoreIdentityError as journal and snapshot do.
        """
        self._directory = directory
        history = directory.identity.history
        self.journal = Journal(directory.journal, history=history, read_only=read_only)
        begin = Snapshot(START, EMPTY)
        if directory.snapshot.exists():
            begin = snapshots.read(directory.snapshot, history=history)
        if self.journal.base.index > begin.position.index:
            raise RecordError(
                f"{directory.journal} begins behind entry {self.journal.base.index}, the snapshot ends at "
                f"{begin.position.index}: entries between are missing; restore both from one backup",
                position=0,
            )
        if self.journal.last < begin.position:
            raise RecordError(
                f"{directory.journal} ends at entry {self.journal.last.index}, before the snapshot's "
                f"{begin.position.index}: its durable end is lost; restore both from one backup",
                position=0,
            )
        self.recovered = self.journal.last
        self.state = self._replayed(begin)

    def append(self, entries: Sequence[Entry]) -> None:
        """Make entries durable. Raises as `Journal.append`."""
        self.journal.append(
            [Payload(entry.index, entry.term, encode_proposal(entry.proposal)) for entry in entries]
        )

    def compact(self, position: Position, state: MetadataState) -> None:
        """Snapshot `state` at `position`, then drop the entries up to it.

        A crash in between is harmless: entries that the snapshot holds already are skipped on opening.
        """
        snapshots.write(self._directory.snapshot, Snapshot(position, state))
        later = [entry for entry in self.journal.entries if entry.index > position.index]
        self.journal.rewrite(position, later)

    @property
    def wants_compaction(self) -> bool:
        return self.journal.size_bytes > JOURNAL_BYTES_MAX

    def close(self) -> None:
        self.journal.close()

    def _replayed(self, begin: Snapshot) -> MetadataState:
        state = begin.state
        for payload in self.journal.entries:
            if payload.index > begin.position.index:
                state, _ = apply(state, self._entry(payload))
        return state

    def _entry(self, payload: Payload) -> Entry:
        try:
            proposal = decode_proposal(payload.data)
        except msgspec.MsgspecError as error:
            raise RecordError(
                f"{self.journal.path}: entry {payload.index} is whole, but none that this program knows "
                f"({error}); "
                "a newer program wrote it: use that one. Nothing was changed",
                position=payload.index,
            ) from error
        return Entry(index=Index(payload.index), term=payload.term, proposal=proposal)

"""The append-only journal of metadata entries: durable before anything that depends on them is said.

A group of entries is written and synced at once, then followed by a seal (see `records`). On opening:

- an unreadable rest that no later record proves to have been durable is a torn group. It was never answered:
  cut it, say so.
- an unreadable place *before* durable records is damage. Refuse to start, change nothing, name the position.

A group may end with a record of the hard state of consensus: what it promises is as durable as its entries.

A failed sync is never tried again: the kernel may have marked the pages clean. The journal then refuses
everything. What such a sync did not write stays readable until the power goes, so a start writes everything
behind the last seal once more, and that seal, before it believes in it; and it syncs the folder, for the file
may be a new one whose name is not on the disk yet.
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringfence.control.store import records
from ringfence.control.store.files import sync_directory, write_all, write_atomically
from ringfence.native._node import crc32c
from ringfence.native.errors import (
    NewerFormatError,
    RecordError,
    RingfenceError,
    StorageError,
    StoreIdentityError,
)

JOURNAL_FORMAT: Final = 2
"""2 added to 1: hard states and changes of the configuration. A journal of format 1 opens, and is written
anew as one of format 2 with the first group."""
_MAGIC: Final = b"RFJL"
_HEAD: Final = struct.Struct("<4sHH16s16sQQ4xI")
_HEAD_BYTES: Final = _HEAD.size
_HARD: Final = struct.Struct("<QQQ")
_SEAL_BYTES: Final = records.HEAD_BYTES
_ENTRIES: Final = frozenset({records.ENTRY, records.CHANGE})


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the log. Entries begin at index 1."""

    index: int
    term: int


START: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Payload:
    """An entry as the journal sees it."""

    index: int
    term: int
    data: bytes
    kind: int = records.ENTRY


@dataclass(frozen=True, slots=True)
class Hard:
    """What consensus promised: `vote` is 0 while nobody got this term's vote. A lost `commit` is harmless."""

    term: int
    vote: int
    commit: int


class Journal:
    """One journal file, open for appending. Not thread-safe: one caller at a time."""

    def __init__(self, path: Path, *, history: bytes, read_only: bool = False) -> None:
        """Open `path`; `entries` holds what it has, `cut_bytes` how much of a torn group was cut.

        `hard` is the last hard state, None in a journal that consensus never wrote.

        Raises:
            RecordError: it is damaged; it was left as it is.
            NewerFormatError: a newer program wrote it.
            StoreIdentityError: it is of another history.
            StorageError: the disk failed.
        """
        self.path, self.history = path, history
        self.failed: str | None = f"{path} is open for reading only" if read_only else None
        self._descriptor = -1
        data = path.read_bytes()
        self._nonce, self.base, self.format = _unpack_head(path, data, history)
        self.cut_bytes = len(data)
        data, self.entries, self.hard, proven, end = _scan(path, data, self._nonce, self.base)
        self.cut_bytes -= end
        self._end = end
        if read_only:
            return
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._make_durable(data[proven:end])
        except OSError as error:
            os.close(self._descriptor)
            raise StorageError(f"{path}: {error}; check the disk, then start again") from error

    @staticmethod
    def create(
        path: Path,
        *,
        history: bytes,
        base: Position = START,
        entries: Sequence[Payload] = (),
        hard: Hard | None = None,
    ) -> None:
        """Write a journal that begins behind `base`, in place of whatever `path` names."""
        nonce = secrets.token_bytes(16)
        parts = [_pack_head(nonce, history, base)]
        parts += [_pack_entry(nonce, entry, synced=base.index) for entry in entries]
        last = Position(entries[-1].index, entries[-1].term) if entries else base
        if hard is not None:
            parts.append(_pack_hard(nonce, hard, last, synced=base.index))
        parts.append(_pack_seal(nonce, last))
        write_atomically(path, *parts)

    @property
    def last(self) -> Position:
        return Position(self.entries[-1].index, self.entries[-1].term) if self.entries else self.base

    def term(self, index: int) -> int | None:
        """Of the entry at `index`, or of the place that the journal begins behind; None if it has neither."""
        if index == self.base.index:
            return self.base.term
        at = index - self.base.index - 1
        return self.entries[at].term if 0 <= at < len(self.entries) else None

    @property
    def size_bytes(self) -> int:
        return self._end

    def append(self, entries: Sequence[Payload], hard: Hard | None = None) -> None:
        """Write and sync a group. When this returns it is durable; when it raises it is gone.

        Raises:
            OSError: ENOSPC or EDQUOT; the file is as before and may be tried again.
            StorageError: the disk failed; the journal takes nothing more.
        """
        self._check_alive()
        if not entries and hard is None:
            return
        if self.format < JOURNAL_FORMAT:
            self.rewrite(self.base, self.entries)
        last = self.last
        for entry in entries:
            assert entry.index == last.index + 1, f"entry {entry.index} does not follow {last.index}"
            assert entry.term >= last.term, f"entry {entry.index}: term {entry.term} is below {last.term}"
            last = Position(entry.index, entry.term)
        group = b"".join(_pack_entry(self._nonce, entry, synced=self.last.index) for entry in entries)
        if hard is not None:
            group += _pack_hard(self._nonce, hard, last, synced=self.last.index)
        try:
            write_all(self._descriptor, group)
        except OSError as error:
            self._undo(error)
            raise
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._fail("sync", error) from error
        self._end += len(group)
        self.entries.extend(entries)
        self.hard = self.hard if hard is None else hard
        self._seal()

    def truncate_after(self, index: int) -> None:
        """Remove the entries behind `index`, durably: what consensus found to be of no majority."""
        self._check_alive()
        kept = [entry for entry in self.entries if entry.index <= index]
        self.rewrite(self.base, kept)

    def rewrite(self, base: Position, entries: Sequence[Payload], hard: Hard | None = None) -> None:
        """Replace the file by one that begins behind `base`. A crash leaves the old one or the new one.

        Without `hard` the hard state stays. Raises as `append`.
        """
        self._check_alive()
        kept = self.hard if hard is None else hard
        try:
            Journal.create(self.path, history=self.history, base=base, entries=entries, hard=kept)
        except OSError as error:
            # Up to the rename the old file stands, and a full disk may have room later.
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise self._fail("rewriting", error) from error
        try:
            fresh = Journal(self.path, history=self.history)
        except (OSError, RingfenceError) as error:
            # The name is the new file's already: nothing may go into the old one, which is open till `close`.
            raise self._fail("rewriting", error) from error
        os.close(self._descriptor)
        self._nonce, self.base, self.entries = fresh._nonce, fresh.base, fresh.entries
        self.format, self.hard = fresh.format, fresh.hard
        self._descriptor, self._end = fresh._descriptor, fresh._end

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _make_durable(self, doubtful: bytes) -> None:
        """What was read may only be in the page cache: put it on the disk, for good."""
        if self.cut_bytes:
            os.ftruncate(self._descriptor, self._end)
        os.lseek(self._descriptor, self._end - len(doubtful), os.SEEK_SET)
        write_all(self._descriptor, doubtful)
        os.fsync(self._descriptor)
        sync_directory(self.path.parent)

    def _seal(self) -> None:
        # Not synced: it only has to be there when damage is judged later, and a lost one loses nothing. The
        # next group may arrive on the disk without it: then a start puts it back (`_lost_seal`).
        seal = _pack_seal(self._nonce, self.last)
        try:
            write_all(self._descriptor, seal)
        except OSError as error:
            self._undo(error)
            return
        self._end += len(seal)

    def _undo(self, cause: OSError) -> None:
        """Take back a partial write, so that the next group begins where the durable ones end."""
        try:
            os.ftruncate(self._descriptor, self._end)
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
        except OSError as error:
            raise self._fail("truncation", error) from cause
        if cause.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise self._fail("write", cause) from cause

    def _fail(self, step: str, error: OSError | RingfenceError) -> StorageError:
        self.failed = f"{step} of {self.path} failed: {error}"
        return StorageError(
            f"{self.failed}; the journal takes nothing more: check the disk, then start again"
        )

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise StorageError(
                f"{self.failed}; the journal takes nothing more: check the disk, then start again"
            )


def remove_leftover(path: Path) -> None:
    """Remove a file that a crash left half written before its rename: it never was the journal."""
    leftover = path.with_name(path.name + ".new")
    if leftover.exists():
        leftover.unlink()
        sync_directory(path.parent)


def _pack_head(nonce: bytes, history: bytes, base: Position) -> bytes:
    head = _HEAD.pack(_MAGIC, JOURNAL_FORMAT, 0, nonce, history, base.index, base.term, 0)
    return head[:-4] + crc32c(head[:-4]).to_bytes(4, "little")


def _pack_entry(nonce: bytes, entry: Payload, *, synced: int) -> bytes:
    return records.pack(
        nonce=nonce, kind=entry.kind, term=entry.term, index=entry.index, synced=synced, payload=entry.data
    )


def _pack_hard(nonce: bytes, hard: Hard, last: Position, *, synced: int) -> bytes:
    return records.pack(
        nonce=nonce,
        kind=records.HARD,
        term=last.term,
        index=last.index,
        synced=synced,
        payload=_HARD.pack(hard.term, hard.vote, hard.commit),
    )


def _pack_seal(nonce: bytes, last: Position) -> bytes:
    return records.pack(
        nonce=nonce, kind=records.SEAL, term=last.term, index=last.index, synced=last.index, payload=b""
    )


def _unpack_head(path: Path, data: bytes, history: bytes) -> tuple[bytes, Position, int]:
    if len(data) < _HEAD_BYTES or data[:4] != _MAGIC:
        raise RecordError(f"{path} is no journal; restore it from a backup", position=0)
    _, version, zero, nonce, found, index, term, crc = _HEAD.unpack_from(data)
    # Every format keeps the head's length and the place of its CRC: a flipped bit is no newer program.
    if crc != crc32c(data[: _HEAD_BYTES - 4]) or version < 1:
        raise RecordError(f"the head of {path} is damaged; restore it from a backup", position=0)
    if version > JOURNAL_FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}, this program knows up to {JOURNAL_FORMAT}; use a newer one"
        )
    if zero:
        raise RecordError(f"the head of {path} is damaged; restore it from a backup", position=0)
    if found != history:
        raise StoreIdentityError(
            f"{path} is of history {found.hex()}, the data directory of {history.hex()}; put the right one "
            "back"
        )
    return nonce, Position(index, term), version


def _scan(
    path: Path, data: bytes, nonce: bytes, base: Position
) -> tuple[bytes, list[Payload], Hard | None, int, int]:
    """The bytes with a lost seal put back, entries, hard state, where the last seal begins, where what can be
    read ends.

    RecordError where durable bytes cannot be read.
    """
    entries: list[Payload] = []
    hard: Hard | None = None
    position, last = _HEAD_BYTES, base
    proven = position
    while position < len(data):
        record = records.unpack(data, position, nonce)
        if isinstance(record, str):
            proof = _proof_of_damage(data, position, nonce, last.index + 1)
            if proof is None and (seal := _lost_seal(data, position, nonce, last)):
                data = data[:position] + seal + data[position + len(seal) :]
                continue
            if proof is None:
                break
            raise RecordError(
                f"{path}: entry {last.index + 1} is damaged ({record}), while position {proof} proves that "
                "it was "
                "durable; restore the file from a backup or a replica. Nothing was changed",
                position=position,
            )
        expected = last.index + (record.kind in _ENTRIES)
        if record.index != expected or record.term < last.term:
            raise RecordError(
                f"{path}: index {record.index} stands where {expected} must be", position=position
            )
        last = Position(record.index, record.term)
        if record.kind in _ENTRIES:
            entries.append(Payload(record.index, record.term, record.payload, record.kind))
        elif record.kind == records.HARD:
            hard = Hard(*_HARD.unpack(record.payload))
        else:
            proven = position
        position = record.end
    return data, entries, hard, proven, position


def _lost_seal(data: bytes, position: int, nonce: bytes, last: Position) -> bytes:
    """The seal that stood at `position`, empty if none did: of what stands there nothing else would be lost.

    A power cut may take a seal, which is not synced, and leave records of the group that was being written
    behind it. Right behind a seal stands a record that knows it: an entry or a hard state, written when all
    up to `last` was durable.
    """
    record = records.unpack(data, position + _SEAL_BYTES, nonce)
    if isinstance(record, str) or record.synced != last.index or record.kind == records.SEAL:
        return b""
    is_next = record.index == last.index + (record.kind in _ENTRIES)
    return _pack_seal(nonce, last) if is_next and record.term >= last.term else b""


def _proof_of_damage(data: bytes, position: int, nonce: bytes, expected: int) -> int | None:
    """The position of a later record that shows that `position` had been durable; None if none does.

    A seal does, always: it was written when all before it was synced. So does the entry that comes next, for
    it is of a later group; unless all that is missing is the seal between the two, which is never synced.
    """
    at = data.find(records.MAGIC, position + 1)
    while at >= 0:
        record = records.unpack(data, at, nonce)
        if not isinstance(record, str) and (
            record.kind == records.SEAL
            or record.synced >= expected
            or (record.kind in _ENTRIES and record.index == expected and at != position + _SEAL_BYTES)
        ):
            return at
        at = data.find(records.MAGIC, at + 1)
    return None

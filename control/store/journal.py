"""Append metadata entries to the journal, durably, before any message that depends on them is sent.

A group of entries is written and synced together; a seal follows (see `records`). On opening:

- an unreadable tail that no later record proves to have been durable is a torn group. No entry of it was
  acknowledged: cut the tail and report it.
- an unreadable place *before* durable records is damage. Refuse to start, change nothing, name the position.

A group may end with a record of consensus' hard state, which is then as durable as the entries.

A failed sync is never retried: the kernel may have marked the pages clean. The journal then refuses all
further writes. The bytes of such a sync stay readable until the power fails. A start therefore writes the
last seal and all bytes after it again before it trusts them. It also syncs the folder, because the name of a
new file may not be on the disk yet.
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

# Format 2 added hard states and changes of the configuration. A journal of format 1 can be opened; the first
# group rewrites it in format 2.
JOURNAL_FORMAT: Final = 2
_MAGIC: Final = b"RFJL"
_HEAD: Final = struct.Struct("<4sHH16s16sQQ4xI")
_HEAD_BYTES: Final = _HEAD.size
_HARD: Final = struct.Struct("<QQQ")
_SEAL_BYTES: Final = records.HEAD_BYTES
_ENTRIES: Final = frozenset({records.ENTRY, records.CHANGE})


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """Index and term of an entry. Entries begin at index 1."""

    index: int
    term: int


START: Final = LogPosition(0, 0)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry with its encoded content."""

    index: int
    term: int
    data: bytes
    kind: int = records.ENTRY


@dataclass(frozen=True, slots=True)
class HardRecord:
    """The hard state of consensus. `vote` is 0 without a vote in this term. A lost `commit` is harmless."""

    term: int
    vote: int
    commit: int


class Journal:
    """One journal file, open for appending. Not thread-safe: one caller at a time."""

    def __init__(self, path: Path, *, history: bytes, read_only: bool = False) -> None:
        """Open `path`, read `entries`, and cut a torn group of `cut_bytes`.

        `hard` is the last hard state; None in a journal of a program before consensus.

        Raises:
            RecordError: the file is damaged; it was not changed.
            NewerFormatError: a newer program wrote the file.
            StoreIdentityError: the file is of another history.
            StorageError: the disk failed.
        """
        self.path, self.history = path, history
        self.failed: str | None = f"{path} is open for reading only" if read_only else None
        self._descriptor = -1
        data = path.read_bytes()
        self._nonce, self.base, self.format = _unpack_head(path, data, history)
        self.cut_bytes = len(data)
        data, self.entries, self.hard, seal_at, end = _scan(path, data, self._nonce, self.base)
        self.cut_bytes -= end
        self._end = end
        if read_only:
            return
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._make_durable(data[seal_at:end])
        except OSError as error:
            os.close(self._descriptor)
            raise StorageError(f"{path}: {error}; check the disk, then start again") from error

    @staticmethod
    def create(
        path: Path,
        *,
        history: bytes,
        base: LogPosition = START,
        entries: Sequence[JournalEntry] = (),
        hard: HardRecord | None = None,
    ) -> None:
        """Write a journal that begins after `base`, and replace the file at `path`, if any."""
        nonce = secrets.token_bytes(16)
        parts = [_pack_head(nonce, history, base)]
        parts += [_pack_entry(nonce, entry, synced=base.index) for entry in entries]
        last = LogPosition(entries[-1].index, entries[-1].term) if entries else base
        if hard is not None:
            parts.append(_pack_hard(nonce, hard, last, synced=base.index))
        parts.append(_pack_seal(nonce, last))
        write_atomically(path, *parts)

    @property
    def last(self) -> LogPosition:
        return LogPosition(self.entries[-1].index, self.entries[-1].term) if self.entries else self.base

    def term(self, index: int) -> int | None:
        """The term of the entry at `index`, or of `base`; None if the journal has neither."""
        if index == self.base.index:
            return self.base.term
        offset = index - self.base.index - 1
        return self.entries[offset].term if 0 <= offset < len(self.entries) else None

    @property
    def size_bytes(self) -> int:
        return self._end

    def append(self, entries: Sequence[JournalEntry], hard: HardRecord | None = None) -> None:
        """Write and sync a group. After the return it is durable; after an error it is not in the journal.

        Raises:
            OSError: ENOSPC or EDQUOT; the file is unchanged, and the caller may retry.
            StorageError: the disk failed; the journal refuses all further writes.
        """
        self._check_writable()
        if not entries and hard is None:
            return
        if self.format < JOURNAL_FORMAT:
            self.rewrite(self.base, self.entries)
        last = self.last
        for entry in entries:
            assert entry.index == last.index + 1, f"entry {entry.index} does not follow {last.index}"
            assert entry.term >= last.term, f"entry {entry.index}: term {entry.term} is below {last.term}"
            last = LogPosition(entry.index, entry.term)
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
        """Remove the entries after `index`, durably: a leader of a later term has replaced them."""
        self._check_writable()
        remaining = [entry for entry in self.entries if entry.index <= index]
        self.rewrite(self.base, remaining)

    def rewrite(
        self, base: LogPosition, entries: Sequence[JournalEntry], hard: HardRecord | None = None
    ) -> None:
        """Replace the file by one that begins after `base`. A crash leaves the old one or the new one.

        Without `hard` the hard state stays. Raises as `append`.
        """
        self._check_writable()
        new_hard = self.hard if hard is None else hard
        try:
            Journal.create(self.path, history=self.history, base=base, entries=entries, hard=new_hard)
        except OSError as error:
            # The old file stays until the rename, and a full disk may have space later.
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise self._fail("rewriting", error) from error
        try:
            replacement = Journal(self.path, history=self.history)
        except (OSError, RingfenceError) as error:
            # The path names the new file already. The old one, open until `close`, must get no more entries.
            raise self._fail("rewriting", error) from error
        os.close(self._descriptor)
        self._nonce, self.base, self.entries = replacement._nonce, replacement.base, replacement.entries
        self.format, self.hard = replacement.format, replacement.hard
        self._descriptor, self._end = replacement._descriptor, replacement._end

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _make_durable(self, tail: bytes) -> None:
        """Write the tail again and sync it: its bytes may have been in the page cache only."""
        if self.cut_bytes:
            os.ftruncate(self._descriptor, self._end)
        os.lseek(self._descriptor, self._end - len(tail), os.SEEK_SET)
        write_all(self._descriptor, tail)
        os.fsync(self._descriptor)
        sync_directory(self.path.parent)

    def _seal(self) -> None:
        # The seal needs no sync: it only helps to detect damage later. If the next group reaches the disk
        # without the seal, a start restores it (`_lost_seal`).
        seal = _pack_seal(self._nonce, self.last)
        try:
            write_all(self._descriptor, seal)
        except OSError as error:
            self._undo(error)
            return
        self._end += len(seal)

    def _undo(self, cause: OSError) -> None:
        """Remove a partial write, so that the next group begins at the end of the durable ones."""
        try:
            os.ftruncate(self._descriptor, self._end)
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
        except OSError as error:
            raise self._fail("truncation", error) from cause
        if cause.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise self._fail("write", cause) from cause

    def _fail(self, step: str, error: OSError | RingfenceError) -> StorageError:
        self.failed = f"{step} of {self.path} failed: {error}"
        return StorageError(f"{self.failed}; the journal refuses writes: check the disk, then start again")

    def _check_writable(self) -> None:
        if self.failed is not None:
            raise StorageError(f"{self.failed}; the journal refuses writes: check the disk, then start again")


def remove_leftover(path: Path) -> None:
    """Remove the incomplete new file of a replacement that crashed before the rename."""
    leftover = path.with_name(path.name + ".new")
    if leftover.exists():
        leftover.unlink()
        sync_directory(path.parent)


def _pack_head(nonce: bytes, history: bytes, base: LogPosition) -> bytes:
    head = _HEAD.pack(_MAGIC, JOURNAL_FORMAT, 0, nonce, history, base.index, base.term, 0)
    return head[:-4] + crc32c(head[:-4]).to_bytes(4, "little")


def _pack_entry(nonce: bytes, entry: JournalEntry, *, synced: int) -> bytes:
    return records.pack(
        nonce=nonce, kind=entry.kind, term=entry.term, index=entry.index, synced=synced, payload=entry.data
    )


def _pack_hard(nonce: bytes, hard: HardRecord, last: LogPosition, *, synced: int) -> bytes:
    return records.pack(
        nonce=nonce,
        kind=records.HARD,
        term=last.term,
        index=last.index,
        synced=synced,
        payload=_HARD.pack(hard.term, hard.vote, hard.commit),
    )


def _pack_seal(nonce: bytes, last: LogPosition) -> bytes:
    return records.pack(
        nonce=nonce, kind=records.SEAL, term=last.term, index=last.index, synced=last.index, payload=b""
    )


def _unpack_head(path: Path, data: bytes, history: bytes) -> tuple[bytes, LogPosition, int]:
    if len(data) < _HEAD_BYTES or data[:4] != _MAGIC:
        raise RecordError(f"{path} is no journal; restore it from a backup", position=0)
    _, version, zero, nonce, file_history, index, term, crc = _HEAD.unpack_from(data)
    # Every format has the same head length and CRC position. The check comes first, so a flipped bit in the
    # version is not mistaken for a newer program.
    if crc != crc32c(data[: _HEAD_BYTES - 4]) or version < 1:
        raise RecordError(f"the head of {path} is damaged; restore it from a backup", position=0)
    if version > JOURNAL_FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}, this program knows up to {JOURNAL_FORMAT}; use a newer program"
        )
    if zero:
        raise RecordError(f"the head of {path} is damaged; restore it from a backup", position=0)
    if file_history != history:
        raise StoreIdentityError(
            f"{path} is of history {file_history.hex()}, the data directory of {history.hex()}; restore the "
            "journal of this data directory"
        )
    return nonce, LogPosition(index, term), version


def _scan(
    path: Path, data: bytes, nonce: bytes, base: LogPosition
) -> tuple[bytes, list[JournalEntry], HardRecord | None, int, int]:
    """Read all records; restore a lost seal in `data`.

    Returns:
        The bytes, the entries, the hard state, the position of the last seal, the end of the valid records.

    Raises:
        RecordError: durable bytes cannot be read.
    """
    entries: list[JournalEntry] = []
    hard: HardRecord | None = None
    position, last = _HEAD_BYTES, base
    seal_at = position
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
                "it was durable; restore the file from a backup or a replica. Nothing was changed",
                position=position,
            )
        expected = last.index + (record.kind in _ENTRIES)
        if record.index != expected or record.term < last.term:
            raise RecordError(
                f"{path}: index {record.index} follows {last.index}, not {expected}; restore the file from a "
                "backup or a replica. Nothing was changed",
                position=position,
            )
        last = LogPosition(record.index, record.term)
        if record.kind in _ENTRIES:
            entries.append(JournalEntry(record.index, record.term, record.payload, record.kind))
        elif record.kind == records.HARD:
            hard = HardRecord(*_HARD.unpack(record.payload))
        else:
            seal_at = position
        position = record.end
    return data, entries, hard, seal_at, position


def _lost_seal(data: bytes, position: int, nonce: bytes, last: LogPosition) -> bytes:
    """The seal that must have been at `position`; empty if the bytes there were not a lost seal.

    A power cut may lose a seal, which is not synced, and keep records of the next group, which was being
    written. The first record after a seal confirms it: an entry or a hard state, written when all entries up
    to `last` were durable.
    """
    record = records.unpack(data, position + _SEAL_BYTES, nonce)
    if isinstance(record, str) or record.synced != last.index or record.kind == records.SEAL:
        return b""
    is_next = record.index == last.index + (record.kind in _ENTRIES)
    return _pack_seal(nonce, last) if is_next and record.term >= last.term else b""


def _proof_of_damage(data: bytes, position: int, nonce: bytes, expected: int) -> int | None:
    """The position of a later record that proves that `position` was durable; None without a proof.

    A seal is a proof: it was written after all earlier bytes were synced. The next entry is one too, because
    it belongs to a later group; unless only the seal between the two is missing, which is never synced.
    """
    candidate = data.find(records.MAGIC, position + 1)
    while candidate >= 0:
        record = records.unpack(data, candidate, nonce)
        if not isinstance(record, str) and (
            record.kind == records.SEAL
            or record.synced >= expected
            or (record.kind in _ENTRIES and record.index == expected and candidate != position + _SEAL_BYTES)
        ):
            return candidate
        candidate = data.find(records.MAGIC, candidate + 1)
    return None

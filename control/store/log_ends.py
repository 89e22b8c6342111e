"""Store lower bounds of the partition logs' ends, in a small file outside `log/`.

The file reveals that an older copy of `log/` was restored while the node was down: the copy lacks rows below
these bounds. The file is written at most once a second.

    LOG_ENDS: two slots of equal size. Slot: [magic 8 bytes, version u32, crc of the rest u32, number u64,
              bytes u64, store 16 bytes, the native node's entries], padded to the slot's size

The slot with the greater number is valid. The next write overwrites the other slot in place, with one sync
and without a change of the file's size. A torn write therefore leaves the valid slot intact.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from ringfence.control.store.files import FILE_MODE, write_all, write_atomically
from ringfence.native._node import crc32c

NAME: Final = "LOG_ENDS"
_MAGIC: Final = b"rf-lends"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sII")
_BODY_HEAD: Final = struct.Struct("<QQ16s")
_SLOT_MIN: Final = 4096


class _Slot(NamedTuple):
    number: int
    entries: bytes


class LogEnds:
    """The file of one store. The calls block; one thread at a time may use it."""

    def __init__(self, root: Path, store: bytes) -> None:
        self._path, self._store = root / NAME, store
        self._number = 0
        self._slot_bytes = 0

    def read(self) -> bytes:
        """The newest entries; empty if there are none, or no slot is valid. OSError if the disk fails."""
        if not self._path.exists():
            return b""
        data = self._path.read_bytes()
        half = len(data) // 2
        slots = [slot for at in (0, half) if (slot := self._slot(data[at : at + half])) is not None]
        if not slots:
            return b""
        newest = max(slots)
        # The next number selects the other slot for the next write.
        self._number, self._slot_bytes = newest.number, half
        return newest.entries

    def write(self, entries: bytes) -> None:
        """Replace the entries, durably. OSError if the disk fails; the previous entries then stay valid."""
        number = self._number + 1
        body = _BODY_HEAD.pack(number, len(entries), self._store) + entries
        slot = _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body
        if len(slot) > self._slot_bytes:
            size = _SLOT_MIN
            while size < 2 * len(slot):
                size *= 2
            write_atomically(self._path, slot.ljust(size, b"\0"), slot.ljust(size, b"\0"))
            self._slot_bytes = size
        else:
            self._overwrite(slot, number % 2 * self._slot_bytes)
        self._number = number

    def _overwrite(self, slot: bytes, at: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        try:
            os.lseek(descriptor, at, os.SEEK_SET)
            write_all(descriptor, slot)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _slot(self, data: bytes) -> _Slot | None:
        if len(data) < _HEAD.size + _BODY_HEAD.size:
            return None
        magic, version, crc = _HEAD.unpack_from(data)
        number, size, store = _BODY_HEAD.unpack_from(data, _HEAD.size)
        body = data[_HEAD.size : _HEAD.size + _BODY_HEAD.size + size]
        is_own = (magic, version, store) == (_MAGIC, _VERSION, self._store)
        if not is_own or len(body) != _BODY_HEAD.size + size or crc32c(body) != crc:
            return None
        return _Slot(number, body[_BODY_HEAD.size :])

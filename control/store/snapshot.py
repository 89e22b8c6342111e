"""The state at one index as a file: what the journal's older entries said, so that they may go."""

from __future__ import annotations

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ringfence.control.model.conversions import CONVERSIONS
from ringfence.control.model.state import STATE_FORMAT, MetadataState, canonical_bytes, decode_state
from ringfence.control.store.files import write_atomically
from ringfence.control.store.journal import Position
from ringfence.native._node import crc32c
from ringfence.native.errors import NewerFormatError, RecordError, StoreIdentityError

SNAPSHOT_FORMAT: Final = 1
_MAGIC: Final = b"RFSN"
_HEAD: Final = struct.Struct("<4sHH16sQQQ16s4xI")


class Snapshot(NamedTuple):
    """A state and the last entry that went into it."""

    position: Position
    state: MetadataState


def write(path: Path, snapshot: Snapshot) -> None:
    """Replace the snapshot at `path`, durably. OSError when the disk fails; the old one then stands."""
    payload = canonical_bytes(snapshot.state)
    head = _HEAD.pack(
        _MAGIC, SNAPSHOT_FORMAT, STATE_FORMAT, snapshot.state.history, snapshot.position.index,
        snapshot.position.term, len(payload), blake2b(payload, digest_size=16).digest(), 0,
    )  # fmt: skip
    write_atomically(path, head[:-4] + crc32c(head[:-4]).to_bytes(4, "little"), payload)


def read(path: Path, *, history: bytes) -> Snapshot:
    """The snapshot at `path`; older formats are converted in memory.

    Raises:
        NewerFormatError: a newer program wrote it; it is left as it is.
        RecordError: it is damaged.
        StoreIdentityError: it is of another history.
    """
    data = path.read_bytes()
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise RecordError(f"{path} is no snapshot; restore it from a backup", position=0)
    _, version, state_format, found, index, term, size, digest, crc = _HEAD.unpack_from(data)
    if version > SNAPSHOT_FORMAT or state_format > STATE_FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}.{state_format}, this program knows up to "
            f"{SNAPSHOT_FORMAT}.{STATE_FORMAT}; use a newer one. Nothing was changed"
        )
    payload = data[_HEAD.size :]
    if crc != crc32c(data[: _HEAD.size - 4]) or len(payload) != size:
        raise RecordError(f"the head of {path} is damaged; restore it from a backup", position=0)
    if blake2b(payload, digest_size=16).digest() != digest:
        raise RecordError(f"the state in {path} is damaged; restore it from a backup", position=_HEAD.size)
    if found != history:
        raise StoreIdentityError(f"{path} is of history {found.hex()}, the data directory of {history.hex()}")
    for older in range(state_format, STATE_FORMAT):
        payload = CONVERSIONS[older](payload)
    try:
        state = decode_state(payload)
    except msgspec.MsgspecError as error:
        raise RecordError(f"the state in {path} is none: {error}", position=_HEAD.size) from error
    return Snapshot(Position(index, term), state)

"""The state at one index as a file: what the journal's older entries said, so that they may go."""

from __future__ import annotations

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ringfence.control.consensus.messages import ConfigurationState
from ringfence.control.model.conversions import CONVERSIONS
from ringfence.control.model.state import (
    STATE_FORMAT,
    MetadataState,
    canonical_bytes,
    decode_state,
    format_of,
)
from ringfence.control.store.files import write_atomically
from ringfence.control.store.journal import Position
from ringfence.native._node import crc32c
from ringfence.native.errors import NewerFormatError, RecordError, StoreIdentityError

SNAPSHOT_FORMAT: Final = 2
"""2 added to 1: the configuration of consensus between head and state. One without it is written as 1."""
_MAGIC: Final = b"RFSN"
_HEAD: Final = struct.Struct("<4sHH16sQQQ16sII")

_CONFIGURATION: Final = msgspec.msgpack.Decoder(ConfigurationState)


class Snapshot(NamedTuple):
    """A state, the last entry that went into it, and who voted then; None where consensus never was."""

    position: Position
    state: MetadataState
    configuration: ConfigurationState | None = None


def pack(snapshot: Snapshot) -> tuple[bytes, bytes]:
    """Head and body of a snapshot's file; the same bytes travel to other nodes."""
    known = snapshot.configuration
    configuration = b"" if known is None else msgspec.msgpack.encode(known)
    state = canonical_bytes(snapshot.state)
    body = configuration + state
    head = _HEAD.pack(
        _MAGIC,
        SNAPSHOT_FORMAT if configuration else 1,
        format_of(snapshot.state),
        snapshot.state.history,
        snapshot.position.index,
        snapshot.position.term,
        len(state),
        blake2b(body, digest_size=16).digest(),
        len(configuration),
        0,
    )
    return head[:-4] + crc32c(head[:-4]).to_bytes(4, "little"), body


def write(path: Path, snapshot: Snapshot) -> None:
    """Replace the snapshot at `path`, durably. OSError when the disk fails; the old one then stands."""
    write_atomically(path, *pack(snapshot))


def read(path: Path, *, history: bytes) -> Snapshot:
    """The snapshot at `path`; raises as `unpack`."""
    return unpack(str(path), path.read_bytes(), history=history)


def unpack(name: str, data: bytes, *, history: bytes) -> Snapshot:
    """The snapshot of a file's bytes; older formats are converted in memory. `name` is for errors.

    Raises:
        NewerFormatError: a newer program wrote it; it is left as it is.
        RecordError: it is damaged.
        StoreIdentityError: it is of another history.
    """
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise RecordError(f"{name} is no snapshot; restore it from a backup", position=0)
    fields = _HEAD.unpack_from(data)
    _, version, state_format, found, index, term, size, digest, configuration_bytes, crc = fields
    # Every format keeps the head's length and the place of its CRC: a flipped bit is no newer program.
    if crc != crc32c(data[: _HEAD.size - 4]):
        raise RecordError(f"the head of {name} is damaged; restore it from a backup", position=0)
    if version > SNAPSHOT_FORMAT or state_format > STATE_FORMAT:
        raise NewerFormatError(
            f"{name} has format {version}.{state_format}, this program knows up to "
            f"{SNAPSHOT_FORMAT}.{STATE_FORMAT}; use a newer one. Nothing was changed"
        )
    body = data[_HEAD.size :]
    if len(body) != configuration_bytes + size:
        raise RecordError(f"{name} is cut off; restore it from a backup", position=_HEAD.size)
    if blake2b(body, digest_size=16).digest() != digest:
        raise RecordError(f"the state in {name} is damaged; restore it from a backup", position=_HEAD.size)
    if found != history:
        raise StoreIdentityError(f"{name} is of history {found.hex()}, the data directory of {history.hex()}")
    payload = body[configuration_bytes:]
    for older in range(state_format, STATE_FORMAT):
        payload = CONVERSIONS[older](payload)
    try:
        configuration = _CONFIGURATION.decode(body[:configuration_bytes]) if configuration_bytes else None
        state = decode_state(payload)
    except msgspec.MsgspecError as error:
        raise RecordError(f"the state in {name} is none: {error}", position=_HEAD.size) from error
    return Snapshot(Position(index, term), state, configuration)

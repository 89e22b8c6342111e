"""Read and write the snapshot file: the state at one index, which replaces the journal's older entries."""

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
from ringfence.control.store.journal import LogPosition
from ringfence.native._node import crc32c
from ringfence.native.errors import NewerFormatError, RecordError, StoreIdentityError

# Format 2 added the configuration of consensus between head and state. A snapshot without one has format 1.
SNAPSHOT_FORMAT: Final = 2
_MAGIC: Final = b"RFSN"
_HEAD: Final = struct.Struct("<4sHH16sQQQ16sII")

_CONFIGURATION: Final = msgspec.msgpack.Decoder(ConfigurationState)


class Snapshot(NamedTuple):
    """A state, the position of its last entry, and the configuration of consensus at that position.

    The configuration is None in snapshots of programs before consensus.
    """

    position: LogPosition
    state: MetadataState
    configuration: ConfigurationState | None = None


def pack(snapshot: Snapshot) -> tuple[bytes, bytes]:
    """Head and body of a snapshot's file; other nodes receive the same bytes."""
    configuration = b"" if snapshot.configuration is None else msgspec.msgpack.encode(snapshot.configuration)
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
    """Replace the snapshot at `path`, durably. OSError if the disk fails; the old one then stays."""
    write_atomically(path, *pack(snapshot))


def read(path: Path, *, history: bytes) -> Snapshot:
    """The snapshot at `path`; raises as `unpack`."""
    return unpack(str(path), path.read_bytes(), history=history)


def unpack(name: str, data: bytes, *, history: bytes) -> Snapshot:
    """The snapshot in a file's bytes; older formats are converted in memory. `name` is for errors.

    Raises:
        NewerFormatError: a newer program wrote the file.
        RecordError: the file is damaged.
        StoreIdentityError: the file is of another history.
    """
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise RecordError(f"{name} is no snapshot; restore it from a backup", position=0)
    fields = _HEAD.unpack_from(data)
    _, version, state_format, file_history, index, term, size, digest, configuration_bytes, crc = fields
    # Every format has the same head length and CRC position. The check comes first, so a flipped bit in the
    # version is not mistaken for a newer program.
    if crc != crc32c(data[: _HEAD.size - 4]):
        raise RecordError(f"the head of {name} is damaged; restore it from a backup", position=0)
    if version > SNAPSHOT_FORMAT or state_format > STATE_FORMAT:
        raise NewerFormatError(
            f"{name} has format {version}.{state_format}, this program knows up to "
            f"{SNAPSHOT_FORMAT}.{STATE_FORMAT}; use a newer program. Nothing was changed"
        )
    body = data[_HEAD.size :]
    if len(body) != configuration_bytes + size:
        raise RecordError(f"{name} is truncated; restore it from a backup", position=_HEAD.size)
    if blake2b(body, digest_size=16).digest() != digest:
        raise RecordError(f"the state in {name} is damaged; restore it from a backup", position=_HEAD.size)
    if file_history != history:
        raise StoreIdentityError(
            f"{name} is of history {file_history.hex()}, the data directory of {history.hex()}"
        )
    payload = body[configuration_bytes:]
    for older in range(state_format, STATE_FORMAT):
        payload = CONVERSIONS[older](payload)
    try:
        configuration = _CONFIGURATION.decode(body[:configuration_bytes]) if configuration_bytes else None
        state = decode_state(payload)
    except msgspec.MsgspecError as error:
        raise RecordError(f"the state in {name} is invalid: {error}", position=_HEAD.size) from error
    return Snapshot(LogPosition(index, term), state, configuration)

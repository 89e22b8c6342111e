"""Bytes of one journal record.

    u32 magic | u32 crc | u32 payload bytes | u32 kind | u64 term | u64 index | u64 synced | payload | pad

`crc` is CRC-32C of all that follows it up to the payload's end, begun with the file's nonce: a payload that
contains a record's bytes, by chance or malice, is no record. `synced` is the last index that was durable when
the record was written; a valid record therefore proves that everything up to its `synced` had been on disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ringfence.native._node import crc32c

MAGIC: Final = b"RFJR"
ENTRY: Final = 1
SEAL: Final = 2
"""Follows each durable group without a sync of its own. It tells a torn last group from a damaged one."""
CHANGE: Final = 3
"""An entry that changes the configuration of consensus; ENTRY is one of the application, empty for none."""
HARD: Final = 4
"""Term, vote and commit of consensus; the last one in a file holds. It stands behind its group's entries."""
HEAD: Final = struct.Struct("<4sIIIQQQ")
HEAD_BYTES: Final = HEAD.size
ALIGN: Final = 8
PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest command, a topic of 65,536 partitions, takes 2 MB; more is damage, and is not allocated."""


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record; `end` is the position behind its padding."""

    kind: int
    term: int
    index: int
    synced: int
    payload: bytes
    end: int


def pack(*, nonce: bytes, kind: int, term: int, index: int, synced: int, payload: bytes) -> bytes:
    """One record with its padding. ValueError above PAYLOAD_BYTES_MAX."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(
            f"entry {index} has {len(payload)} bytes, a journal record at most {PAYLOAD_BYTES_MAX}"
        )
    head = HEAD.pack(MAGIC, 0, len(payload), kind, term, index, synced)
    crc = crc32c(payload, crc32c(head[8:], crc32c(nonce)))
    padding = b"\0" * (-len(payload) % ALIGN)
    return b"".join((MAGIC, crc.to_bytes(4, "little"), head[8:], payload, padding))


def unpack(data: bytes, position: int, nonce: bytes) -> Record | str:
    """The record that begins at `position`, or what is wrong with it."""
    if position + HEAD_BYTES > len(data):
        return f"{len(data) - position} bytes are no record's head"
    magic, crc, size, kind, term, index, synced = HEAD.unpack_from(data, position)
    if magic != MAGIC:
        return "no record's magic"
    payload_at = position + HEAD_BYTES
    end = payload_at + size + -size % ALIGN
    if size > PAYLOAD_BYTES_MAX or end > len(data):
        return f"a payload of {size} bytes does not end in the file"
    payload = data[payload_at : payload_at + size]
    found = crc32c(payload, crc32c(data[position + 8 : payload_at], crc32c(nonce)))
    if found != crc:
        return f"CRC {crc:08x} in the head, {found:08x} of the bytes"
    if any(data[payload_at + size : end]):
        return "padding is not zero"
    if kind not in {ENTRY, SEAL, CHANGE, HARD}:
        return f"kind {kind} is unknown"
    return Record(kind, term, index, synced, payload, end)

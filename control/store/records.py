"""Pack and unpack one journal record.

    u32 magic | u32 crc | u32 payload bytes | u32 kind | u64 term | u64 index | u64 synced | payload | pad

`crc` is the CRC-32C of the bytes after it up to the payload's end, seeded with the file's nonce. A payload
that contains a record's bytes, by chance or malice, is therefore no valid record. `synced` is the last index
that was durable when the record was written: a valid record proves that all entries up to `synced` were on
disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ringfence.native._node import crc32c

MAGIC: Final = b"RFJR"
# An entry of the application; an empty payload is a term's first entry.
ENTRY: Final = 1
# Follows each durable group, without a separate sync. It distinguishes a torn last group from a damaged one.
SEAL: Final = 2
# An entry that changes the configuration of consensus.
CHANGE: Final = 3
# Term, vote and commit of consensus, after its group's entries. The last one in a file is valid.
HARD: Final = 4
HEAD: Final = struct.Struct("<4sIIIQQQ")
HEAD_BYTES: Final = HEAD.size
ALIGN: Final = 8
# The largest command, a topic of 65,536 partitions, takes 2 MB. A larger size is damage and not allocated.
PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """A complete record; `end` is the position after its padding."""

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
            f"entry {index} has {len(payload)} bytes; the limit of a journal record is {PAYLOAD_BYTES_MAX}"
        )
    head = HEAD.pack(MAGIC, 0, len(payload), kind, term, index, synced)
    crc = crc32c(payload, crc32c(head[8:], crc32c(nonce)))
    padding = b"\0" * (-len(payload) % ALIGN)
    return b"".join((MAGIC, crc.to_bytes(4, "little"), head[8:], payload, padding))


def unpack(data: bytes, position: int, nonce: bytes) -> Record | str:
    """The record that begins at `position`, or a text about the fault."""
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
    actual = crc32c(payload, crc32c(data[position + 8 : payload_at], crc32c(nonce)))
    if actual != crc:
        return f"CRC {crc:08x} in the head, {actual:08x} of the bytes"
    if any(data[payload_at + size : end]):
        return "padding is not zero"
    if kind not in {ENTRY, SEAL, CHANGE, HARD}:
        return f"kind {kind} is unknown"
    return Record(kind, term, index, synced, payload, end)

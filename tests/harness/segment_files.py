"""Segment files from outside: finding records, flipping bytes, dressing a file as a newer format's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xxhash

from ringfence.native import wire
from ringfence.native._node import crc32c

FILE_HEADER_BYTES = 4096


class Found(NamedTuple):
    path: Path
    position: int
    header: wire.RecordHeader


def segments(data: Path) -> list[Path]:
    return sorted(data.rglob("*.seg"))


def records(data: Path) -> Iterator[Found]:
    """Every record whose header is sound and names its own file, in file order."""
    for path in segments(data):
        content = path.read_bytes()
        (number,) = struct.unpack_from("<Q", content, 64)
        at = FILE_HEADER_BYTES
        while at + wire.RECORD_HEADER_BYTES <= len(content):
            raw = content[at : at + wire.RECORD_HEADER_BYTES]
            header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(raw))
            sound = header.magic == wire.RECORD_MAGIC and crc32c(raw[8:]) == header.header_crc
            if not sound or header.file_number != number:
                break
            yield Found(path, at, header)
            at += header.span_bytes


def rows_of(data: Path, partition: int) -> list[Found]:
    return [
        found
        for found in records(data)
        if found.header.kind == wire.RecordKind.ROWS and found.header.partition == partition
    ]


def replace_body(data: Path, target: Found, body: bytes) -> None:
    """Put another body of the same size into a record: CRCs right, its partition chained anew."""
    assert len(body) == target.header.body_bytes
    with target.path.open("r+b") as file:
        file.seek(target.position + wire.RECORD_HEADER_BYTES)
        file.write(body)
    chain, is_behind = 0, False
    for found in records(data):
        header = found.header
        if header.partition != target.header.partition or header.chain == 0:  # of others; of this store alone
            continue
        if found == target:
            header, is_behind = header._replace(body_crc=crc32c(body)), True
        logical = wire.RECORD_STRUCT.pack(*header)[wire.RECORD_KIND_AT : wire.RECORD_CHAIN_AT]
        sealed = header._replace(chain=xxhash.xxh3_64_intdigest(logical, chain))
        assert is_behind or sealed == header, "the chain is computed as the node does"
        raw = wire.RECORD_STRUCT.pack(*sealed)
        with found.path.open("r+b") as file:
            file.seek(found.position)
            file.write(raw[:4] + struct.pack("<I", crc32c(raw[8:])) + raw[8:])
        chain = sealed.chain


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def make_newer(path: Path) -> None:
    """Raise the format version in a segment file's header, its CRC right."""
    with path.open("r+b") as file:
        block = bytearray(file.read(FILE_HEADER_BYTES))
        struct.pack_into("<H", block, 8, wire.LOG_FORMAT_VERSION + 1)
        struct.pack_into("<I", block, 4, crc32c(bytes(block[8:])))
        file.seek(0)
        file.write(block)


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes, locks apart."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "lock" not in path.name.lower()
    }

"""Segment files from outside: finding records, flipping bytes, dressing a file as a newer format's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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

"""The mark that a received snapshot is being put in the place of the log.

    mark -> snapshot's file -> journal that begins behind it -> unmark

A crash between snapshot and journal leaves a journal that ends before the snapshot, or holds entries that
are none of its log. The mark tells such a journal, whose promises all hold, from one that lost its end. The
commit index cannot: a durable one that counts entries of the old log, which the new one replaces, would
commit them at the next start.
"""

from __future__ import annotations

from pathlib import Path

from ringfence.control.store.files import sync_directory, write_atomically
from ringfence.control.store.journal import Position
from ringfence.native._node import crc32c


def mark(path: Path, position: Position) -> None:
    """A snapshot of this position comes. OSError when the disk fails."""
    text = _text(position)
    write_atomically(path, f"{text} {crc32c(text.encode()):08x}\n".encode())


def marked(path: Path) -> Position | None:
    """Of which position a snapshot was coming; None without a mark, or with a damaged one."""
    if not path.exists():
        return None
    parts = path.read_bytes().decode("ascii", "replace").split()
    if len(parts) != 3 or not all(part.isdecimal() for part in parts[:2]):
        return None
    position = Position(int(parts[0]), int(parts[1]))
    return position if parts[2] == f"{crc32c(_text(position).encode()):08x}" else None


def unmark(path: Path) -> None:
    """The journal begins behind the snapshot. A mark that a power cut brings back is harmless. OSError."""
    if path.exists():
        path.unlink()
        sync_directory(path.parent)


def _text(position: Position) -> str:
    return f"{position.index} {position.term}"

"""Mark that a received snapshot is about to replace the log.

    mark -> snapshot's file -> journal that begins after the snapshot -> unmark

A crash between snapshot and journal leaves a journal that ends before the snapshot, or has entries of
another log. The mark distinguishes such a journal, whose promises all hold, from one that lost its end. The
commit index cannot serve as the mark: if it were durable first, the next start would commit entries of the
old log, which the snapshot replaces.
"""

from __future__ import annotations

from pathlib import Path

from ringfence.control.store.files import sync_directory, write_atomically
from ringfence.control.store.journal import LogPosition
from ringfence.native._node import crc32c


def mark(path: Path, position: LogPosition) -> None:
    """Write the mark for a snapshot at this position. OSError if the disk fails."""
    text = _text(position)
    write_atomically(path, f"{text} {crc32c(text.encode()):08x}\n".encode())


def marked_position(path: Path) -> LogPosition | None:
    """The position of the snapshot that was being installed; None without a mark, or with a damaged one."""
    if not path.exists():
        return None
    parts = path.read_bytes().decode("ascii", "replace").split()
    if len(parts) != 3 or not all(part.isdecimal() for part in parts[:2]):
        return None
    position = LogPosition(int(parts[0]), int(parts[1]))
    return position if parts[2] == f"{crc32c(_text(position).encode()):08x}" else None


def unmark(path: Path) -> None:
    """Remove the mark, once the journal begins after the snapshot. OSError if the disk fails.

    A mark that reappears after a power cut is harmless.
    """
    if path.exists():
        path.unlink()
        sync_directory(path.parent)


def _text(position: LogPosition) -> str:
    return f"{position.index} {position.term}"

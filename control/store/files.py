"""Writing files so that a crash leaves the old one or the new one, never half of each."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(folder: Path) -> None:
    """Make names in `folder` durable. OSError when the disk fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, *parts: bytes) -> None:
    """Replace `path` by the parts, durably. OSError when the disk fails; `path` is then as it was."""
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        for part in parts:
            write_all(descriptor, part)
        os.fsync(descriptor)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    fresh.replace(path)
    sync_directory(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`: one `write` may take less, at 2 GiB or on a nearly full disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

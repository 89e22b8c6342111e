"""Writing files so that a crash leaves the old one or the new one, never half of each."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
"""For the node's user alone: the metadata holds hashes of tokens, and what this node presents to others."""
FOLDER_MODE: Final = 0o700


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
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
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


def make_private(*paths: Path) -> None:
    """Take the rights of group and others away from what exists. Older programs wrote files with mode 640.

    A read-only file system, and files of another user, stay as they are.
    """
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                path.chmod(mode & ~0o077)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.EROFS, errno.EPERM}:
                raise


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`: one `write` may take less, at 2 GiB or on a nearly full disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

"""Write files so that a crash leaves the old version or the new one, never a mix."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

# Readable by the node's user only: the metadata has hashes of tokens and this node's own credentials.
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def sync_directory(folder: Path) -> None:
    """Make the names in `folder` durable. OSError if the disk fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, *parts: bytes) -> None:
    """Replace the content of `path`, durably. OSError if the disk fails; `path` is then unchanged."""
    new_file = path.with_name(path.name + ".new")
    descriptor = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        for part in parts:
            write_all(descriptor, part)
        os.fsync(descriptor)
    except OSError:
        new_file.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    new_file.replace(path)
    sync_directory(path.parent)


def make_private(*paths: Path) -> None:
    """Remove the rights of group and others from existing files: older programs wrote mode 640.

    Files on a read-only file system, and files of another user, stay unchanged.
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
    """Write all of `data`. A single `write` may be partial: above 2 GiB, or on a nearly full disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

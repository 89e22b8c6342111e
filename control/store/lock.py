"""Lock a data directory, so that one process at a time uses it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from ringfence.control.store.files import FILE_MODE
from ringfence.native.errors import StoreLockedError


class DirectoryLock:
    """A lock from construction to `close`. The kernel releases it when the process ends in any way."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Take the lock. With `read_only`, a file or directory that cannot be written is locked unchanged.

        Raises:
            StoreLockedError: another process has the lock; the text has its pid if the file has one.
            OSError: the path cannot be opened.
        """
        self.path = path
        self._writes_pid = True
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno not in {errno.EROFS, errno.EACCES} or not read_only:
                raise
            self._writes_pid = False
            existing = path if path.exists() else path.parent
            self._descriptor = os.open(existing, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
            content = os.pread(self._descriptor, 32, 0) if is_file else b""
            pid = content.decode("ascii", errors="replace").strip()
            os.close(self._descriptor)
            holder = f"process {pid}" if pid.isdigit() else "another process"
            raise StoreLockedError(
                f"{holder} uses the data directory {path.parent}; stop it, or choose another --data",
                pid=int(pid) if pid.isdigit() else None,
            ) from error
        if self._writes_pid:
            self._write_pid()

    def _write_pid(self) -> None:
        """Write this process's pid into the file. A full disk is no error: the node starts without it."""
        os.ftruncate(self._descriptor, 0)
        try:
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise

    def close(self) -> None:
        """Release the lock. The file stays: without it two processes could lock two different files."""
        if self._descriptor >= 0:
            if self._writes_pid:
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

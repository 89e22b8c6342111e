"""One process a data directory."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from ringfence.control.store.files import FILE_MODE
from ringfence.native.errors import StoreLockedError


class DirectoryLock:
    """Held from construction to `close`; the kernel gives it back when the process dies, however it dies."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Where nothing can be written, the file that is there is locked as it is, else its directory.

        Raises:
            StoreLockedError: it names the holder's pid where it is known.
            OSError: the path cannot be opened.
        """
        self.path = path
        self._tells = True
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno not in {errno.EROFS, errno.EACCES} or not read_only:
                raise
            self._tells = False
            there = path if path.exists() else path.parent
            self._descriptor = os.open(there, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            told = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
            held = os.pread(self._descriptor, 32, 0) if told else b""
            holder = held.decode("ascii", errors="replace").strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise StoreLockedError(
                f"{who} uses the data directory {path.parent}; stop it, or choose another --data",
                pid=int(holder) if holder.isdigit() else None,
            ) from error
        if self._tells:
            self._tell()

    def _tell(self) -> None:
        """Whose lock it is, as far as there is a block for it: a node on a full disk starts without."""
        os.ftruncate(self._descriptor, 0)
        try:
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise

    def close(self) -> None:
        """Give the directory back. The file stays: removing it would let two processes hold two locks."""
        if self._descriptor >= 0:
            if self._tells:
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

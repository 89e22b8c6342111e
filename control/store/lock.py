"""One process a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ringfence.native.errors import StoreLockedError


class DirectoryLock:
    """Held from construction to `close`; the kernel gives it back when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        """Raises StoreLockedError, which names the holder's pid where it is known."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", errors="replace").strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise StoreLockedError(
                f"{who} uses the data directory {path.parent}; stop it, or choose another --data",
                pid=int(holder) if holder.isdigit() else None,
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give the directory back. The file stays: removing it would let two processes hold two locks."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

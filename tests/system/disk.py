"""A file system in a file: it can be small, and it can lose its power."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), linux/fs/ext4/ext4.h
NOLOGFLUSH = 2  # the journal is not flushed: what was not synced is gone


class Disk:
    """An ext4 file system, mounted; needs root for the loop mount."""

    def __init__(self, folder: Path, size_mb: int = 1024) -> None:
        self.image, self.mount_point = folder / "disk.img", folder / "disk"
        with self.image.open("wb") as image:
            image.truncate(size_mb << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True, capture_output=True)
        self.mount_point.mkdir()
        self.mount()

    def mount(self) -> None:
        subprocess.run(
            ["mount", "-o", "loop", str(self.image), str(self.mount_point)], check=True, capture_output=True
        )

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.mount_point)], check=True, capture_output=True)

    def release(self) -> None:
        """Unmount, whoever still uses it."""
        subprocess.run(["umount", "-l", str(self.mount_point)], check=False, capture_output=True)

    def cut_power(self) -> None:
        handle = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(handle)

    def fill(self) -> Path:
        """Take all free space; removing the file that is returned gives it back."""
        path = self.mount_point / "filler"
        with path.open("wb") as filler:
            size = 0
            for step in (1 << 20, 1 << 12):
                while True:
                    try:
                        os.posix_fallocate(filler.fileno(), size, step)
                    except OSError:
                        break
                    size += step
        return path

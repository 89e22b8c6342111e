"""A file system in a file: it can be small, it can lose its power, and it can fail under who uses it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.harness.processes import check_space

if TYPE_CHECKING:
    from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), linux/fs/ext4/ext4.h
LOGFLUSH = 1  # the journal is flushed first: nothing is lost, and nothing works any more
NOLOGFLUSH = 2  # the journal is not flushed: what was not synced is gone
LOOP_CTL_GET_FREE, LOOP_CONFIGURE = 0x4C82, 0x4C0A  # linux/loop.h
AUTOCLEAR = 4  # LO_FLAGS_AUTOCLEAR: detached when the last user is gone, also when that one is killed
LOOP_CONFIG = struct.Struct("=IIQQQQQIIII64s64s32sQQ64x")  # struct loop_config of linux/loop.h
TRIES = 50
"""Others take free loop devices, too."""
LAST = """
import subprocess, sys
sys.stdin.read()
subprocess.run(["umount", "-q", "-l", sys.argv[1]], check=False, capture_output=True)
"""
"""Its input ends with the process that made the disk, however that one ends."""


class Disk:
    """An ext4 file system, mounted; needs root for the loop mount.

    Its image has no name, and its loop device clears itself: both are gone with the mount and this process.
    A process of its own ends the mount where this one is killed: a folder that stays mounted can be removed
    by nobody, also by no later run.
    """

    def __init__(self, folder: Path, size_mb: int = 1024) -> None:
        # A write that finds no space for the image is an I/O error in the file system.
        check_space(folder, size_mb << 20)
        self.mount_point = folder / "disk"
        path = folder / "disk.img"
        self._image = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(self._image, size_mb << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True, capture_output=True)
        path.unlink()
        self.mount_point.mkdir()
        self._last = subprocess.Popen(
            [sys.executable, "-S", "-c", LAST, str(self.mount_point)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.mount()

    def mount(self) -> None:
        device, path = self._attached()
        try:
            subprocess.run(["mount", path, str(self.mount_point)], check=True, capture_output=True)
        finally:
            os.close(device)

    def _attached(self) -> tuple[int, str]:
        """A loop device of the image: open, and its path."""
        flags = (0, 0, AUTOCLEAR, b"", b"", b"", 0, 0)
        config = LOOP_CONFIG.pack(self._image, 0, 0, 0, 0, 0, 0, 0, *flags)
        with open("/dev/loop-control", "rb") as control:  # noqa: PTH123 - a device
            for _ in range(TRIES):
                path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
                device = os.open(path, os.O_RDWR)
                try:
                    fcntl.ioctl(device, LOOP_CONFIGURE, config)
                except OSError as error:
                    os.close(device)
                    if error.errno != errno.EBUSY:
                        raise
                else:
                    return device, path
        raise OSError(errno.EBUSY, f"no loop device was free at {TRIES} tries")

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.mount_point)], check=True, capture_output=True)

    def release(self) -> None:
        """Unmount, whoever still uses it, and give the image up."""
        self._last.communicate()
        if self._image >= 0:
            os.close(self._image)
            self._image = -1

    def cut_power(self) -> None:
        self._shut_down(NOLOGFLUSH)

    def fail(self) -> None:
        """From now on every read and write ends in EIO, until it is unmounted and mounted again."""
        self._shut_down(LOGFLUSH)

    def _shut_down(self, how: int) -> None:
        handle = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", how))
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

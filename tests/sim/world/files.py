"""The files of one machine's metadata, in memory: what is not synced may be lost, torn, or out of order.

The store's own code runs over it: `os`, `fcntl` and `Path` are what it finds there instead (`intercept`).
Rules, each of which some real file system has:

- a write is in the page cache until a sync of the file; a power cut keeps any of its 512-byte sectors, or
  none
- a new name, a rename, a removal is durable only when its folder was synced; a power cut keeps a prefix of
  them
- a sync that failed drops what it was to write, which stays readable until the power goes: never again
  durable
- the process may die between any two calls; then the page cache lives on
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from tests.sim.world import current

SECTOR: Final = 512
DESCRIPTORS: Final = 1 << 20  # above every real one
ROOT_FOLDERS: Final = ("/data",)
NOTHING, PREFIX, SECTORS, EVERYTHING = range(4)


class DiedError(BaseException):
    """The process died inside of a call. No code of it may catch this and go on."""


class File:
    """One inode: what is read, what is on the platter, what lies between."""

    __slots__ = ("data", "pending", "platter", "proven")

    def __init__(self) -> None:
        self.data, self.platter = bytearray(), bytearray()
        self.pending: list[
            tuple[int, bytes | None]
        ] = []  # (position, bytes), or (size, None) of a truncation
        self.proven = 0
        """Bytes that a later sync proves to have been durable: below them, rot is never a torn write."""

    def copy(self) -> File:
        made = File()
        made.data, made.platter, made.pending = bytearray(self.data), bytearray(self.platter), [*self.pending]
        made.proven = self.proven
        return made


def _put(target: bytearray, at: int, piece: bytes | None) -> None:
    if piece is None:
        del target[at:]
        target.extend(bytes(at - len(target)))
        return
    if at > len(target):
        target.extend(bytes(at - len(target)))
    target[at : at + len(piece)] = piece


class Files:
    """Names, files, and what goes wrong with them from now on."""

    def __init__(self) -> None:
        self.names: dict[str, File] = {}
        self.durable: dict[str, File] = {}
        self.folders: set[str] = set()
        self._renames: list[tuple[str, str, str, File | None]] = []  # (folder, what, name, file)
        self._open: dict[int, list[Any]] = {}  # [file or folder's name, position]
        self._numbers = DESCRIPTORS
        self.syncs = self.writes = 0
        self.fail_sync = self.fail_write = 0.0
        self.room: int | None = None
        self.dies_after: int | None = None
        self.dead = False
        """The process died inside of a call: nothing of it reaches the disk any more."""
        self.random = Random(0)

    def image(self) -> Files:
        """An independent copy of what is durable."""
        made = Files()
        made.durable = {name: file.copy() for name, file in self.durable.items()}
        made.names = dict(made.durable)
        made.folders = set(self.folders)
        return made

    # ---- faults ----

    def process_died(self) -> None:
        self._open.clear()
        self.dies_after, self.dead = None, True

    def process_started(self) -> None:
        self.dead = False

    def power_cut(self) -> None:
        random = self.random
        kept = random.choice((0, len(self._renames), random.randrange(len(self._renames) + 1)))
        for change in self._renames[:kept]:
            self._rename(self.durable, *change[1:])
        self._renames.clear()
        for file in {id(each): each for each in [*self.durable.values(), *self.names.values()]}.values():
            self._tear(file)
        self.names = dict(self.durable)

    def _tear(self, file: File) -> None:
        random, pending = self.random, file.pending
        if pending:
            how = random.randrange(4)
            kept = {NOTHING: 0, EVERYTHING: len(pending)}.get(how, random.randrange(len(pending) + 1))
            for place, (at, piece) in enumerate(pending):
                if place < kept:
                    _put(file.platter, at, piece)
                elif piece is not None and (how == SECTORS or (how == PREFIX and place == kept)):
                    self._put_sectors(file, at, piece)
        file.pending = []
        file.data = bytearray(file.platter)
        file.proven = min(file.proven, len(file.data))

    def _put_sectors(self, file: File, at: int, piece: bytes) -> None:
        """Some sectors of a write arrived; those before a later one read as zeros."""
        begin = at
        while begin < at + len(piece):
            end = min(at + len(piece), begin // SECTOR * SECTOR + SECTOR)
            if self.random.random() < 0.5:
                _put(file.platter, begin, piece[begin - at : end - at])
            begin = end

    def rot(self) -> tuple[File, int, int] | None:
        """Flip a bit that was proven to be durable: (file, position, what it was)."""
        names = [name for name in sorted(self.durable) if self.durable[name].proven > 0]
        if not names:
            return None
        name = self.random.choice(names)
        file = self.durable[name]
        at, mask = self.random.randrange(file.proven), 1 << self.random.randrange(8)
        was = file.platter[at]
        for image in (file.data, file.platter):
            if at < len(image):
                image[at] = was ^ mask
        return file, at, was

    @staticmethod
    def restore(file: File, at: int, was: int) -> None:
        """The operator has a good copy; a file that was replaced meanwhile nobody reads."""
        for image in (file.data, file.platter):
            if at < len(image):
                image[at] = was

    # ---- calls ----

    def _called(self) -> None:
        """Before each call that changes something: the process may die here."""
        if self.dies_after is not None:
            self.dies_after -= 1
            self.dead = self.dead or self.dies_after < 0
        if self.dead:
            raise DiedError

    def open(self, path: str, flags: int) -> int:
        self._numbers += 1
        if flags & os.O_DIRECTORY:
            self._open[self._numbers] = [path, 0]
            return self._numbers
        file = self.names.get(path)
        if file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._called()
            file = File()
            self._named("put", path, file)
        elif flags & os.O_TRUNC:
            self._called()
            self._change(file, 0, None)
        self._open[self._numbers] = [file, 0]
        return self._numbers

    def write(self, descriptor: int, data: Any) -> int:
        self._called()
        place = self._open[descriptor]
        file, at = place
        piece = bytes(data)
        if self.fail_write and self.random.random() < self.fail_write:
            raise OSError(errno.EIO, "simulated: the disk failed")
        if self.room is not None:
            used = sum(len(each.data) for each in self.names.values())
            fits = max(0, self.room - used) + max(0, len(file.data) - at)
            if fits < len(piece):
                if not fits:
                    raise OSError(errno.ENOSPC, "simulated: no space left")
                piece = piece[:fits]
        self.writes += 1
        self._change(file, at, piece)
        place[1] = at + len(piece)
        return len(piece)

    def sync(self, descriptor: int) -> None:
        self._called()
        file = self._open[descriptor][0]
        self.syncs += 1
        if self.fail_sync and self.random.random() < self.fail_sync:
            if isinstance(file, File):
                file.pending = []
            raise OSError(errno.EIO, "simulated: the disk failed at a sync")
        if isinstance(file, str):
            self._sync_folder(file)
            return
        before = len(file.platter)
        for at, piece in file.pending:
            _put(file.platter, at, piece)
        file.pending = []
        file.proven = before if len(file.platter) > before else min(file.proven, len(file.platter))

    def _sync_folder(self, folder: str) -> None:
        left = []
        for change in self._renames:
            if change[0] == folder:
                self._rename(self.durable, change[1], change[2], change[3])
            else:
                left.append(change)
        self._renames = left

    def truncate(self, descriptor: int, size: int) -> None:
        self._called()
        self._change(self._open[descriptor][0], size, None)

    def seek(self, descriptor: int, position: int) -> int:
        self._open[descriptor][1] = position
        return position

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def unlink(self, path: str) -> None:
        self._called()
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._named("remove", path, None)

    def replace(self, path: str, target: str) -> None:
        self._called()
        file = self.names[path]
        # One step: a crash leaves the old name or the new one.
        self._renames.append((_folder(path), "move", f"{path}\0{target}", file))
        self._rename(self.names, "move", f"{path}\0{target}", file)

    def _change(self, file: File, at: int, piece: bytes | None) -> None:
        _put(file.data, at, piece)
        file.pending.append((at, piece))

    def _named(self, what: str, name: str, file: File | None) -> None:
        self._renames.append((_folder(name), what, name, file))
        self._rename(self.names, what, name, file)

    @staticmethod
    def _rename(names: dict[str, File], what: str, name: str, file: File | None) -> None:
        if what == "put":
            assert file is not None
            names[name] = file
        elif what == "remove":
            names.pop(name, None)
        else:
            old, new = name.split("\0")
            names.pop(old, None)
            assert file is not None
            names[new] = file


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


class SimPath(PurePosixPath):
    """What the store has for a path. The machine whose code runs says on which disk it lies."""

    __slots__ = ()

    @property
    def _files(self) -> Files:
        return current.machine().files

    def exists(self) -> bool:
        files, name = self._files, str(self)
        return name in files.names or name in files.folders

    def is_dir(self) -> bool:
        return str(self) in self._files.folders

    def is_file(self) -> bool:
        return str(self) in self._files.names

    def is_symlink(self) -> bool:
        return False

    def stat(self) -> SimpleNamespace:
        """Of its rights alone: nobody else is on the machine."""
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self))
        return SimpleNamespace(st_mode=0o600)

    def read_bytes(self) -> bytes:
        file = self._files.names.get(str(self))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self))
        return bytes(file.data)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        self._files.folders.add(str(self))

    def iterdir(self) -> Iterator[SimPath]:
        files, prefix = self._files, f"{self}/"
        for name in sorted({*files.names, *files.folders}):
            if name.startswith(prefix) and "/" not in name[len(prefix) :]:
                yield SimPath(name)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._files.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def replace(self, target: Any) -> SimPath:
        self._files.replace(str(self), str(target))
        return SimPath(target)


class SimOs:
    """`os` as the store's modules see it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("O_", "SEEK_")) or name in {"getpid", "fspath"}:
            return getattr(os, name)
        raise AttributeError(f"os.{name} is not simulated: teach tests/sim/world/files.py")

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        return current.machine().files.open(str(path), flags)

    def write(self, descriptor: int, data: Any) -> int:
        return current.machine().files.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        current.machine().files.sync(descriptor)

    fdatasync = fsync

    def ftruncate(self, descriptor: int, size: int) -> None:
        current.machine().files.truncate(descriptor, size)

    def lseek(self, descriptor: int, position: int, how: int) -> int:
        assert how == os.SEEK_SET, f"lseek from {how} is not simulated"
        return current.machine().files.seek(descriptor, position)

    def close(self, descriptor: int) -> None:
        current.machine().files.close(descriptor)


class SimLock:
    """`DirectoryLock`: a machine runs one process at a time, and a dead one holds nothing."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def close(self) -> None:
        """Nothing is held."""

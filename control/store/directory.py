"""Opening a data directory, or making one. What is there already is never overwritten."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ringfence.control.model.ids import UUID_BYTES
from ringfence.control.store import identity as identities
from ringfence.control.store.files import FOLDER_MODE, make_private, sync_directory, write_atomically
from ringfence.control.store.identity import Identity
from ringfence.control.store.journal import Journal, remove_leftover
from ringfence.control.store.lock import DirectoryLock
from ringfence.native.errors import StorageError
from ringfence.native.wire import LEVEL_NEWEST

Opened = TypeVar("Opened")
NODE_FIRST: Final = 1
_OURS: Final = frozenset({"lock", "store.toml.new", "joining", "joining.new"})
_NEUTRAL: Final = frozenset({"lost+found"})


WAYS_OUT: Final = {
    errno.EACCES: "run this as the user that it belongs to, or choose another --data",
    errno.EPERM: "run this as the user that it belongs to, or choose another --data",
    errno.EROFS: "mount it so that it can be written, or choose another --data",
    errno.ENOSPC: "free some, or choose another --data",
    errno.EDQUOT: "free some, or choose another --data",
    errno.EIO: "check its disk",
}


def unusable(root: Path, error: OSError | ValueError) -> StorageError:
    """What the system refuses of a data directory, with the file that it is about and the way out."""
    if not isinstance(error, OSError):  # a path that is none: with a null byte, say
        return StorageError(f"data directory {root}: {error}; choose another --data")
    file = error.filename
    at = "" if file is None or Path(os.fsdecode(file)) == root else f" ({os.fsdecode(file)})"
    way_out = WAYS_OUT.get(error.errno or 0, "choose another --data, or check its disk")
    return StorageError(f"data directory {root}: {error.strerror or error}{at}; {way_out}")


class DataDirectory:
    """An open data directory; `close` gives the lock back."""

    def __init__(self, root: Path, identity: Identity, lock: DirectoryLock, *, is_new: bool) -> None:
        self.root, self.identity, self.is_new, self._lock = root, identity, is_new, lock

    @property
    def journal(self) -> Path:
        return self.root / "metadata" / "journal"

    @property
    def snapshot(self) -> Path:
        return self.root / "metadata" / "snapshot"

    @property
    def installing(self) -> Path:
        return self.root / "metadata" / "installing"

    @property
    def log(self) -> Path:
        return self.root / "log"

    def raise_level(self, level: int) -> None:
        """Let programs below `level` refuse this directory from now on, durably. OSError when the disk fails.

        Comes before anything of that level is written here; a lower one than it has changes nothing.
        """
        if level > self.identity.level:
            raised = self.identity._replace(level=level)
            identities.write(self.root / "store.toml", raised)
            self.identity = raised

    def note_raised(self, level: int) -> None:
        """Remember, durably, that the cluster has this level: the next start begins with it. OSError."""
        if level > self.identity.raised:
            known = self.identity._replace(level=max(level, self.identity.level), raised=level)
            identities.write(self.root / "store.toml", known)
            self.identity = known

    def close(self) -> None:
        self._lock.close()


def open_directory(root: Path) -> DataDirectory:
    """Lock `root` and read who it belongs to; an empty or absent directory becomes a new store.

    Raises:
        StoreLockedError: another process uses it.
        NewerFormatError: a newer program made it.
        StorageError: it holds files but no identity, or a log but no metadata. Nothing is changed then.
    """
    return _locked(root, _opened)


class JoiningDirectory:
    """A locked directory whose store asks to become a node of a cluster; `close` gives the lock back.

    `store` was drawn once: who asks again after a crash is the one that asked before.
    """

    def __init__(self, root: Path, lock: DirectoryLock) -> None:
        """Raises StorageError, OSError."""
        self.root, self._lock = root, lock
        path = root / "joining"
        _check_strangers(root)
        if not path.exists():
            write_atomically(path, secrets.token_hex(UUID_BYTES).encode())
        try:
            self.store = bytes.fromhex(path.read_text("ascii"))
        except ValueError as error:
            raise StorageError(f"{path} cannot be read: {error}; remove it and join again") from error
        if len(self.store) != UUID_BYTES:
            raise StorageError(f"{path} holds no store id; remove it and join again")

    def settle(self, *, cluster: bytes, history: bytes, node: int, level: int = 0) -> DataDirectory:
        """The cluster has taken the store: from now on this is a node's directory, with an empty journal."""
        made = Identity(
            cluster=cluster, history=history, store=self.store, node=node, level=level, raised=level
        )
        identities.write(self.root / "store.toml", made)
        (self.root / "joining").unlink()
        sync_directory(self.root)
        return _opened(self.root, self._lock)

    def close(self) -> None:
        self._lock.close()


def open_or_join(root: Path) -> DataDirectory | JoiningDirectory:
    """Open a data directory; an empty or absent one asks to join. Raises as `open_directory`."""
    if (root / "store.toml").exists():
        return open_directory(root)
    return _locked(root, JoiningDirectory)


def open_existing(root: Path) -> DataDirectory:
    """Lock a data directory that must exist, changing nothing else in it; it may be read-only.

    Raises:
        StorageError: there is none. StoreLockedError, NewerFormatError as `open_directory`.
    """
    if not (root / "store.toml").exists():
        raise StorageError(
            f"{root} is no data directory: it has no store.toml; name the one that `serve` was given"
        )
    try:
        lock = DirectoryLock(root / "lock", read_only=True)
    except OSError as error:
        raise unusable(root, error) from error
    try:
        return DataDirectory(root, identities.read(root / "store.toml"), lock, is_new=False)
    except BaseException:
        lock.close()
        raise


def _locked(root: Path, opened: Callable[[Path, DirectoryLock], Opened]) -> Opened:
    """Make `root` where it is absent, lock it and open it; what fails gives the lock back."""
    if root.is_symlink() and not root.exists():
        raise StorageError(f"data directory {root} links to {root.readlink()}, which is not there; mount it")
    try:
        root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _check_unlocked(root)
        lock = DirectoryLock(root / "lock")
    except OSError as error:
        raise unusable(root, error) from error
    try:
        return opened(root, lock)
    except OSError as error:
        lock.close()
        raise unusable(root, error) from error
    except BaseException:
        lock.close()
        raise


def _opened(root: Path, lock: DirectoryLock) -> DataDirectory:
    is_new = not (root / "store.toml").exists()
    if is_new:
        _make_identity(root)
    else:
        sync_directory(root)  # the start that wrote the identity may have failed at just this
    directory = DataDirectory(root, identities.read(root / "store.toml"), lock, is_new=is_new)
    for path in (directory.journal, directory.snapshot, directory.installing):
        remove_leftover(path) if path.parent.exists() else None
    if not directory.journal.exists():
        _make_journal(directory)
    make_private(root / "store.toml", root / "lock", directory.journal.parent)
    make_private(directory.journal, directory.snapshot, directory.installing)
    return directory


def _check_strangers(root: Path) -> None:
    strangers = sorted(path.name for path in root.iterdir() if path.name not in _OURS | _NEUTRAL)
    if strangers:
        raise StorageError(
            f"{root} holds {', '.join(strangers[:5])} but no store.toml: it is no data directory, or its "
            "identity is lost; restore store.toml from a backup, or choose an empty directory"
        )


def _check_unlocked(root: Path) -> None:
    """So that not even a lock file comes into a folder of somebody else's."""
    identity = root / "store.toml"
    if identity.exists():
        return
    try:
        _check_strangers(root)
    except StorageError:
        if not identity.exists():  # else another process has just begun its store here, and has the lock
            raise


def _make_identity(root: Path) -> None:
    _check_strangers(root)
    cluster, history, store = (secrets.token_bytes(UUID_BYTES) for _ in range(3))
    made = Identity(
        cluster=cluster,
        history=history,
        store=store,
        node=NODE_FIRST,
        level=LEVEL_NEWEST,
        raised=LEVEL_NEWEST,
    )
    identities.write(root / "store.toml", made)


def _make_journal(directory: DataDirectory) -> None:
    """A first start that crashed left an identity alone: go on.

    With rows or a snapshot there, metadata is lost.
    """
    rows = next(directory.log.iterdir(), None) if directory.log.exists() else None
    if rows is not None or directory.snapshot.exists():
        raise StorageError(
            f"{directory.journal} is missing, but {rows or directory.snapshot} is there: restore the "
            "metadata from a "
            "backup. Nothing was changed"
        )
    directory.journal.parent.mkdir(FOLDER_MODE, exist_ok=True)
    sync_directory(directory.root)
    Journal.create(directory.journal, history=directory.identity.history)

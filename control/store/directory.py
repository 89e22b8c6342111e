"""Open a data directory, or create one. Existing files are never overwritten."""

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

OpenResult = TypeVar("OpenResult")
NODE_FIRST: Final = 1
# Files of an interrupted first start: a directory with no others may become a store.
_OWN_FILES: Final = frozenset({"lock", "store.toml.new", "joining", "joining.new"})
_NEUTRAL_FILES: Final = frozenset({"lost+found"})
WAYS_OUT: Final = {
    errno.EACCES: "run the program as the directory's user, or choose another --data",
    errno.EPERM: "run the program as the directory's user, or choose another --data",
    errno.EROFS: "mount the file system writable, or choose another --data",
    errno.ENOSPC: "free some space, or choose another --data",
    errno.EDQUOT: "free some space, or choose another --data",
    errno.EIO: "check the disk",
}


def unusable_error(root: Path, error: OSError | ValueError) -> StorageError:
    """The error for a system call that failed on a data directory, with the file's name and the way out."""
    if not isinstance(error, OSError):  # An invalid path, for example with a null byte.
        return StorageError(f"data directory {root}: {error}; choose another --data")
    file = error.filename
    at = "" if file is None or Path(os.fsdecode(file)) == root else f" ({os.fsdecode(file)})"
    way_out = WAYS_OUT.get(error.errno or 0, "choose another --data, or check the disk")
    return StorageError(f"data directory {root}: {error.strerror or error}{at}; {way_out}")


class DataDirectory:
    """An open data directory; `close` releases the lock."""

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
        """Make programs below `level` refuse this directory, durably. OSError if the disk fails.

        The caller does this before it writes anything of that level. A level that is not higher than the
        directory's changes nothing.
        """
        if level > self.identity.level:
            identity = self.identity._replace(level=level)
            identities.write(self.root / "store.toml", identity)
            self.identity = identity

    def note_cluster_level(self, level: int) -> None:
        """Store the cluster's level durably, for the next start. OSError if the disk fails."""
        if level > self.identity.cluster_level:
            identity = self.identity._replace(level=max(level, self.identity.level), cluster_level=level)
            identities.write(self.root / "store.toml", identity)
            self.identity = identity

    def close(self) -> None:
        self._lock.close()


def open_directory(root: Path) -> DataDirectory:
    """Lock `root` and read its identity; an empty or absent directory becomes a new store.

    Raises:
        StoreLockedError: another process uses the directory.
        NewerFormatError: a newer program wrote it.
        StorageError: it has files but no identity, or a log but no metadata. Nothing is changed then.
    """
    return _open_locked(root, _open_store)


class JoiningDirectory:
    """A locked directory whose store asks to become a node of a cluster; `close` releases the lock.

    The id `store` is durable before the first request, so a request after a crash has the same id.
    """

    def __init__(self, root: Path, lock: DirectoryLock) -> None:
        """Raises StorageError if the directory has other files, OSError if the disk fails."""
        self.root, self._lock = root, lock
        path = root / "joining"
        _check_foreign_files(root)
        if not path.exists():
            write_atomically(path, secrets.token_hex(UUID_BYTES).encode())
        try:
            self.store = bytes.fromhex(path.read_text("ascii"))
        except ValueError as error:
            raise StorageError(f"{path} cannot be read: {error}; remove it and join again") from error
        if len(self.store) != UUID_BYTES:
            raise StorageError(f"{path} has no store id; remove it and join again")

    def settle(self, *, cluster: bytes, history: bytes, node: int, level: int = 0) -> DataDirectory:
        """Turn the directory into that of an admitted node, with an empty journal."""
        identity = Identity(
            cluster=cluster, history=history, store=self.store, node=node, level=level, cluster_level=level
        )
        identities.write(self.root / "store.toml", identity)
        (self.root / "joining").unlink()
        sync_directory(self.root)
        return _open_store(self.root, self._lock)

    def close(self) -> None:
        self._lock.close()


def open_or_join(root: Path) -> DataDirectory | JoiningDirectory:
    """Open a data directory; an empty or absent one becomes a joining one. Raises as `open_directory`."""
    if (root / "store.toml").exists():
        return open_directory(root)
    return _open_locked(root, JoiningDirectory)


def open_existing(root: Path) -> DataDirectory:
    """Lock an existing data directory, and change nothing else in it; it may be read-only.

    Raises:
        StorageError: there is no data directory. StoreLockedError, NewerFormatError as `open_directory`.
    """
    if not (root / "store.toml").exists():
        raise StorageError(f"{root} is no data directory: it has no store.toml; give the --data of `serve`")
    try:
        lock = DirectoryLock(root / "lock", read_only=True)
    except OSError as error:
        raise unusable_error(root, error) from error
    try:
        return DataDirectory(root, identities.read(root / "store.toml"), lock, is_new=False)
    except BaseException:
        lock.close()
        raise


def _open_locked(root: Path, open_root: Callable[[Path, DirectoryLock], OpenResult]) -> OpenResult:
    """Create `root` if it is absent, lock it and open it; a failure releases the lock."""
    if root.is_symlink() and not root.exists():
        raise StorageError(
            f"data directory {root} links to {root.readlink()}, which does not exist; mount it"
        )
    try:
        root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _check_unlocked(root)
        lock = DirectoryLock(root / "lock")
    except OSError as error:
        raise unusable_error(root, error) from error
    try:
        return open_root(root, lock)
    except OSError as error:
        lock.close()
        raise unusable_error(root, error) from error
    except BaseException:
        lock.close()
        raise


def _open_store(root: Path, lock: DirectoryLock) -> DataDirectory:
    is_new = not (root / "store.toml").exists()
    if is_new:
        _make_identity(root)
    else:
        sync_directory(root)  # The start that wrote the identity may have failed at this step.
    directory = DataDirectory(root, identities.read(root / "store.toml"), lock, is_new=is_new)
    for path in (directory.journal, directory.snapshot, directory.installing):
        remove_leftover(path) if path.parent.exists() else None
    if not directory.journal.exists():
        _make_journal(directory)
    make_private(root / "store.toml", root / "lock", directory.journal.parent)
    make_private(directory.journal, directory.snapshot, directory.installing)
    return directory


def _check_foreign_files(root: Path) -> None:
    foreign = sorted(path.name for path in root.iterdir() if path.name not in _OWN_FILES | _NEUTRAL_FILES)
    if foreign:
        raise StorageError(
            f"{root} holds {', '.join(foreign[:5])} but no store.toml: it is no data directory, or its "
            "identity is lost; restore store.toml from a backup, or choose an empty directory"
        )


def _check_unlocked(root: Path) -> None:
    """Check for foreign files before the lock file is created, so that a foreign folder stays unchanged."""
    identity = root / "store.toml"
    if identity.exists():
        return
    try:
        _check_foreign_files(root)
    except StorageError:
        # If the identity exists by now, another process has just created its store here and has the lock.
        if not identity.exists():
            raise


def _make_identity(root: Path) -> None:
    _check_foreign_files(root)
    cluster, history, store = (secrets.token_bytes(UUID_BYTES) for _ in range(3))
    identity = Identity(
        cluster=cluster,
        history=history,
        store=store,
        node=NODE_FIRST,
        level=LEVEL_NEWEST,
        cluster_level=LEVEL_NEWEST,
    )
    identities.write(root / "store.toml", identity)


def _make_journal(directory: DataDirectory) -> None:
    """Create the journal of a first start, or of one that crashed after it wrote the identity.

    If rows or a snapshot exist, the journal existed too and is lost: StorageError.
    """
    rows = next(directory.log.iterdir(), None) if directory.log.exists() else None
    if rows is not None or directory.snapshot.exists():
        raise StorageError(
            f"{directory.journal} is missing, but {rows or directory.snapshot} exists: restore the metadata "
            "from a backup. Nothing was changed"
        )
    directory.journal.parent.mkdir(FOLDER_MODE, exist_ok=True)
    sync_directory(directory.root)
    Journal.create(directory.journal, history=directory.identity.history)

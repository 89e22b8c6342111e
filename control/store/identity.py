"""Read and write `store.toml`: the owner of a data directory, and the programs that may open it.

format 1   a directory that programs without levels may open; written once
format 2   `level` is the newest level of any data in the directory. It is raised durably before data of that
           level is written, so that an older program refuses the directory before it changes a byte.
           `raised` is the cluster's level as this store knows it, written before the engine uses it
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringfence.control.model.ids import UUID_BYTES
from ringfence.control.store.files import write_atomically
from ringfence.native._node import crc32c
from ringfence.native.errors import NewerFormatError, StorageError, StoreIdentityError
from ringfence.native.wire import BLOCK_ALIGN_BYTES, FILE_MAGIC, LEVEL_NEWEST

IDENTITY_FORMAT: Final = 2
FORMAT_WITHOUT_LEVEL: Final = 1


class Identity(NamedTuple):
    """The identity of a store.

    The ids were drawn at random when the directory was created. `level` and `cluster_level` (`raised` in the
    file) only grow.
    """

    cluster: bytes
    history: bytes
    store: bytes
    node: int
    level: int = 0
    cluster_level: int = 0


def write(path: Path, identity: Identity) -> None:
    """Write `path` durably. OSError if the disk fails."""
    lines = (
        "# Whose data this directory holds. Written once; with another content the node refuses to start.",
        f"format = {IDENTITY_FORMAT if identity.level else FORMAT_WITHOUT_LEVEL}",
        *([f"level = {identity.level}", f"raised = {identity.cluster_level}"] if identity.level else []),
        f'cluster = "{identity.cluster.hex()}"',
        f'history = "{identity.history.hex()}"',
        f'store = "{identity.store.hex()}"',
        f"node = {identity.node}",
        "",
    )
    write_atomically(path, "\n".join(lines).encode())


def read(path: Path) -> Identity:
    """The identity in `path`.

    Raises:
        NewerFormatError: a newer program made the directory, or raised its level.
        StorageError: the file is damaged.
    """
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}; restore it from a backup") from error
    version = values.get("format")
    if isinstance(version, int) and version > IDENTITY_FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}, this program knows up to {IDENTITY_FORMAT}; use a newer program"
        )
    node, level, cluster_level = values.get("node"), values.get("level", 0), values.get("raised", 0)
    is_valid = version in (FORMAT_WITHOUT_LEVEL, IDENTITY_FORMAT) and all(
        isinstance(number, int) and number >= 0 for number in (level, cluster_level)
    )
    if not is_valid or not isinstance(node, int) or node <= 0:
        raise StorageError(
            f"{path}: format={version!r}, node={node!r}, level={level!r}, "
            f"raised={cluster_level!r} are no valid identity; restore the file from a backup"
        )
    if level > LEVEL_NEWEST:
        raise NewerFormatError(
            f"{path} has level {level}, this program knows up to level {LEVEL_NEWEST}; use a newer program. "
            "Nothing was changed"
        )
    return Identity(
        cluster=_uuid(path, values, "cluster"),
        history=_uuid(path, values, "history"),
        store=_uuid(path, values, "store"),
        node=node,
        level=level,
        cluster_level=cluster_level,
    )


def check_segments(log: Path, identity: Identity) -> None:
    """Compare `identity` with the headers of the segment files (core/log/src/file_header.rs).

    Files with a damaged header are skipped.

    Raises:
        StoreIdentityError: a file is of another cluster, history or store. OSError if the disk fails.
    """
    for path in sorted(log.glob("*.seg")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            block = file.read(BLOCK_ALIGN_BYTES)
        magic, crc = (int.from_bytes(block[at : at + 4], "little") for at in (0, 4))
        if len(block) != BLOCK_ALIGN_BYTES or magic != FILE_MAGIC or crc != crc32c(block[8:]):
            continue
        for at, key in ((16, "cluster"), (32, "history"), (48, "store")):
            actual, expected = block[at : at + UUID_BYTES], getattr(identity, key)
            if actual != expected:
                raise StoreIdentityError(
                    f"{path} is of another {key} than store.toml: {actual.hex()}, not {expected.hex()}; "
                    "restore the file that is not this node's. Nothing was changed"
                )


def _uuid(path: Path, values: dict[str, Any], key: str) -> bytes:
    text = values.get(key)
    try:
        value = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        value = b""
    if len(value) != UUID_BYTES or not any(value):
        raise StorageError(
            f"{path}: {key}={text!r} is no id of {2 * UUID_BYTES} hex digits; restore it from a backup"
        )
    return value

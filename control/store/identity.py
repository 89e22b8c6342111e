"""Whose data directory this is, and which programs may open it: `store.toml`, readable by people.

format 1   a directory that programs without levels may open; written once
format 2   with `level`: the newest level that anything here may have. Raised durably before anything of that
           level is written, so that an older program refuses the directory before it changes a byte.
           `raised`: the cluster's level as this store knows it, written before the engine hears of it
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
    """The ids are random and were drawn when the directory was made. `level` and `raised` grow alone."""

    cluster: bytes
    history: bytes
    store: bytes
    node: int
    level: int = 0
    raised: int = 0


def write(path: Path, identity: Identity) -> None:
    """Write `path` durably. OSError when the disk fails."""
    lines = (
        "# Whose data this directory holds. Written once; with another content the node refuses to start.",
        f"format = {IDENTITY_FORMAT if identity.level else FORMAT_WITHOUT_LEVEL}",
        *([f"level = {identity.level}", f"raised = {identity.raised}"] if identity.level else []),
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
            f"{path} has format {version}, this program knows up to {IDENTITY_FORMAT}; use a newer one"
        )
    node, level, raised = values.get("node"), values.get("level", 0), values.get("raised", 0)
    known = version in (FORMAT_WITHOUT_LEVEL, IDENTITY_FORMAT) and all(
        isinstance(number, int) and number >= 0 for number in (level, raised)
    )
    if not known or not isinstance(node, int) or node <= 0:
        raise StorageError(
            f"{path}: format={version!r}, node={node!r}, level={level!r}, "
            f"raised={raised!r} are no identity; restore it from a backup"
        )
    if level > LEVEL_NEWEST:
        raise NewerFormatError(
            f"{path} has level {level}, this program knows up to level {LEVEL_NEWEST}; use a newer one. "
            "Nothing was changed"
        )
    return Identity(
        cluster=_uuid(path, values, "cluster"),
        history=_uuid(path, values, "history"),
        store=_uuid(path, values, "store"),
        node=node,
        level=level,
        raised=raised,
    )


def check_segments(log: Path, identity: Identity) -> None:
    """Compare with what the segments say of themselves (core/log/src/file_header.rs), if they are sound.

    Raises:
        StoreIdentityError: rows of another cluster, history or store. OSError.
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
            found, ours = block[at : at + UUID_BYTES], getattr(identity, key)
            if found != ours:
                raise StoreIdentityError(
                    f"{path} is of another {key} than store.toml beside it: {found.hex()}, not {ours.hex()}; "
                    "restore whichever is not this node's. Nothing was changed"
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

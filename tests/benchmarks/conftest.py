"""Bodies to send, and the native programs."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from benchmarks.native_build import build

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def native() -> dict[str, str]:
    """Paths of probe and loadgen.

    Built in the profile of `cargo test`, whose libraries they share: nothing here is held against a clock.
    """
    return build("dev", "probe", "loadgen")


@pytest.fixture
def bodies(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """A file of seven bodies, body `i` of `i + 1` rows; one is larger than a socket's buffers."""
    contents = [os.urandom(size) for size in (1, 300, 4096, 40_000, 9_000_000, 2, 5000)]
    path = tmp_path / "bodies"
    entries = (struct.pack("<QQ", rows, len(body)) + body for rows, body in enumerate(contents, 1))
    path.write_bytes(b"".join(entries))
    return path, contents

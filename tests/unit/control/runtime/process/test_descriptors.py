"""Connections leave descriptors for the log."""

from __future__ import annotations

import pytest

from ringfence.control.runtime.process.descriptors import RESERVED_MAX, share


@pytest.mark.parametrize(
    ("open_files", "connections_max", "expected"),
    [
        (20_000, 4096, 4096),
        (4096 + RESERVED_MAX, 4096, 4096),
        (1024, 4096, 1024 - RESERVED_MAX),
        (200, 4096, 100),
        (200, 50, 50),
        (1, 4096, 1),
    ],
)
def test_a_low_limit_of_open_files_is_shared(open_files: int, connections_max: int, expected: int) -> None:
    assert share(open_files, connections_max) == expected

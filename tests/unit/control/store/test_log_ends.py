"""The file of log ends: replaced whole or not at all, in place, and never taken from another store."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.control.store import log_ends
from ringfence.control.store.log_ends import NAME, LogEnds

STORE = b"s" * 16


def again(root: Path, store: bytes = STORE) -> bytes:
    return LogEnds(root, store).read()


def test_what_was_written_last_is_read_and_the_file_grows_only_where_it_must(tmp_path: Path) -> None:
    ends = LogEnds(tmp_path, STORE)
    assert ends.read() == b""
    sizes = []
    for number in range(1, 400):
        entries = bytes([number % 251]) * 32 * number
        ends.write(entries)
        assert again(tmp_path) == entries
        sizes.append((tmp_path / NAME).stat().st_size)
    assert len(set(sizes)) <= 3 and sizes == sorted(sizes)
    late = LogEnds(tmp_path, STORE)
    late.read()
    late.write(b"after a start")
    assert again(tmp_path) == b"after a start"


@pytest.mark.parametrize("at", [0, 9, 13, 17, 25, 33, 50])
def test_a_torn_or_damaged_slot_leaves_the_one_before(tmp_path: Path, at: int) -> None:
    ends = LogEnds(tmp_path, STORE)
    for entries in (b"first" * 8, b"second" * 8, b"third" * 8):
        ends.write(entries)
    data = bytearray((tmp_path / NAME).read_bytes())
    half = len(data) // 2
    newest = half if b"third" in data[half:] else 0
    data[newest + at] ^= 1
    (tmp_path / NAME).write_bytes(data)
    assert again(tmp_path) == b"second" * 8
    data[half - newest + at] ^= 1
    (tmp_path / NAME).write_bytes(data)
    assert again(tmp_path) == b"", "both are damaged: nothing is known"


def test_the_file_of_another_store_and_one_that_was_cut_off_say_nothing(tmp_path: Path) -> None:
    LogEnds(tmp_path, STORE).write(b"entries")
    assert again(tmp_path, b"t" * 16) == b""
    for size in (0, 1, 100, log_ends._SLOT_MIN):
        (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:size])
        again(tmp_path)

"""The simulated files lose what real ones may lose, and nothing else."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.sim.world.files import DiedError, File, Files


def made(files: Files, name: str = "/d/f") -> int:
    return files.open(name, os.O_RDWR | os.O_CREAT)


def synced(files: Files, *pieces: bytes) -> int:
    to = made(files)
    for piece in pieces:
        files.write(to, piece)
    files.sync(to)
    files.sync(files.open("/d", os.O_RDONLY | os.O_DIRECTORY))
    return to


def after_cuts(begin: Files, tries: int = 60) -> set[bytes | None]:
    """What `/d/f` may hold behind a power cut."""
    found: set[bytes | None] = set()
    for seed in range(tries):
        files = Files()
        files.names = {name: file.copy() for name, file in begin.names.items()}
        files.durable = {name: files.names.get(name, file) for name, file in begin.durable.items()}
        files._renames = [
            (folder, what, name, None if file is None else files.names.get(name.split("\0")[-1], file))
            for folder, what, name, file in begin._renames
        ]
        files.random = Random(seed)
        files.power_cut()
        file = files.names.get("/d/f")
        found.add(None if file is None else bytes(file.data))
    return found


def test_what_was_synced_survives_every_power_cut() -> None:
    files = Files()
    synced(files, b"abc")
    assert after_cuts(files) == {b"abc"}


def test_what_was_not_synced_may_be_there_or_not_or_torn() -> None:
    files = Files()
    to = synced(files, b"abc")
    files.write(to, b"x" * 1_500)
    found = after_cuts(files)
    assert b"abc" in found
    assert b"abc" + b"x" * 1_500 in found
    assert any(each is not None and 3 < len(each) < 1_503 for each in found), "never torn"
    assert any(each is not None and b"\0x" in each for each in found), "never out of order"


def test_a_name_is_durable_with_its_folder_only() -> None:
    files = Files()
    to = made(files)
    files.write(to, b"abc")
    files.sync(to)
    assert after_cuts(files) == {None, b"abc"}


def test_a_failed_sync_leaves_what_it_lost_readable_until_the_power_goes() -> None:
    files = Files()
    to = synced(files, b"abc")
    files.write(to, b"def")
    files.fail_sync = 1.0
    with pytest.raises(OSError, match="failed at a sync"):
        files.sync(to)
    files.fail_sync = 0.0
    files.sync(to)
    assert bytes(files.names["/d/f"].data) == b"abcdef"
    assert after_cuts(files) == {b"abc"}


def test_a_full_disk_takes_what_fits() -> None:
    files = Files()
    to = synced(files, b"abc")
    files.room = 5
    assert files.write(to, b"defgh") == 2
    with pytest.raises(OSError, match="no space"):
        files.write(to, b"h")


def test_a_process_that_died_inside_of_a_call_changes_nothing_more() -> None:
    files = Files()
    to = synced(files, b"abc")
    files.dies_after = 1
    files.write(to, b"d")
    for _ in range(2):
        with pytest.raises(DiedError):
            files.write(to, b"e")
    assert bytes(files.names["/d/f"].data) == b"abcd"


def test_rot_strikes_only_what_a_later_sync_proves() -> None:
    files = Files()
    files.random = Random(1)
    to = synced(files, b"abc")
    assert files.rot() is None
    files.write(to, b"def")
    files.sync(to)
    places = set()
    for _ in range(50):
        rot = files.rot()
        assert rot is not None
        file, at, was = rot
        assert isinstance(file, File)
        places.add(at)
        files.restore(file, at, was)
    assert places == {0, 1, 2}
    assert bytes(files.names["/d/f"].data) == b"abcdef"

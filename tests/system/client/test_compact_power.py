"""Compaction under power cuts: whatever names the disk had when it lost power, each row is in one file.

A name is durable once its folder was synced after the change; of the changes since then any part may be
there. The bytes of a file are durable once the file was synced; before that it may be empty.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.compact import compact, files
from tests.fakes.client_topic import SCHEMA, rows
from tests.harness.processes import NodeProcess

ROWS = 300
ROWS_A_FILE = 50

State = dict[str, bytes | None]
"""Contents by path; None: a folder."""
Content = list[bytes]
"""Of one file, whatever its name: empty until it is synced."""
Names = dict[str, Content | None]
"""Files and folders by path."""
Change = tuple[str, str, str, Content | None]
"""What is done, the former name, the name, what it names."""


@pytest.fixture(scope="module")
def client(module_folder: Path) -> Iterator[ringfence.Client]:
    with NodeProcess(module_folder / "data") as node, ringfence.connect(node.address, timeout_s=30) as made:
        yield made


class Disk:
    """What a power cut may leave of a directory, seen before each sync and each change of a name in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: Names = {}
        self.durable: Names = {}
        self.pending: list[Change] = []
        self.states: list[State] = []

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        notes: dict[str, Callable[..., None]] = {
            "rename": self._rename,
            "mkdir": self._mkdir,
            "unlink": self._unlink,
            "fsync": self._fsync,
        }
        for name, note in notes.items():
            patch.setattr(os, name, self._noted(getattr(os, name), note))

    def _noted(self, real: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self._find_new_files()
            self._note_states()
            found = real(*given, **named)
            note(*given)
            return found

        return call

    def _path(self, given: Any) -> str:
        path = Path(f"/proc/self/fd/{given}").readlink() if isinstance(given, int) else Path(given)
        return os.fspath(path.relative_to(self.root))

    def _change(self, what: str, old: str, new: str, content: Content | None) -> None:
        self.pending.append((what, old, new, content))
        self.names = changed(self.names, [self.pending[-1]])

    def _find_new_files(self) -> None:
        for path in self.root.rglob("*"):
            name = self._path(path)
            if path.is_file() and name not in self.names:
                self._change("create", name, name, [b""])

    def _rename(self, old: Any, new: Any) -> None:
        self._change("rename", self._path(old), self._path(new), self.names[self._path(old)])

    def _mkdir(self, path: Any, *_: Any) -> None:
        self._change("create", self._path(path), self._path(path), None)

    def _unlink(self, path: Any) -> None:
        self._change("unlink", self._path(path), self._path(path), None)

    def _fsync(self, descriptor: int) -> None:
        name = self._path(descriptor)
        content = self.names.get(name)
        if content is not None:
            content[0] = (self.root / name).read_bytes()
            return
        is_here = [name in {folder_of(old), folder_of(new)} for _, old, new, _ in self.pending]
        self.durable = changed(self.durable, itertools.compress(self.pending, is_here))
        self.pending = list(itertools.compress(self.pending, [not here for here in is_here]))

    def _note_states(self) -> None:
        for count in range(len(self.pending) + 1):
            for part in itertools.combinations(self.pending, count):
                names = changed(self.durable, part)
                folders = {".", *(path for path, content in names.items() if content is None)}
                state = {
                    path: None if content is None else content[0]
                    for path, content in names.items()
                    if folder_of(path) in folders
                }
                if state not in self.states:
                    self.states.append(state)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "."


def changed(names: Names, changes: Iterable[Change]) -> Names:
    made = dict(names)
    for what, old, new, content in changes:
        made.pop(old, None)
        if what != "unlink":
            made[new] = content
    return made


def lay_out(state: State, root: Path) -> None:
    root.mkdir()
    for path, content in sorted(state.items()):
        if content is None:
            (root / path).mkdir()
    for path, content in state.items():
        if content is not None:
            (root / path).write_bytes(content)


def test_each_row_is_in_one_file_whatever_a_power_cut_left(
    client: ringfence.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic("power", schema=SCHEMA, key=["id"], partitions=2)
    with client.producer("power") as producer:
        producer.send(rows(0, ROWS))
    out = tmp_path / "out"
    out.mkdir()
    disk = Disk(out)
    with monkeypatch.context() as patch:
        disk.watch(patch)
        compact(client, "power", out, rows_per_file=ROWS_A_FILE)
    assert len(disk.states) >= 40
    for number, state in enumerate(disk.states):
        left = tmp_path / str(number)
        lay_out(state, left)
        compact(client, "power", left, rows_per_file=ROWS_A_FILE + 1)
        found = pa.concat_tables([pq.read_table(path) for path in files(left)])["id"].to_pylist()
        assert sorted(found) == list(range(ROWS)), f"after {sorted(state)}"
        assert sorted(map(str, left.glob("*/*"))) == sorted(files(left)), "stray files"
        shutil.rmtree(left)

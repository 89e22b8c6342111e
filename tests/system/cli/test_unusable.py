"""Data directories that the system keeps from us: told in one line that names the file, never a defect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import PROGRAM, NodeProcess, cli, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Whoever is root reads and writes everything, but for these two capabilities.
OBEDIENT = ("setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search")


def refused(*arguments: str) -> str:
    """What a command says that must end with 7: one line."""
    command = (*(OBEDIENT if os.geteuid() == 0 else ()), str(PROGRAM), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Exit.STORAGE, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def stopped(module_folder: Path) -> Path:
    data = module_folder / "data"
    with NodeProcess(data) as node:
        assert cli("topic", "create", "t", "--column", "id:int64", address=node.address).returncode == 0
    return data


@pytest.fixture
def closed(stopped: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file or folder of the directory that nobody may open."""
    path = stopped / str(request.param)
    mode = path.stat().st_mode & 0o777
    path.chmod(0)
    try:
        yield path
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("closed", ["log", "metadata/journal", "store.toml"], indirect=True)
@pytest.mark.parametrize("command", [("serve",), ("fsck",), ("fsck", "--cluster")])
def test_files_of_somebody_else_are_named(command: tuple[str, ...], closed: Path, stopped: Path) -> None:
    line = refused(*command, "--data", str(stopped))
    assert str(closed) in line
    assert "Permission denied" in line


def test_dev_names_a_folder_that_it_may_not_make(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert f"{tmp_path / 'dev'}: Permission denied" in refused(
        "dev", "--nodes", "1", "--data", f"{tmp_path}/dev"
    )


def test_dev_names_a_file_of_ports_that_holds_none(tmp_path: Path) -> None:
    (tmp_path / "node-1.json").write_bytes(b"")  # as a full disk leaves it
    line = refused("dev", "--json", "--nodes", "1", "--data", str(tmp_path))
    assert str(tmp_path / "node-1.json") in line
    assert "remove the file" in line


def test_dev_ends_with_8_when_no_node_is_left(tmp_path: Path) -> None:
    command = [str(PROGRAM), "dev", "--json", "--nodes", "1", "--data", str(tmp_path)]
    dev = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    try:
        assert dev.stdout is not None
        (node,) = json.loads(dev.stdout.readline())["nodes"]
        os.kill(node["pid"], signal.SIGKILL)
        assert json.loads(dev.stdout.readline()) == {"event": "ended", "name": "node-1", "code": -9}
        until(lambda: dev.poll() is not None, what="the end of dev")
        assert dev.returncode == Exit.NODE_FAILED
    finally:
        dev.kill()
        dev.communicate()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("read", "t", "--output", "ro/x.parquet"), "ro/x.parquet cannot be written: Permission denied"),
        (("read", "t", "--output", "ro/x.arrow"), "ro/x.arrow cannot be written: Permission denied"),
        (("read", "t", "--output", "folder.parquet"), "folder.parquet cannot be written: Is a directory"),
        (("compact", "t", "ro/files"), "ro/files cannot be written: Permission denied"),
    ],
)
def test_an_output_that_may_not_be_written_is_named(
    node: NodeProcess, tmp_path: Path, command: tuple[str, ...], says: str
) -> None:
    made = cli("topic", "create", "t", "--column", "id:int64", "--exist-ok", address=node.address)
    assert made.returncode == 0, made.stderr
    (tmp_path / "ro").mkdir(mode=0o555)
    (tmp_path / "folder.parquet").mkdir()
    done = subprocess.run(
        [*(OBEDIENT if os.geteuid() == 0 else ()), str(PROGRAM), *command, "--address", node.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == Exit.OUTPUT, line
    assert f"the output {says}" in line
    assert any(way_out in line.rpartition("; ")[2] for way_out in ("choose a path", "name a file"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder.parquet", "ro"]


@pytest.mark.parametrize("key", ["cluster", "history", "store"])
@pytest.mark.parametrize("command", [("serve",), ("fsck",), ("fsck", "--cluster")])
def test_rows_of_another_store_are_told_by_all_alike(
    command: tuple[str, ...], key: str, stopped: Path
) -> None:
    path = stopped / "store.toml"
    before = path.read_text()
    digit = before.index(f'{key} = "') + len(key) + 4
    path.write_text(before[:digit] + ("1" if before[digit] == "0" else "0") + before[digit + 1 :])
    try:
        line = refused(*command, "--data", str(stopped))
        assert ("metadata/journal is of history" if key == "history" else f"is of another {key}") in line
    finally:
        path.write_text(before)

"""A client in JavaScript, written from docs/protocol.md alone, against a running node."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from tests.harness.processes import NodeProcess

HERE = Path(__file__).resolve().parent
TOPIC = "javascript"
ROWS = 1000
INSTALL_TIMEOUT_S = 240
CLIENT_TIMEOUT_S = 120


def program(name: str) -> str:
    """Path of a program that this test cannot do without. A skip would pass unseen, hence it fails."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not on PATH: the JavaScript client needs Node.js 18 or newer with npm")
    return found


def run(*command: str, timeout_s: int) -> str:
    """What the command printed; a failure shows both its streams."""
    done = subprocess.run(
        [*command],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        # Colours are for people; a proxy's or a user's npm settings stay as they are.
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, (
        f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def node_js() -> str:
    """`node`, with the packages of package-lock.json beside the client."""
    javascript, npm = program("node"), program("npm")
    # Parallel test workers install one after the other, hence only once.
    with (HERE / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # npm writes this file last: a folder without it is an install that was cut short.
        if not (HERE / "node_modules" / ".package-lock.json").exists():
            run(npm, "ci", "--ignore-scripts", timeout_s=INSTALL_TIMEOUT_S)
    return javascript


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "node") as process:
        yield process


def read_by_partition(address: str) -> dict[str, list[list[Any]]]:
    """What the library reads, as the client prints it: partition id -> [id as text, name] of each row."""
    rows: dict[str, list[list[Any]]] = {}
    with ringfence.connect(address) as client:
        for entry in client.topic(TOPIC).partitions:
            got = rows.setdefault(str(entry.partition), [])
            for batch in client.read(TOPIC, partition=entry.partition):
                ids, names = batch.column("id").to_pylist(), batch.column("name").to_pylist()
                got.extend([str(row), name] for row, name in zip(ids, names, strict=True))
    return rows


@pytest.mark.timeout(INSTALL_TIMEOUT_S + CLIENT_TIMEOUT_S + 120)
def test_the_protocol_page_is_enough_for_another_language(node_js: str, node: NodeProcess) -> None:
    told = json.loads(run(node_js, "client.mjs", node.address, TOPIC, timeout_s=CLIENT_TIMEOUT_S))

    assert told["rows"] == ROWS
    assert told["repeated"] is True
    assert told["refused"] == {"sequence_gap": 13, "stale_epoch": 3, "body_crc": 5}
    assert len(told["partitions"]) == 4

    stored = read_by_partition(node.address)
    assert stored == told["partitions"]
    rows = [row for part in stored.values() for row in part]
    assert len({row_id for row_id, _ in rows}) == ROWS
    assert sum(name is None for _, name in rows) == ROWS // 5


def test_a_topic_that_exists_ends_the_client_with_an_error(node_js: str, node: NodeProcess) -> None:
    """Its exit code means something: the same command once more cannot create its topic."""
    run(node_js, "client.mjs", node.address, TOPIC, timeout_s=CLIENT_TIMEOUT_S)
    with pytest.raises(AssertionError, match=r"code 27 .* exists"):
        run(node_js, "client.mjs", node.address, TOPIC, timeout_s=CLIENT_TIMEOUT_S)


def test_a_missing_program_fails_with_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match=r"node is not on PATH: .* Node\.js 18 or newer"):
        program("node")

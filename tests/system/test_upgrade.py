"""Data directories that e1e0e05 recorded: opened by this program, used, finalized, compared row by row.

`make test-upgrade` is the long form: both programs as processes, nodes of both in one cluster.
"""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringfence.control.store import identity
from ringfence.native.wire import LEVEL_NEWEST
from tests.harness.processes import cli, free_port
from tests.upgrade import lives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.cluster import ThreeNodes

DATA = Path(__file__).parents[1] / "upgrade" / "data"


def unpacked(name: str, root: Path) -> lives.Rows:
    """The recorded directories in `root`; the rows that were in them."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    told = json.loads((DATA / "rows.json").read_text())[name]
    return {topic: {int(part): kept for part, kept in parts.items()} for topic, parts in told.items()}


def check_used(before: lives.Rows, after: lives.Rows, start: int) -> None:
    """Each partition has what it had, in its order, and behind it the rows of `lives.used`, each once."""
    for topic, parts in before.items():
        for part, had in parts.items():
            assert after[topic][part][: len(had)] == had, f"partition {part} of {topic}"
    added = {
        topic: sorted(tuple(row) for part, got in parts.items() for row in got[len(before[topic][part]) :])
        for topic, parts in after.items()
    }
    assert added["plain"] == [(4, number) for number in range(start, start + 50)]
    last = max(number for parts in before["named"].values() for _, number in parts)
    assert added["named"] == [(2, number) for number in range(last + 1, last + 11)]


def told(http: str, *arguments: str) -> Any:
    """What `ringfence cluster` prints as JSON."""
    ended = cli("cluster", *arguments, "--http", f"http://{http}", "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def level_of(folder: Path) -> int:
    return identity.read(folder / "store.toml").level


def test_a_node_alone_is_finalized_by_its_first_start_and_has_all_of_its_rows(tmp_path: Path) -> None:
    had = unpacked("one", tmp_path)
    assert level_of(tmp_path / "one") == 0
    with lives.one(tmp_path) as node:
        assert lives.rows(node.address) == had
        assert level_of(node.data) == LEVEL_NEWEST
        assert "finalized" in node.log.read_text()
        lives.used(node.address, 2_000)
        after = lives.rows(node.address)
        check_used(had, after, 2_000)
        node.kill()
        node.restart()
        assert lives.rows(node.address) == after


@pytest.fixture
def https() -> tuple[str, ...]:
    return tuple(f"{host}:{free_port()}" for host in lives.HOSTS)


@pytest.fixture
def upgraded(tmp_path: Path, https: tuple[str, ...]) -> Iterator[ThreeNodes]:
    cluster = lives.three(tmp_path, http=https)
    try:
        yield cluster
    finally:
        cluster.kill_all()


def test_three_nodes_stay_at_their_level_until_they_are_finalized(
    tmp_path: Path, upgraded: ThreeNodes, https: tuple[str, ...]
) -> None:
    had = unpacked("three", tmp_path)
    folders = [node.data for node in upgraded.nodes]
    identities = [(folder / "store.toml").read_bytes() for folder in folders]
    upgraded.restart_all()
    upgraded.until_whole()
    assert lives.rows(upgraded.nodes[0].address) == had
    lives.used(upgraded.nodes[0].address, 2_000)
    after = lives.rows(upgraded.nodes[2].address)
    check_used(had, after, 2_000)

    # Nobody can be asked on behalf of a node that is down.
    upgraded.nodes[2].stop()
    upgraded.led_by_one_of((0, 1))
    refused = cli("cluster", "finalize", "--http", f"http://{https[0]}", timeout_s=90)
    assert refused.returncode == 3, refused.stderr
    assert f"node {upgraded.id(2)}" in refused.stderr
    assert [(folder / "store.toml").read_bytes() for folder in folders] == identities

    upgraded.nodes[2].restart()
    upgraded.until_whole()
    until_heard(https[0])
    assert told(https[1], "versions")["level"] == 0
    assert told(https[0], "finalize")["level"] == LEVEL_NEWEST
    assert [level_of(folder) for folder in folders] == [LEVEL_NEWEST] * 3
    assert told(https[2], "finalize")["level"] == LEVEL_NEWEST, "once more does no harm"
    lives.used(upgraded.nodes[1].address, 3_000)
    check_used(after, lives.rows(upgraded.nodes[1].address), 3_000)
    last = lives.rows(upgraded.nodes[0].address)
    upgraded.kill_all()
    upgraded.restart_all()
    upgraded.until_whole()
    upgraded.until_equal()
    assert lives.rows(upgraded.nodes[0].address) == last
    assert told(https[0], "versions")["level"] == LEVEL_NEWEST
    audit = cli("cluster", "versions", "--http", f"http://{https[0]}")
    assert f"the cluster has level {LEVEL_NEWEST}" in audit.stdout


def until_heard(http: str) -> None:
    """The leader has heard the levels of all nodes."""
    end = time.monotonic() + 60
    while (known := told(http, "versions"))["holds"]:
        assert time.monotonic() < end, known
        time.sleep(0.2)

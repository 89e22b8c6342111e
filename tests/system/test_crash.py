"""kill -9 under load: producers see no error, and every acknowledged row is there once and in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, NodeProcess, batch, check_identity, cli, read_ids

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 5


@pytest.mark.timeout(300)
def test_kill_9_under_load_loses_and_doubles_nothing(tmp_path: Path, soak: int) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with ringfence.connect(node.address) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=8)
        loads = [Load(node.address, "t", producer, pause_s=0.0).start() for producer in range(2)]
        for _ in range(KILLS * soak):
            time.sleep(0.7)
            node.kill()
            node.restart()
        time.sleep(0.5)
        for load in loads:
            load.finish()
        assert [load.errors for load in loads] == [[], []]
        with ringfence.connect(node.address) as client:
            rows = read_ids(client, "t")
        acknowledged = {load.producer: load.acknowledged for load in loads}
        assert min(len(ids) for ids in acknowledged.values()) > 1000, "too little load to prove anything"
        check_identity(rows, acknowledged, {load.producer: load.sent for load in loads})
        assert node.stop() == 0
    report = cli("fsck", "--data", str(tmp_path / "data"), "--json")
    assert report.returncode == 0, report.stdout + report.stderr


def test_a_clean_stop_and_start_keeps_offsets_and_contents(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with ringfence.connect(node.address) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
            with client.producer("t") as producer:
                futures = [producer.send(batch(start, 100)) for start in range(0, 10_000, 100)]
            assert all(future.done() for future in futures)
            before = read_ids(client, "t")
        assert node.stop() == 0
        node.restart()
        with ringfence.connect(node.address) as client:
            assert read_ids(client, "t") == before
    assert sum(len(rows) for rows in before.values()) == 10_000


def test_the_identity_check_finds_planted_defects() -> None:
    """A checker that cannot fail proves nothing."""
    good = {1: [(0, 0), (0, 2)], 2: [(0, 1)]}
    check_identity(good, {0: [0, 1, 2]}, {0: 3})
    for rows in (
        {1: [(0, 0), (0, 2)], 2: []},
        {1: [(0, 0), (0, 2)], 2: [(0, 1), (0, 2)]},
        {1: [(0, 2), (0, 0)], 2: [(0, 1)]},
        {1: [(0, 0), (0, 9)], 2: [(0, 1)]},
    ):
        with pytest.raises(AssertionError):
            check_identity(rows, {0: [0, 1, 2]}, {0: 3})

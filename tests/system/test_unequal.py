"""Nodes that cannot take what others have: bodies above their limits, and a disk without room."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ringfence
from tests.harness.disk import Disk
from tests.harness.load import Load
from tests.harness.processes import (
    SCHEMA,
    NodeProcess,
    batch,
    check_identity,
    cli,
    free_port,
    read_ids,
    until,
)

MIB = 1 << 20
LITTLE = ("--budget-bytes", "16MiB")
"""Its pool has 14 MiB, a body of at most half of that."""
BODY_BYTES = 9 * MIB


class Two:
    """A node that begins a cluster and owns what is created then, and one that joins."""

    def __init__(self, folder: Path, data: Path, *options: str) -> None:
        self.control, self.http = f"tcp://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.old = NodeProcess(
            folder / "old", options=("--control", self.control, "--http", self.http, *options)
        )
        self.joins = ("--control", f"tcp://127.0.0.1:{free_port()}", "--join", self.control)
        self.new = NodeProcess(data, options=(*self.joins, *options))

    def create(self) -> int:
        """The partition of a topic with one, at the first node."""
        with ringfence.connect(self.old.address, timeout_s=30) as client:
            [part] = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1).partitions
            return part.partition

    def join(self) -> None:
        self.new.start()
        until(lambda: self.life() == "LIVE", what="a second member")

    def life(self) -> str:
        shown = cli("node", "list", "--json", "--control", self.control)
        lives = {node["node"]: node["life"] for node in json.loads(shown.stdout)["nodes"]}
        return str(lives.get(self.new.ready["node"], ""))

    def begin(self, partition: int) -> None:
        to = f"{partition}:{self.new.ready['node']}"
        begun = cli("rebalance", "start", "move", "--move", to, "--control", self.control)
        assert begun.returncode == 0, begun.stdout + begun.stderr

    def told(self) -> dict[str, Any]:
        """The run and its move."""
        shown: dict[str, Any] = json.loads(
            cli("rebalance", "status", "--json", "--control", self.control).stdout
        )
        return shown

    def move(self) -> dict[str, Any]:
        [move] = self.told()["moves"]
        return dict(move)

    def counter(self, name: str) -> int:
        with ringfence.connect(self.old.address, timeout_s=30) as client:
            return int(client.status().counters[name])


@contextmanager
def running(two: Two) -> Iterator[Two]:
    try:
        two.old.start()
        yield two
    finally:
        for node in (two.new, two.old):
            if node.process is not None and node.process.poll() is None:
                node.kill()


def grows(load: Load, rows: int) -> None:
    before = len(load.acknowledged)
    until(lambda: load.errors or len(load.acknowledged) > before + rows, what="acknowledged rows")
    assert load.errors == []


def test_a_node_without_room_for_the_clusters_bodies_is_refused_at_its_join(tmp_path: Path) -> None:
    with running(Two(tmp_path, tmp_path / "new")) as two:
        little = NodeProcess(tmp_path / "little", options=(*two.joins, *LITTLE))
        with pytest.raises(AssertionError, match="refuses this node") as refused:
            little.start()
        said = str(refused.value)
        assert f"bodies of up to {64 * MIB} bytes" in said, said
        assert f"room for {7 * MIB}" in said, said
        assert "budget_bytes=" in said, "the way out"
        # The same directory, with the way out.
        two.new.data = little.data
        two.join()


def test_a_body_above_the_targets_limit_fails_its_move_and_holds_nobody_up(tmp_path: Path) -> None:
    """Started again with less than it joined with: the owner hears of it by broken links alone."""
    with running(Two(tmp_path, tmp_path / "new")) as two:
        partition = two.create()
        with ringfence.connect(two.old.address, timeout_s=30) as client, client.producer("t") as producer:
            producer.send(batch(0, 10, producer=9)).result(30)
            producer.send(batch(10, 1, producer=9, text=secrets.token_hex(BODY_BYTES // 2))).result(30)
        two.join()
        assert two.new.stop() == 0
        two.new.options = (*two.new.options, *LITTLE)
        two.join()
        load = Load(two.old.address, "t", 0).start()
        before = two.counter("replicated_bytes")
        two.begin(partition)
        told: list[str] = []

        def failed() -> bool:  # looked at once: the next try begins with an error of its own
            told[:] = [two.move()["error"]]
            return "broke 9 times" in told[0]

        until(failed, what="a try that failed with its reason")
        assert "message_bytes, budget_bytes or segment_bytes may be smaller" in told[0]
        until(
            lambda: two.told()["state"] == "IDLE", what="the end of the run after its last try", timeout_s=300
        )
        assert two.move()["state"] == "FAILED", two.move()
        # Nine bodies for each of three tries, and rows of the load. Without the limit there would be more.
        assert two.counter("replicated_bytes") - before < 36 * BODY_BYTES
        sent = two.counter("replicated_bytes")
        grows(load, 500)
        assert two.counter("replicated_bytes") == sent
        load.finish()
        with ringfence.connect(two.old.address, timeout_s=30) as client:
            rows = read_ids(client, "t")
        check_identity(rows, {0: load.acknowledged, 9: range(11)}, {0: load.sent, 9: 11})


@pytest.mark.power
def test_a_move_onto_a_full_disk_fails_with_its_reason_and_succeeds_when_there_is_space(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    two = Two(tmp_path, disk.mount_point / "new", "--segment-bytes", "4MiB", "--reserve-bytes", "1MiB")
    try:
        with running(two):
            partition = two.create()
            with ringfence.connect(two.old.address, timeout_s=30) as client, client.producer("t") as producer:
                for first in range(40):
                    producer.send(batch(first, 1, producer=9, text=secrets.token_hex(MIB // 2)))
            two.join()
            limits = (
                "move_timeout_ms=8000",
                "reverse_hold_s=0",
            )  # long enough for a busy machine to fill the disk
            assert cli("config", "set", *limits, "--http", f"http://{two.http}").returncode == 0
            filler = disk.fill()
            # For the metadata, and for the beginning of the copy of 40 MiB.
            os.truncate(filler, filler.stat().st_size - 16 * MIB)
            load = Load(two.old.address, "t", 0).start()
            two.begin(partition)
            until(lambda: two.told()["state"] == "IDLE", what="the end of three tries")
            move = two.move()
            assert (move["state"], move["attempts"]) == ("FAILED", 3), move
            assert "disk_full" in move["error"], move
            assert "move_timeout_ms" in move["error"], move
            grows(load, 500)
            filler.unlink()
            until(lambda: _partitions(two.new) == 0, what="a target without a rest of the copy")
            assert (
                cli("config", "set", "move_timeout_ms=60000", "--http", f"http://{two.http}").returncode == 0
            )
            two.begin(partition)
            until(lambda: two.told()["state"] == "IDLE", what="the end of the second run")
            assert two.told()["outcome"] == "DONE", two.told()
            grows(load, 500)
            load.finish()
            with ringfence.connect(two.new.address, timeout_s=30) as client:
                rows = read_ids(client, "t")
            check_identity(rows, {0: load.acknowledged, 9: range(40)}, {0: load.sent, 9: 40})
    finally:
        disk.release()


def _partitions(node: NodeProcess) -> int:
    with ringfence.connect(node.address, timeout_s=30) as client:
        return int(client.status().counters["partitions"])

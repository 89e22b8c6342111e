"""Rot between real processes: a damaged record is mended from another replica, after a start or while up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.program import run
from ringfence.native import wire
from tests.harness import segment_files
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, cli, until

ROWS = 20_000
"""16 MiB in two partitions and segments of 4 MiB: most of them take nothing any more."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path, options=("--segment-bytes", "4MiB", "--scrub-bytes-s", "64MiB"))
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def figures(three: ThreeNodes, place: int) -> dict[str, Any]:
    told = cli("status", "--json", address=three.nodes[place].address)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def ids(three: ThreeNodes, place: int) -> list[int]:
    with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
        return sorted(row for part in client.read("t") for row in part["id"].to_pylist())


def owners(three: ThreeNodes) -> dict[int, int]:
    """Place of each partition's owner."""
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        parts = client.topic("t").partitions
    return {part.partition: next(at for at in range(3) if three.id(at) == part.owner) for part in parts}


def rotten(data: Path, partition: int, where: int) -> segment_files.Found:
    """Flip a byte of a row's record in the oldest file."""
    oldest = segment_files.segments(data)[0]
    found = [one for one in segment_files.rows_of(data, partition) if one.path == oldest][3]
    segment_files.flip(found.path, found.position + where)
    return found


def test_what_rots_on_a_follower_and_on_an_owner_is_put_right(
    three: ThreeNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2, replication=3)
        with client.producer("t") as producer:
            for start in range(0, ROWS, 1_000):
                producer.send(batch(start, 1_000, text="x" * 800)).result(30)
    partition, owner = next(iter(owners(three).items()))
    follower = (owner + 1) % 3
    body = wire.RECORD_HEADER_BYTES + 5_000

    def is_mended(place: int) -> bool:
        told = figures(three, place)
        counted = told["counters"]
        names = ("scrub_damaged", "scrub_repaired", "damaged_records")
        return [counted[name] for name in names] == [1, 1, 0] and not told["reasons"]

    # A follower is down while its bits rot: its start finds it, and the partition is quarantined there.
    three.nodes[follower].kill()
    oldest = segment_files.segments(three.nodes[follower].data)[0]
    before = oldest.read_bytes()
    rotten(three.nodes[follower].data, partition, body)
    assert oldest.read_bytes() != before
    three.nodes[follower].restart()
    until(lambda: is_mended(follower), what="the follower to be as it was")
    assert oldest.read_bytes() == before, "the very bytes that stood there"

    # The owner is up: a reader meets it, waits for the repair, and gets what was written.
    owner = owners(three)[partition]
    oldest = segment_files.segments(three.nodes[owner].data)[0]
    before = oldest.read_bytes()
    rotten(three.nodes[owner].data, partition, body)
    assert ids(three, owner) == list(range(ROWS))
    until(lambda: is_mended(owner), what="the owner to be as it was")
    assert oldest.read_bytes() == before

    def is_clean() -> bool:
        code = run(["fsck", "--cluster", "--json", "--control", three.controls[0]])
        report = json.loads(capsys.readouterr().out)
        return code == 0 and report["sound"] and report["compared"] == 2

    until(is_clean, what="a sound cluster, its replicas level")
    for node in three.nodes:
        assert node.stop() == 0
        assert cli("fsck", "--data", str(node.data), "--json").returncode == 0

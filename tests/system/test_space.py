"""Disk space: what a deleted topic took, and what is too old, comes back while others keep their rows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ringfence
from tests.harness.processes import SCHEMA, NodeProcess, batch, cli, read_ids, until

MIB = 1 << 20
WIDE = "x" * 10_000


def taken(data: Path) -> int:
    """Bytes that the file system has given to the segment files."""
    return sum(path.stat().st_blocks * 512 for path in data.rglob("*.seg"))


def test_a_deleted_topic_gives_its_space_back_and_nobody_elses(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", options=("--segment-bytes", str(64 * MIB)))
    with node, ringfence.connect(node.address) as client:
        for topic in ("gone", "kept"):
            client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=2)
        for start in range(0, 2_000, 200):
            for topic, text in (("gone", WIDE), ("kept", "y")):
                with client.producer(topic) as producer:
                    producer.send(batch(start, 200, text=text)).result(30)
        kept, before = read_ids(client, "kept"), taken(node.data)
        assert before > 16 * MIB
        client.delete_topic("gone")
        until(lambda: taken(node.data) < before - 16 * MIB, what="the space of the topic")
        assert read_ids(client, "kept") == kept
        node.kill()
        node.restart()
        until(lambda: read_ids(client, "kept") == kept, what="the other topic's rows")
        with client.producer("kept") as producer:
            producer.send(batch(2_000, 10)).result(30)
    report = cli("fsck", "--data", str(node.data), "--json")
    assert report.returncode == 0, report.stdout


def test_rows_that_are_too_old_are_given_up_from_the_front_and_named(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", options=("--segment-bytes", str(1 << 20)))
    with node, ringfence.connect(node.address, timeout_s=30) as client:
        info = client.create_topic("aged", schema=SCHEMA, key=["id"], partitions=1, retention_ms=1_000)
        kept = client.create_topic("kept", schema=SCHEMA, key=["id"], partitions=1)
        with client.producer("aged") as aged, client.producer("kept") as other:
            for start in range(0, 20_000, 1_000):
                aged.send(batch(start, 1_000, text="x" * 200))
                other.send(batch(start, 1_000))
        [part] = info.partitions

        def begin() -> int:
            return client.end_offsets("aged")[part.partition].start

        def rests() -> bool:
            """The file that is written to stays; what is older goes."""
            before = begin()
            time.sleep(1)
            return 0 < before == begin()

        until(rests, what="a log start that moved")
        with pytest.raises(ringfence.TruncatedError):
            list(client.read("aged", start=0))
        assert read_ids(client, "aged") == {part.partition: [(0, row) for row in range(begin(), 20_000)]}
        assert client.count("kept") == 20_000, "nobody said how long these are kept"
        assert client.end_offsets("kept")[kept.partitions[0].partition].start == 0

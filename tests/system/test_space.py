"""Disk space: what a deleted topic took comes back while its files still hold the rows of others."""

from __future__ import annotations

from pathlib import Path

import ringfence
from tests.system.harness import SCHEMA, NodeProcess, batch, cli, read_ids, until

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

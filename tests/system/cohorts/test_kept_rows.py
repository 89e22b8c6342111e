"""Rows of a sealed partition wait for cohorts at a real node, beyond the topic's retention; then they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.processes import SCHEMA, NodeProcess, batch, until

if TYPE_CHECKING:
    from pathlib import Path

RETENTION_MS = 1_000
ROWS = 10_000


def fill(client: ringfence.Client, topic: str) -> None:
    """More than a file: rows go with the file that they lie in."""
    with client.producer(topic) as producer:
        for start in range(0, ROWS, 1_000):
            producer.send(batch(start, 1_000, text="x" * 200))


def first_offset(client: ringfence.Client, topic: str, partition: int) -> int:
    """Of the first row of the partition that is still there; the end if there is none."""
    with client.read(topic, partition=partition) as reader:
        for _ in reader:
            assert reader.place is not None
            return reader.place.first_offset
    return ROWS


@pytest.mark.timeout(240)
def test_rows_of_a_sealed_partition_stay_until_the_cohort_is_through(tmp_path: Path) -> None:
    """The topic without a cohort shows that retention has run."""
    node = NodeProcess(tmp_path / "data", options=("--segment-bytes", str(1 << 20)))
    with node, ringfence.connect(node.address, timeout_s=30) as client:
        parents = dict[str, int]()
        for topic in ("read", "alone"):
            made = client.create_topic(
                topic, schema=SCHEMA, key=["id"], partitions=1, retention_ms=RETENTION_MS
            )
            parents[topic] = made.partitions[0].partition
        client.admin.create_cohort("read", "c")
        for topic in parents:
            fill(client, topic)
            client.admin.repartition(topic, 2, wait_s=60)
        client.create_topic("other", schema=SCHEMA, key=["id"], partitions=1)
        fill(client, "other")

        def check_kept() -> None:
            until(lambda: first_offset(client, "alone", parents["alone"]) > 0, 60, "retention")
            assert first_offset(client, "read", parents["read"]) == 0

        check_kept()
        node.kill()
        node.restart()
        fill(client, "other")
        check_kept()
        seen = 0
        with client.consumer("read", cohort="c", ack="manual") as consumer:
            while seen < ROWS:
                rows = consumer.next(60)
                assert rows is not None, f"{seen} rows came"
                seen += rows.num_rows
                consumer.ack(wait=True)
        until(lambda: first_offset(client, "read", parents["read"]) > 0, 60, "rows go after the cohort")

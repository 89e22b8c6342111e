"""A cohort at one real node whose disk is full: what retention needs to free it is taken, once a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.deliveries import KEYS, publish
from tests.harness.disk import Disk
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, NodeProcess, until

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = ("--segment-bytes", "1MiB", "--reserve-bytes", "1MiB", "--session-grace-s", "12")
RETENTION_MS = 40_000
"""The rows outlive the time in which they are acknowledged."""
ROUNDS = 200
RECORDS = 8
FREE_S = 60.0
STILL_S = 1.0
"""Batches on their way when the disk is found full may still be acknowledged."""


def is_still(load: Load) -> bool:
    before = len(load.answered_s)
    time.sleep(STILL_S)
    return len(load.answered_s) == before


def records(client: ringfence.Client) -> int:
    return int(client.status().counters["cohort_reserve_records"])


@pytest.mark.power
@pytest.mark.timeout(240)
def test_on_a_full_disk_a_position_a_second_is_taken_and_retention_frees_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path, size_mb=256)
    node = NodeProcess(disk.mount_point / "data", OPTIONS, log_folder=tmp_path)
    try:
        with node, ringfence.connect(node.address, timeout_s=30) as client:
            client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=1, retention_ms=RETENTION_MS)
            publish(client, "t", range(ROUNDS))
            with client.consumer("t", cohort="c", ack="manual") as consumer:
                assert consumer.next(20) is not None
                consumer.ack(wait=True)
                disk.fill()
                load = Load(node.address, "t", KEYS, rows=500, window=8, timeout_s=120).start()
                until(lambda: "disk" in str(client.status().reasons).lower(), 40, "a full disk")
                until(lambda: is_still(load), 20, "no row more")
                stored = len(load.acknowledged)
                before, begun, place = records(client), time.monotonic(), consumer.place
                # The first ones find room behind the last rows.
                while records(client) - before < RECORDS:
                    assert consumer.next(20) is not None, "reads go on"
                    place = consumer.place
                    consumer.ack(wait=True, timeout_s=20)
                taken, took = records(client) - before, time.monotonic() - begun
                assert taken <= took + 1, f"{taken} records in {took} s"
                assert len(load.acknowledged) == stored, "rows have no part in it"
            with client.consumer("t", cohort="c", ack="manual") as consumer:
                assert consumer.next(20) is not None
                assert place is not None
                assert consumer.place is not None
                assert consumer.place.first_offset == place.end_offset, "what is settled does not come again"
            until(lambda: len(load.acknowledged) > stored, FREE_S, "rows are taken again")
            load.finish()
            assert load.errors == []
            assert records(client) - before <= time.monotonic() - begun + 1
    finally:
        disk.release()

"""Parked rows over three real nodes: exporters and members with `dead_letter=` while an owner is killed."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import KEYS, publish
from tests.harness.parked_rows import copied, parked
from tests.harness.processes import SCHEMA, until

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 12


def park_all(client: ringfence.Client) -> int:
    """Park each third row alone; the others are done. Returns how many."""
    parks = got = 0
    with client.consumer("t", cohort="q", mode="queue", ack="manual") as consumer:
        for delivery in consumer.deliveries():
            for at in range(0, delivery.batch.num_rows, 3):
                delivery.park([at], reason="bad")
                parks += 1
            delivery.ack()
            got += delivery.batch.num_rows
            if got == ROUNDS * KEYS:
                break
        consumer.ack(wait=True)
    until(lambda: len(parked(client, "t")) == parks, 60, "all are parked")
    return parks


@pytest.mark.timeout(300)
def test_each_range_is_copied_once_while_an_owner_is_killed(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path)
    with ExitStack() as running:
        running.callback(three.kill_all)
        three.start()
        client = running.enter_context(ringfence.connect(three.addresses, timeout_s=60))
        client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=3, replication=3)
        publish(client, "t", range(ROUNDS))
        parks = park_all(client)
        places = sorted(
            (one.partition, offset)
            for one in parked(client, "t")
            for offset in range(one.first_offset, one.end_offset)
        )
        client.admin.export_parked("t", "q", to="u", items=[], create=True)
        errors: list[str] = []
        done = threading.Event()

        def export() -> None:
            with ringfence.connect(three.addresses, timeout_s=60) as own:
                while not done.is_set():
                    try:
                        own.admin.export_parked("t", "q", to="u")
                        if not parked(own, "t"):
                            return
                    except ringfence.RetriableError:
                        time.sleep(0.2)  # owners change
                    except Exception as error:  # noqa: BLE001  # told below
                        errors.append(repr(error))
                        return

        threads = [threading.Thread(target=export) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(parked(client, "t")) < parks - 3, 60, "some are exported")
        three.nodes[next(place for place in range(3) if place != three.leader())].kill()
        for thread in threads:
            thread.join(120)
        done.set()
        assert errors == []
        assert parked(client, "t") == []
        found = sorted(
            place
            for batch in client.read("u")
            for place in zip(
                batch.column("parked_partition").to_pylist(),
                batch.column("parked_offset").to_pylist(),
                strict=True,
            )
        )
        assert found == places
        assert len(copied(client, "u")) == len(places)

"""A queue of one partition with 10 records of 16 rows: park some of them, and see who gets what."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.harness.deliveries import KEYS
from tests.harness.processes import until

if TYPE_CHECKING:
    import ringfence
    from ringfence.consumer.parked import Parked

ROWS = 10 * KEYS


def queue(client: ringfence.Client, topic: str, **options: Any) -> ringfence.Consumer:
    return client.consumer(topic, cohort="q", mode="queue", **options)


def parked(client: ringfence.Client, topic: str) -> list[Parked]:
    return list(client.admin.parked(topic, "q"))


def park(client: ringfence.Client, topic: str, rows: list[int], total: int = ROWS) -> list[Parked]:
    """Park these offsets, each alone; the others are done."""
    with queue(client, topic, ack="manual") as consumer:
        got = 0
        for delivery in consumer.deliveries():
            place = delivery.place
            for row in rows:
                if place.first_offset <= row < place.end_offset:
                    delivery.park([row - place.first_offset], reason=f"row {row}")
            delivery.ack()
            got += place.rows
            if got == total:
                break
        consumer.ack(wait=True)
    until(lambda: len(parked(client, topic)) == len(rows), what="all are parked")
    return parked(client, topic)


def taken(client: ringfence.Client, topic: str, wait_s: float = 1.0) -> list[int]:
    """Offsets that a member gets and acknowledges, until nothing comes."""
    offsets: list[int] = []
    with queue(client, topic) as consumer:
        end = time.monotonic() + 20
        while time.monotonic() < end and consumer.next(wait_s) is not None:
            assert consumer.place is not None
            offsets += range(consumer.place.first_offset, consumer.place.end_offset)
        consumer.ack(wait=True)
    return sorted(offsets)


def copied(client: ringfence.Client, to: str) -> list[int]:
    return sorted(one for batch in client.read(to) for one in batch.column("parked_offset").to_pylist())

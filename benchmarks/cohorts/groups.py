"""The systems: how each is run and read, and what it promises."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cohorts.on_kafka import SHARE_LOCK_MS, on_kafka
from benchmarks.cohorts.on_nats import ACK_WAIT_S, on_nats
from benchmarks.cohorts.on_ringfence import GRACE_S, on_ringfence
from benchmarks.cohorts.readers import SESSION_MS
from benchmarks.cohorts.running import Running
from benchmarks.peers import installed


@dataclass(frozen=True)
class System:
    """`in_order`: a stream is read by one member at a time."""

    name: str
    reader: str
    promise: str
    in_order: bool
    run: Callable[[Path], AbstractContextManager[Running]]
    needs: str = ""


OURS_PROMISE: Final = (
    f"fdatasync before a publish is answered; positions are records of the log; a grace of {GRACE_S} s"
)
KAFKA_PROMISE: Final = f"acks=all in the page cache; sessions of {SESSION_MS / 1e3:g} s"
SYSTEMS: Final = (
    System("ringfence stream", "ringfence_stream", OURS_PROMISE, in_order=True, run=on_ringfence),
    System(
        "Kafka classic",
        "kafka_classic",
        f"{KAFKA_PROMISE}, cooperative-sticky",
        in_order=True,
        run=on_kafka,
        needs="kafka",
    ),
    System("Kafka KIP-848", "kafka_consumer", KAFKA_PROMISE, in_order=True, run=on_kafka, needs="kafka"),
    System("ringfence queue", "ringfence_queue", OURS_PROMISE, in_order=False, run=on_ringfence),
    System(
        "Kafka share group",
        "kafka_share",
        f"acks=all in the page cache; locks of {SHARE_LOCK_MS / 1e3:g} s",
        in_order=False,
        run=on_kafka,
        needs="kafka",
    ),
    System(
        "NATS JetStream",
        "nats_pull",
        f"fsync of each publish; explicit acknowledgements, ack_wait {ACK_WAIT_S:g} s",
        in_order=False,
        run=on_nats,
        needs="nats",
    ),
)


def taking_part() -> tuple[list[System], list[str]]:
    """(systems that are here, a line for each program that is missing)."""
    here, missing = installed.present(("kafka", "nats"))
    return [one for one in SYSTEMS if not one.needs or one.needs in here], missing

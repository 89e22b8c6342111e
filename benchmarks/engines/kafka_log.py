"""A peer: one Kafka broker in KRaft mode that flushes after every produced batch."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.python_sender import PythonSent
from benchmarks.peers import installed
from benchmarks.peers.kafka_server import broker, create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload

TOPIC = "bench"
HEAP_MIB = 1024  # Kafka's own default
BROKER = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "log.flush.interval.messages": 1,
}
LOG = {
    "flush.messages": 1,
    "compression.type": "producer",
    "retention.bytes": 1 << 30,
    "segment.bytes": 256 << 20,
}


@dataclass(frozen=True)
class KafkaLog:
    name: str = "kafka"
    durability: str = (
        "acks=all, idempotent, fsync of each produced batch (flush.messages=1), one replica, page cache"
    )
    transports: tuple[str, ...] = ("tcp",)

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[PythonSent]:
        del transport
        installed.require("kafka")
        with broker(directory, BROKER, HEAP_MIB) as one:
            create_topic(one.address, TOPIC, 1, LOG)
            assert one.process is not None
            yield PythonSent(workload, "kafka_sender", (one.address, TOPIC), one.process.pid)


KAFKA_LOG = KafkaLog()

"""One Kafka broker that has groups of both protocols, and share groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.cohorts.messages import STREAMS, packed
from benchmarks.cohorts.readers import SESSION_MS
from benchmarks.cohorts.running import ANSWER_S, GROUP, TOPIC, Running
from benchmarks.peers.kafka_server import admin, broker, create_topic

HEAP_MIB: Final = 768
SHARE_LOCK_MS: Final = 15_000
"""The least that a broker takes; 30,000 by default."""
# Of a broker alone: internal topics have one copy, and members of KIP-848 have the session of the others.
BROKER: Final = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.share.min.record.lock.duration.ms": SHARE_LOCK_MS,
    "group.share.record.lock.duration.ms": SHARE_LOCK_MS,
}


@contextmanager
def on_kafka(folder: Path) -> Iterator[Running]:
    from confluent_kafka import Producer  # noqa: PLC0415 - optional

    with broker(folder, BROKER, HEAP_MIB) as one:
        create_topic(one.address, TOPIC, 1, {}, STREAMS)
        _share_from_the_beginning(one.address)
        failed: list[str] = []
        settings = {
            "bootstrap.servers": one.address,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "log_level": 0,
        }
        producer = Producer(settings)

        def told(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(str(error))

        def send(stream: int, batch: pa.RecordBatch) -> None:
            body = packed(batch)
            while True:
                try:
                    producer.produce(TOPIC, body, partition=stream, on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)

        def flush() -> None:
            left = producer.flush(ANSWER_S)
            if left or failed:
                raise RuntimeError(f"kafka: {left} messages without an answer, {failed[:3]}")

        yield Running(one.address, send, flush)


def _share_from_the_beginning(address: str) -> None:
    """A share group begins at the end, unless its own setting says otherwise."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # noqa: PLC0415 - optional

    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
    client = admin(address)  # it must live until the answer
    client.incremental_alter_configs([resource])[resource].result(ANSWER_S)

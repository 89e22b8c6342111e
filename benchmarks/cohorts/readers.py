"""Inside a member: batches of one system, for ever. Asking for the next one acknowledges the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

import ringfence
from benchmarks.cohorts.messages import unpacked

POLL_S = 0.2
"""Longest wait for messages; then a reader gives None, so that its member can end."""
COMMIT_MS = 200
"""How often positions are told, where a client does it in the background; ringfence's default."""
SESSION_MS = 6_000
"""After which a silent member of Kafka counts as dead: the least that a broker takes."""
MESSAGES_MAX = 500
FETCH_BYTES = 16 << 20

Batches = Iterator[pa.RecordBatch | None]


def ringfence_stream(address: str, topic: str, group: str) -> Batches:
    with (
        ringfence.connect(address) as client,
        client.consumer(topic, cohort=group, idle_s=POLL_S) as consumer,
    ):
        yield from consumer


def ringfence_queue(address: str, topic: str, group: str) -> Batches:
    with (
        ringfence.connect(address) as client,
        client.consumer(topic, cohort=group, mode="queue", idle_s=POLL_S) as consumer,
    ):
        yield from consumer


def _kafka_settings(address: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "group.id": group,
        "log_level": 0,
        "fetch.max.bytes": FETCH_BYTES,
        "fetch.wait.max.ms": int(POLL_S * 1_000),
    }


def _kafka(address: str, topic: str, group: str, more: dict[str, Any]) -> Batches:
    from confluent_kafka import Consumer  # noqa: PLC0415 - optional

    settings = {
        **_kafka_settings(address, group),
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": COMMIT_MS,
        # Else a message counts as read when the client hands it over, and is lost with the member.
        "enable.auto.offset.store": False,
        **more,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        while True:
            first = consumer.poll(POLL_S)
            # `consume` waits until it has so many, unless it may not wait.
            messages = [] if first is None else [first, *consumer.consume(MESSAGES_MAX, 0)]
            for one in messages:
                if one.error() is None:
                    yield unpacked(one.value())
                    consumer.store_offsets(message=one)
            yield None
    finally:
        consumer.close()


def kafka_classic(address: str, topic: str, group: str) -> Batches:
    """Plans by a member; members whose partitions stay go on reading (KIP-429)."""
    more = {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": SESSION_MS}
    return _kafka(address, topic, group, more)


def kafka_consumer(address: str, topic: str, group: str) -> Batches:
    """Plans by the broker (KIP-848)."""
    return _kafka(address, topic, group, {"group.protocol": "consumer"})


def kafka_share(address: str, topic: str, group: str) -> Batches:
    """A share group (KIP-932)."""
    from confluent_kafka import ShareConsumer  # noqa: PLC0415 - optional

    consumer = ShareConsumer(_kafka_settings(address, group))
    consumer.subscribe([topic])
    try:
        while True:
            for one in consumer.poll(POLL_S):
                if one.error() is None:
                    yield unpacked(one.value())
            yield None
    finally:
        consumer.close()


def nats_pull(address: str, topic: str, group: str) -> Batches:
    """A durable pull consumer with an explicit acknowledgement of each message."""
    import asyncio  # noqa: PLC0415 - only this one

    import nats  # noqa: PLC0415 - optional

    with asyncio.Runner() as runner:
        client = runner.run(nats.connect(address, allow_reconnect=False))
        try:
            stream = client.jetstream()
            puller = runner.run(stream.pull_subscribe_bind(group, topic))
            while True:
                try:
                    messages = runner.run(puller.fetch(MESSAGES_MAX, POLL_S))
                except nats.errors.TimeoutError:
                    messages = []
                for one in messages:
                    yield unpacked(one.data)
                    runner.run(one.ack())
                yield None
        finally:
            runner.run(client.close())


READERS: dict[str, Callable[[str, str, str], Batches]] = {
    "ringfence_stream": ringfence_stream,
    "ringfence_queue": ringfence_queue,
    "kafka_classic": kafka_classic,
    "kafka_consumer": kafka_consumer,
    "kafka_share": kafka_share,
    "nats_pull": nats_pull,
}

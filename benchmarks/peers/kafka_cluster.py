"""Three Kafka brokers on the loopback: leaders are moved and killed, and an acks=all producer tells the gaps.

Every process is a broker and a voter of the metadata quorum, as our three nodes are. Answers promise that the
row is in memory (the page cache) of at least two brokers: Kafka's own default, without a sync.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.peers.kafka_server import Broker, admin, brokers_in
from benchmarks.peers.process import ServerError

COUNT = 3
HEAP_MIB = 512
WAIT_S = 300.0
"""A broker comes back within 10 s; a copy took more than 120 where 20 processes wanted two cores."""
ASK_S = 5.0
RETENTION_BYTES = 512 << 20


@dataclass(frozen=True)
class Profile:
    """Settings of brokers and producers, and what is different about them in one line."""

    name: str
    about: str
    broker: Mapping[str, object]
    producer: Mapping[str, object]


PROFILES = {
    "default": Profile("default", "session time-out 9 s, back-offs 100 ms", {}, {}),
    "tuned": Profile(
        "tuned",
        "session time-out 2 s (our failure_ms), heartbeats 0.4 s, back-offs 20 ms",
        {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 400},
        {
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        },
    ),
}
TOPIC_CONFIG = {"min.insync.replicas": 2, "retention.bytes": RETENTION_BYTES, "segment.bytes": 64 << 20}


class Brokers:
    """`COUNT` brokers in `folder`, up when the context begins, killed when it ends."""

    def __init__(self, folder: Path, profile: Profile) -> None:
        self.profile = profile
        self.all: Sequence[Broker] = brokers_in(folder, COUNT, profile.broker, HEAP_MIB)
        self.addresses = ",".join(broker.address for broker in self.all)

    def __enter__(self) -> Self:
        try:
            for broker in self.all:
                broker.start()
            for broker in self.all:
                broker.wait(COUNT)
        except BaseException:
            self.__exit__()
            raise
        self._admin = admin(self.addresses)
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.all:
            broker.end()

    def state(self, topic: str) -> tuple[int, list[int], set[int]]:
        """(leader, replicas in order, those in sync) of the only partition, once it has a leader."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

        end = time.monotonic() + WAIT_S
        while True:
            try:
                parts = self._admin.list_topics(topic, timeout=ASK_S).topics[topic].partitions
            except KafkaException:
                parts = {}
            if parts and parts[0].leader > 0:
                return parts[0].leader, list(parts[0].replicas), set(parts[0].isrs)
            if time.monotonic() > end:
                raise ServerError(f"kafka: topic {topic} has no leader after {WAIT_S:g} s")
            time.sleep(0.01)

    def until_whole(self, topic: str) -> None:
        """Every replica is in sync."""
        self.until(topic, "is in sync", lambda _, replicas, in_sync: in_sync == set(replicas))

    def until_led(self, topic: str, node: int) -> None:
        self.until(topic, f"is led by {node}", lambda leader, *_: leader == node)

    def until(self, topic: str, what: str, holds: Callable[[int, list[int], set[int]], bool]) -> None:
        """Ask until it holds of (leader, replicas, in sync). Raises ServerError with what was seen last."""
        end = time.monotonic() + WAIT_S
        while not holds(*(seen := self.state(topic))):
            if time.monotonic() > end:
                raise ServerError(
                    f"kafka: {topic} {what}: not within {WAIT_S:g} s; leader, replicas, in sync: {seen}"
                )
            time.sleep(0.01)

    def reassign(self, topic: str, replicas: Sequence[int]) -> None:
        """Order these replicas, the first of them preferred; returns when they are all in sync."""
        from kafka import TopicPartition  # noqa: PLC0415 - optional

        part = TopicPartition(topic, 0)
        with self._steering() as client:
            refused = client.alter_partition_reassignments({part: list(replicas)})[part]
        if refused is not None:
            raise ServerError(f"kafka: {topic} to replicas {list(replicas)}: {refused.__name__}")
        wanted = list(replicas)
        self.until(topic, f"has the replicas {wanted}", lambda _, *now: now == (wanted, set(wanted)))

    def elect(self, topic: str) -> None:
        """The first replica leads."""
        from confluent_kafka import ElectionType, TopicPartition  # noqa: PLC0415 - optional

        wanted = self.state(topic)[1][0]
        part = [TopicPartition(topic, 0)]
        self._admin.elect_leaders(ElectionType.PREFERRED, part).result(WAIT_S)
        self.until_led(topic, wanted)

    def hand_over(self, topic: str, leader: int) -> None:
        """Make `leader` lead, if it does not."""
        now, replicas, _ = self.state(topic)
        if now == leader:
            return
        if replicas[0] != leader:
            self.reassign(topic, (leader, *(node for node in replicas if node != leader)))
        if self.state(topic)[0] != leader:
            self.elect(topic)

    def controller(self) -> int:
        """The node that leads the metadata quorum."""
        with self._steering() as client:
            told = client.describe_metadata_quorum()
        leader = told["topics"][0]["partitions"][0]["leader_id"]
        return int(leader)

    @contextmanager
    def _steering(self) -> Iterator[Any]:
        """kafka-python's admin client: librdkafka's neither reassigns nor describes a quorum."""
        from kafka import KafkaAdminClient  # noqa: PLC0415 - optional

        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # brokers are killed: it would tell of each
        client = KafkaAdminClient(bootstrap_servers=self.addresses.split(","))
        try:
            yield client
        finally:
            client.close()

    def broker(self, node: int) -> Broker:
        return next(broker for broker in self.all if broker.node == node)

    def remove(self, topic: str) -> None:
        """Its files go; a later topic needs their room."""
        self._admin.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)

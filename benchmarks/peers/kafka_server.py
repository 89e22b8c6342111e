"""A Kafka broker that is a KRaft controller, too: its properties, its formatted directory, its process."""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import installed
from benchmarks.peers.process import HOST, START_TIMEOUT_S, ServerError, end, free_port, spawn, wait_until

MESSAGE_BYTES_MAX = 32 << 20
"""Of one produced batch; the largest body of a workload is 8 MiB."""
# Of kafka-server-start.sh and kafka-run-class.sh; the heap is what a caller says.
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
COMMON: dict[str, object] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",  # leaders move when the benchmark says so
    "message.max.bytes": MESSAGE_BYTES_MAX,
    "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
    # What a benchmark wrote shall not fill the disk: looked at often, removed soon.
    "log.retention.check.interval.ms": 5000,
    "log.segment.delete.delay.ms": 1000,
}


def cluster_id() -> str:
    """22 characters, as Kafka writes a UUID: not "-" first, its storage tool would take it for an option."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


@dataclass
class Broker:
    """One broker of a cluster whose controllers listen to `voters`: node id -> port."""

    node: int
    port: int
    voters: Mapping[int, int]
    directory: Path
    heap_mib: int
    properties: Mapping[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def text(self) -> str:
        """Its server.properties."""
        values = {
            **COMMON,
            "node.id": self.node,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{self.voters[self.node]}",
            "controller.quorum.voters": ",".join(f"{node}@{HOST}:{p}" for node, p in self.voters.items()),
            "log.dirs": self.directory / "data",
            **self.properties,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def format(self, cluster: str) -> None:
        """Make its directory. Raises ServerError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "server.properties"
        file.write_text(self.text())
        command = java_command("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file))
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S, cwd=self.directory
        )
        if done.returncode != 0:
            raise ServerError(
                f"kafka's storage tool ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )

    def start(self) -> None:
        """Start it; `ready` waits for it."""
        command = java_command(
            "kafka.Kafka", str(self.directory / "server.properties"), heap_mib=self.heap_mib
        )
        self.process = spawn(command, self.log)

    def wait(self, brokers: int) -> None:
        """Until it knows so many brokers. Raises ServerError."""
        assert self.process is not None
        wait_until(self.process, self.log, lambda: _known(self.address) >= brokers)

    def kill(self) -> None:
        """As `kill -9`."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it: what it holds is not wanted any more."""
        if self.process is not None:
            self.process.kill()
            end(self.process)


def java_command(main: str, *arguments: str, heap_mib: int = 256) -> list[str]:
    """Java with all jars, running `main`."""
    heap = [f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m"]
    return [installed.java(), *heap, *JVM, "-cp", f"{installed.kafka_jars()}/*", main, *arguments]


def brokers_in(
    directory: Path, count: int, properties: Mapping[str, object], heap_mib: int
) -> Sequence[Broker]:
    """Brokers 1 to `count`, formatted, not yet started."""
    voters = {node: free_port() for node in range(1, count + 1)}
    cluster = cluster_id()
    brokers = [
        Broker(node, free_port(), voters, directory / f"kafka-{node}", heap_mib, properties)
        for node in voters
    ]
    for broker in brokers:
        broker.format(cluster)
    return brokers


@contextmanager
def broker(directory: Path, properties: Mapping[str, object], heap_mib: int) -> Iterator[Broker]:
    """One alone, that runs while the context is open."""
    (one,) = brokers_in(directory, 1, properties, heap_mib)
    try:
        one.start()
        one.wait(1)
        yield one
    finally:
        one.end()


def admin(addresses: str) -> Any:
    """An admin client. ImportError without confluent-kafka."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - optional

    return AdminClient({"bootstrap.servers": addresses, "log_level": 0, "socket.timeout.ms": 10_000})


def create_topic(
    addresses: str, topic: str, replicas: int, config: Mapping[str, object], partitions: int = 1
) -> None:
    """Raises ServerError."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - optional
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415 - optional

    texts = {name: str(value) for name, value in config.items()}
    wanted = NewTopic(topic, partitions, replicas, config=texts)
    client = admin(addresses)
    try:
        client.create_topics([wanted], operation_timeout=START_TIMEOUT_S)[topic].result(START_TIMEOUT_S)
    except KafkaException as error:
        raise ServerError(f"kafka: topic {topic} could not be made: {error}") from error


def _known(address: str) -> int:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

    try:
        return len(admin(address).list_topics(timeout=2).brokers)
    except KafkaException:
        time.sleep(0.1)
        return 0

"""Spark into Kafka by Spark's own connector, beside ours: one broker, as many partitions.

Its guarantee is at least once: a task that is run again writes its rows again. A broker acknowledges what it
has in memory; it syncs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.peers import installed
from benchmarks.peers.kafka_server import create_topic
from benchmarks.spark.jobs import KEY, PARTITIONS

if TYPE_CHECKING:
    from benchmarks.spark.jobs import Bench

HEAP_MIB = 1024
BROKER = {"offsets.topic.replication.factor": 1, "log.retention.bytes": 256 << 20}
GUARANTEE = "at least once, acknowledged from memory"


def jars() -> str | None:
    """For `spark.jars`; None where server or connector are missing."""
    try:
        installed.require("kafka")
        return ",".join(map(str, installed.spark_jars()))
    except installed.MissingError:
        return None


def about() -> dict[str, str]:
    """Versions and guarantee, for the record."""
    (connector,) = [jar.stem for jar in installed.spark_jars() if jar.name.startswith("spark-sql-kafka")]
    return {**installed.versions(["kafka"]), "connector": connector, "guarantee": GUARANTEE}


def topic(address: str, turn: int) -> str:
    name = f"rows-{turn}"
    create_topic(address, name, 1, {}, PARTITIONS)
    return name


def write(bench: Bench, address: str, name: str) -> None:
    """Rows as JSON under their key, all columns: what the connector takes are bytes."""
    rows = bench.frame.selectExpr(f"cast({KEY} AS string) AS key", "to_json(struct(*)) AS value")
    given = rows.write.format("kafka").option("kafka.bootstrap.servers", address)
    given.option("kafka.acks", "all").option("topic", name).save()
    found = ends(address, name)
    assert found >= bench.rows, f"{found} rows of {bench.rows} are in {name}"


def ends(address: str, name: str) -> int:
    """How many messages the topic has."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - optional

    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends", "log_level": 0})
    try:
        places = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
        return sum(int(consumer.get_watermark_offsets(place, timeout=30)[1]) for place in places)
    finally:
        consumer.close()

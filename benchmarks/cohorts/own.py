"""What it costs to read as a member: beside a plain read of the same rows, in turn, in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa

import ringfence
from benchmarks import machine
from benchmarks.cohorts.messages import SCHEMA, STREAMS, keys_of_partitions, rows_of
from benchmarks.cohorts.running import TOPIC
from benchmarks.paths import work_directory
from ringfence.consumer.values import Mode
from tests.harness.processes import NodeProcess

ROWS: Final = 1_000
MESSAGES: Final = 8_000
ROUNDS: Final = 5
ACKS: Final = 50_000
WAIT_S: Final = 120.0
HELD: Final[dict[Mode, float]] = {"stream": 0.9, "checkpoint": 0.9, "queue": 0.8}
"""Least ratio to a plain read."""


def told(*, quick: bool = False) -> dict[str, Any]:
    """Ratios of reads, and acknowledgements a second."""
    messages, rounds, acks = (400, 1, 2_000) if quick else (MESSAGES, ROUNDS, ACKS)
    with (
        tempfile.TemporaryDirectory(dir=work_directory(), ignore_cleanup_errors=True) as name,
        NodeProcess(Path(name) / "node", log_folder=Path(name)) as node,
        ringfence.connect(node.address) as client,
    ):
        _fill(client, messages)
        result = {
            "machine": machine.describe(),
            "rows": messages * ROWS,
            **_reads(client, messages * ROWS, rounds),
        }
        return result | {
            "stream_acks_per_s": round(_stream_acks(client, acks)),
            "queue_acks_per_s": round(_queue_acks(client, acks)),
        }


def held(result: dict[str, Any]) -> bool:
    return all(result[mode]["ratio"] >= least for mode, least in HELD.items())


def _fill(client: ringfence.Client, messages: int) -> None:
    client.create_topic(TOPIC, schema=SCHEMA, key="key", partitions=STREAMS)
    keys = keys_of_partitions(STREAMS)
    with client.producer(TOPIC) as producer:
        for number in range(messages):
            producer.send(rows_of(keys[number % STREAMS], number % STREAMS, number, ROWS))


def _reads(client: ringfence.Client, rows: int, rounds: int) -> dict[str, Any]:
    """A round reads all rows once in each way; ratios are of the same round."""
    plain: list[float] = []
    modes: dict[Mode, list[float]] = {mode: [] for mode in HELD}
    for number in range(rounds):
        plain.append(_rate(client.read(TOPIC), rows))
        for mode, rates in modes.items():
            positions: dict[int, str | None] | None = {} if mode == "checkpoint" else None
            with client.consumer(
                TOPIC, cohort=f"{mode}-{number}", mode=mode, positions=positions
            ) as consumer:
                rates.append(_rate(consumer, rows))
    result: dict[str, Any] = {"plain_rows_per_s": round(median(plain))}
    for mode, rates in modes.items():
        ratios = [rate / beside for rate, beside in zip(rates, plain, strict=True)]
        result[mode] = {"rows_per_s": round(median(rates)), "ratio": round(median(ratios), 3)}
    return result


def _rate(batches: Iterable[pa.RecordBatch | None], rows: int) -> float:
    """Rows a second, from the first batch to the last one."""
    seen, first, began = 0, 0, 0.0
    for batch in batches:
        if batch is None:
            continue
        seen += batch.num_rows
        if not began:
            first, began = batch.num_rows, time.perf_counter()
        if seen >= rows:
            break
    return (seen - first) / (time.perf_counter() - began)


def _stream_acks(client: ringfence.Client, count: int) -> float:
    """Each row is acknowledged by a call of its own; they are combined, and the last one is waited for."""
    with client.consumer(TOPIC, cohort="acks", ack="manual") as consumer:
        batch = consumer.next(WAIT_S)
        began, done = time.perf_counter(), 0
        while batch is not None and consumer.place is not None and done < count:
            place = consumer.place
            for row in range(batch.num_rows):
                consumer.ack_through(place, row + 1)
            done += batch.num_rows
            batch = consumer.next(WAIT_S)
        consumer.ack(wait=True)
        return done / (time.perf_counter() - began)


def _queue_acks(client: ringfence.Client, count: int) -> float:
    """Each row of a delivery is done by itself."""
    with client.consumer(TOPIC, cohort="single", mode="queue", ack="manual") as consumer:
        began, done = time.perf_counter(), 0
        for delivery in consumer.deliveries():
            for row in range(delivery.batch.num_rows):
                delivery.ack([row])
            done += delivery.batch.num_rows
            if done >= count:
                consumer.ack(delivery.place, wait=True)
                break
        return done / (time.perf_counter() - began)

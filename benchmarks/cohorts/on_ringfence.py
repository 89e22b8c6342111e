"""One node of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

import ringfence
from benchmarks.cohorts.messages import SCHEMA, STREAMS
from benchmarks.cohorts.running import TOPIC, Running
from tests.harness.processes import NodeProcess

GRACE_S: Final = 12
"""After which others get the partitions of a killed member: the least that a node takes; 30 by default."""


@contextmanager
def on_ringfence(folder: Path) -> Iterator[Running]:
    options = ("--session-grace-s", str(GRACE_S))
    with (
        NodeProcess(folder / "node", options, log_folder=folder) as node,
        ringfence.connect(node.address) as client,
    ):
        client.create_topic(TOPIC, schema=SCHEMA, key="key", partitions=STREAMS)
        with client.producer(TOPIC) as producer:
            yield Running(node.address, lambda _, batch: _begin(producer, batch), producer.flush)


def _begin(producer: ringfence.Producer, batch: pa.RecordBatch) -> None:
    producer.send(batch)

"""Nodes whose disk is busy: a topic that is full, and one producer that sends as fast as it may."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import ringfence
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory
from ringfence.native.messages import PartitionStats

THROTTLE_BYTES_PER_S = 150_000_000
BATCH_BYTES = 1 << 20


class Loaded(NamedTuple):
    nodes: Nodes
    parts: list[PartitionStats]
    steady: Steady

    @property
    def control(self) -> str:
        return self.nodes.all[0].control

    def move(self, part: PartitionStats) -> tuple[int, tuple[int, ...]]:
        """Of a partition to the node behind its owner, as rebalances take it."""
        order = [node.node for node in self.nodes.all]
        return part.partition, (order[(order.index(part.owner) + 1) % len(order)],)


@contextmanager
def loaded(partitions: int, retention_bytes: int) -> Iterator[Loaded]:
    """Full load over so many partitions, from when retention gives up the first rows."""
    with (
        tempfile.TemporaryDirectory(dir=work_directory()) as folder,
        Nodes(Path(folder), options=("--http", "127.0.0.1:0")) as nodes,
    ):
        nodes.configure(sync_bytes_per_s=THROTTLE_BYTES_PER_S)
        addresses = ",".join(node.address for node in nodes.all)
        with ringfence.connect(addresses) as client:
            parts = client.create_topic(
                "t", schema=SCHEMA, partitions=partitions, retention_bytes=retention_bytes
            ).partitions
        with Steady(addresses, "t", math.inf, BATCH_BYTES) as steady:
            full = 1.2 * retention_bytes * partitions / BATCH_BYTES
            until(lambda: len(steady.acknowledged_s) > full, 300.0)
            yield Loaded(nodes, parts, steady)

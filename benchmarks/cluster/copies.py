"""Three copies on one machine against one: the same producer, nodes and disk, turn and turn about."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import ringfence
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory

TURNS = 3
TURN_S = 10.0
WARM_BATCHES = 400
BATCH_BYTES = 1 << 20
RETENTION_BYTES = 512 << 20
RATIO_MIN = 0.4


def measure(turns: int = TURNS) -> dict[str, Any]:
    """Acknowledged MB/s with one replica and with three, each acknowledged as its topic wants it: durable."""
    flows: dict[int, list[dict[str, float]]] = {1: [], 3: []}
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        for replication in flows:
            _topic(addresses, replication)
        for _ in range(turns):
            for replication, seen in flows.items():
                with Steady(addresses, f"r{replication}", math.inf, BATCH_BYTES) as steady:
                    until(lambda steady=steady: len(steady.acknowledged_s) > WARM_BATCHES, 300.0)
                    began = time.perf_counter()
                    time.sleep(TURN_S)
                    phase = (began, time.perf_counter())
                seen.append(steady.flow([phase]))
    rates = {replication: median(flow["mb_per_s"] for flow in seen) for replication, seen in flows.items()}
    return {
        "limits": {"ratio": RATIO_MIN},
        "one_mb_per_s": rates[1],
        "three_mb_per_s": rates[3],
        "one": flows[1],
        "three": flows[3],
        "ratio": round(rates[3] / rates[1], 3),
    }


def held(result: dict[str, Any]) -> bool:
    return bool(result["ratio"] >= RATIO_MIN)


def _topic(addresses: str, replication: int) -> None:
    with ringfence.connect(addresses) as client:
        client.create_topic(
            f"r{replication}",
            schema=SCHEMA,
            partitions=1,
            replication=replication,
            retention_bytes=RETENTION_BYTES,
        )

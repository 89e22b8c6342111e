"""What a batch costs its owner before moves of its partition, and after them: the same (Z15).

A partition goes to another node and comes back. CPU for each batch at its owner is that of before, also while
the last move could be reversed; and nothing is forwarded in either.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import ringfence
from benchmarks.cluster.nodes import Nodes, ServeProcess, until
from benchmarks.cluster.rebalances import rebalanced
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory
from benchmarks.process import usage

BYTES_PER_S = 20e6
BATCH_BYTES = 64 << 10
SECONDS = 10.0
ROUNDS = 3
LIMITS = {"cost_ratio": 1.05, "forwarded_bytes": 0}


def measure() -> dict[str, Any]:
    """Microseconds of CPU for a batch at its owner, before and after, the least of some rounds."""
    with (
        tempfile.TemporaryDirectory(dir=work_directory()) as folder,
        Nodes(Path(folder), options=("--http", "127.0.0.1:0")) as nodes,
    ):
        addresses = ",".join(node.address for node in nodes.all)
        with ringfence.connect(addresses) as client:
            [part] = client.create_topic("t", schema=SCHEMA, partitions=1).partitions
        owner = next(node for node in nodes.all if node.node == part.owner)
        other = next(node for node in nodes.all if node.node != part.owner)
        with Steady(addresses, "t", BYTES_PER_S, BATCH_BYTES) as steady:
            until(lambda: len(steady.acknowledged_s) > 500)
            before = [_cost(owner) for _ in range(ROUNDS)]
            for target in (other, owner):
                moves = ((part.partition, (target.node,)),)
                rebalanced(nodes.all[0].control, action="move", moves=moves)
            after = [_cost(owner) for _ in range(ROUNDS)]
    least = min(cost for cost, _ in before), min(cost for cost, _ in after)
    return {
        "limits": LIMITS,
        "bytes_per_s": BYTES_PER_S,
        "batch_bytes": BATCH_BYTES,
        "us_a_batch_before": [round(cost, 2) for cost, _ in before],
        "us_a_batch_after": [round(cost, 2) for cost, _ in after],
        "cost_ratio": round(least[1] / least[0], 3),
        "forwarded_bytes": sum(sent for _, sent in (*before, *after)),
    }


def held(result: dict[str, Any]) -> bool:
    return all(result[name] <= limit for name, limit in LIMITS.items())


def _cost(owner: ServeProcess) -> tuple[float, int]:
    """CPU for a batch in microseconds, and bytes sent to other nodes meanwhile."""
    began = _seen(owner)
    time.sleep(SECONDS)
    cpu_ns, batches, sent = (after - before for before, after in zip(began, _seen(owner), strict=True))
    if not batches:
        raise RuntimeError("no batch was stored: the producer or the node did not stand")
    return cpu_ns / batches / 1e3, sent


def _seen(owner: ServeProcess) -> tuple[int, int, int]:
    assert owner.process is not None
    used = usage(owner.process.pid)
    with ringfence.connect(owner.address) as client:
        counters = client.status().counters
    return used["user_ns"] + used["system_ns"], counters["appended"], counters["replicated_bytes"]

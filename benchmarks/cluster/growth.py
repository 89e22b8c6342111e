"""One node becomes two, three, four: each joins a cluster that is written to, and takes its share."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import ringfence
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.rebalances import rebalanced
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory

PARTITIONS = 12
"""Even over one, two, three and four nodes: 6, 4 and 3 of them move."""
STORED_BYTES = 240 << 20
BYTES_PER_S = 20e6
BATCH_BYTES = 64 << 10
ROW_BYTES = 8
AFTER_S = 1.0
LIMITS = {"moved_over_least": 1.0, "bytes_ratio": 1.05}


def measure() -> dict[str, Any]:
    """For each step: seconds, partitions and bytes that moved, and what the producer saw."""
    steps: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(dir=work_directory()) as folder,
        Nodes(Path(folder), 1) as nodes,
        ringfence.connect(nodes.all[0].address) as client,
    ):
        client.create_topic("t", schema=SCHEMA, partitions=PARTITIONS)
        with Steady(nodes.all[0].address, "t", BYTES_PER_S, BATCH_BYTES) as steady:
            until(lambda: len(steady.acknowledged_s) * BATCH_BYTES > STORED_BYTES, 300.0)
            for count in (2, 3, 4):
                steps[f"to_{count}"] = _step(nodes, client, steady, count)
        rows = len(steady.acknowledged_s) * (BATCH_BYTES // ROW_BYTES)
        stored = sum(part.end_offset for part in client.topic("t").partitions)
    ratio = max(step["bytes_ratio"] for step in steps.values())
    moved = max(step["moved"] / step["least"] for step in steps.values())
    return {
        "limits": LIMITS,
        **steps,
        "bytes_ratio": ratio,
        "moved_over_least": round(moved, 3),
        "rows_acknowledged": rows,
        "rows_stored": stored,
    }


def held(result: dict[str, Any]) -> bool:
    is_whole = result["rows_stored"] == result["rows_acknowledged"]
    return is_whole and all(result[name] <= limit for name, limit in LIMITS.items())


def _step(nodes: Nodes, client: ringfence.Client, steady: Steady, count: int) -> dict[str, Any]:
    began = time.perf_counter()
    time.sleep(AFTER_S)
    calm = steady.longest_gap_s(began, time.perf_counter())
    began = time.perf_counter()
    node = nodes.add()
    joined = time.perf_counter()
    moves = rebalanced(nodes.all[0].control, action="add_node", node=node.node)["moves"]
    ended = time.perf_counter()
    time.sleep(AFTER_S)
    size, least = sum(move["bytes"] for move in moves), ROW_BYTES * sum(move["rows"] for move in moves)
    gaps = sorted(move["gap_us"] / 1e3 for move in moves if move["gap_us"] is not None)
    return {
        "moved": len(moves),
        "least": PARTITIONS // count,
        "join_s": round(joined - began, 2),
        "rebalance_s": round(ended - joined, 2),
        "moved_mb": round(size / 1e6, 1),
        "bytes_ratio": round(size / least, 4),
        "gap_ms": {"p50": round(gaps[len(gaps) // 2], 1), "worst": round(gaps[-1], 1)},
        "longest_pause_ms": round(steady.longest_gap_s(joined, ended + AFTER_S) * 1e3, 1),
        "without_moves_ms": round(calm * 1e3, 1),
        "owned_after": _owned(client, node.node),
    }


def _owned(client: ringfence.Client, node: int) -> int:
    return sum(part.owner == node for part in client.topic("t").partitions)

"""Moves of a partition that is written at 20 MB/s: how long no acknowledgement comes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import ringfence
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.rebalances import rebalanced
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory

MOVES = 20
BYTES_PER_S = 20e6
GAP_P99_S = 0.040
AFTER_S = 0.5
"""Looked at behind a move's end, so that the first answer of the new owner is seen."""


def measure(moves: int = MOVES) -> dict[str, Any]:
    """Gaps of moves with one copy (everything is copied) and of hand-overs between three copies."""
    result: dict[str, Any] = {"limits": {"gap_p99_s": GAP_P99_S}, "moves": moves, "bytes_per_s": BYTES_PER_S}
    for name, replication in (("moved", 1), ("handed_over", 3)):
        with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
            result[name] = _gaps(nodes, replication, moves)
    return result


def held(result: dict[str, Any]) -> bool:
    return all(result[name]["gap_ms"]["p99"] <= GAP_P99_S * 1e3 for name in ("moved", "handed_over"))


class Seen:
    """What all moves of one kind gave; seconds, bytes."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.calm: list[float] = []
        self.durations: list[float] = []
        self.size = self.batches = 0

    def figures(self) -> dict[str, Any]:
        p99 = float(np.quantile(self.gaps, 0.99))
        return {
            "gap_ms": {"p50": _ms(median(self.gaps)), "p99": _ms(p99), "worst": _ms(max(self.gaps))},
            "without_a_move_ms": {"p50": _ms(median(self.calm)), "worst": _ms(max(self.calm))},
            "move_s": {"median": round(median(self.durations), 3), "worst": round(max(self.durations), 3)},
            "moved_bytes": self.size,
            "batches": self.batches,
        }


def _gaps(nodes: Nodes, replication: int, moves: int) -> dict[str, Any]:
    seen = Seen()
    # With one copy a topic is moved twice, each time to a node that never had it: all of it is copied.
    each = 2 if replication == 1 else moves
    for number in range(0, moves, each):
        _of_topic(nodes, f"t{number}", replication, min(each, moves - number), seen)
    return seen.figures()


def _of_topic(nodes: Nodes, topic: str, replication: int, moves: int, seen: Seen) -> None:
    addresses = ",".join(node.address for node in nodes.all)
    with ringfence.connect(addresses) as client:
        info = client.create_topic(topic, schema=SCHEMA, partitions=1, replication=replication)
    part = info.partitions[0]
    control, order = nodes.all[0].control, [node.node for node in nodes.all]
    owner = part.owner
    with Steady(addresses, topic, BYTES_PER_S) as steady:
        until(lambda: len(steady.acknowledged_s) > 100)
        for _ in range(moves):
            began = time.perf_counter()
            time.sleep(AFTER_S)
            seen.calm.append(steady.longest_gap_s(began, time.perf_counter()))
            owner = order[(order.index(owner) + 1) % len(order)]
            others = [node for node in order if node != owner]
            target = (owner,) if replication == 1 else (owner, *others)
            began = time.perf_counter()
            shown = rebalanced(control, action="move", moves=((part.partition, target),))
            ended = time.perf_counter()
            seen.size += sum(move["bytes"] for move in shown["moves"])
            time.sleep(AFTER_S)
            seen.gaps.append(steady.longest_gap_s(began, time.perf_counter()))
            seen.durations.append(ended - began)
    seen.batches += len(steady.acknowledged_s)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)

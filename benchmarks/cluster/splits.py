"""Splits, merges and repartitions of a topic that is written to: how long no acknowledgement comes.

Beside a hand-over of the same topic, in turns of one run: the shortest move that there is. The producer's
rows have keys of all slots, so each send waits for the partitions that change.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import ringfence
from benchmarks.cluster.layouts import KEY, REPLICATION, ChangedTopic, LeaderView
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.steady import BATCH_BYTES, SCHEMA, Steady
from benchmarks.paths import work_directory

ROUNDS = 20
TOPIC_ROUNDS = 5
"""Then the topic is deleted: what is sealed keeps its rows, and the disk has an end."""
RETENTION_BYTES = 64 << 20
PARTS = 3
AFTER_S = 0.5
WARM_BATCHES = 100
STEADY, FULL = "at_20_mb_per_s", "at_full_load"
# By name: bytes a second, bytes a batch.
LOADS = {STEADY: (20e6, BATCH_BYTES), FULL: (math.inf, 1 << 20)}
MOVED = "handed_over"
KINDS = (MOVED, "split", "merged", "repartitioned")
# Of the p99 of a move at 20 MB/s in the same run.
RATIO_MAX = {STEADY: 1.5, FULL: 5.0}
GAP_P99_AIM_MS = {STEADY: 40.0, FULL: 200.0}


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Gaps of each kind of change at each load, as the producer sees them and as the leader does."""
    result: dict[str, Any] = {
        "limits": {"ratio": RATIO_MAX},
        "aims": {"gap_p99_ms": GAP_P99_AIM_MS},
        "rounds": rounds,
    }
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        for load in LOADS:
            seen = Seen()
            for number in range(0, rounds, TOPIC_ROUNDS):
                _of_topic(nodes, load, f"{load}-{number}", min(TOPIC_ROUNDS, rounds - number), seen)
            result[load] = seen.figures()
    return {**result, "ratios": ratios(result)}


def ratios(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The p99 of each kind over that of a move at 20 MB/s; at full load over that of a move there, too."""
    moved = {load: result[load][MOVED]["gap_ms"]["p99"] for load in LOADS}
    found = {
        load: {kind: round(result[load][kind]["gap_ms"]["p99"] / moved[STEADY], 2) for kind in KINDS}
        for load in LOADS
    }
    beside = {kind: round(result[FULL][kind]["gap_ms"]["p99"] / moved[FULL], 2) for kind in KINDS}
    return {**found, "of_a_move_at_full_load": beside}


def held(result: dict[str, Any]) -> bool:
    found = result["ratios"]
    return all(found[load][kind] <= most for load, most in RATIO_MAX.items() for kind in KINDS[1:])


class Seen:
    """What all changes of each kind gave; seconds."""

    def __init__(self) -> None:
        self.calm: list[float] = []
        self.mb_per_s: list[float] = []
        self.aborted = 0
        self.gaps: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.views: dict[str, list[LeaderView]] = {kind: [] for kind in KINDS}

    def figures(self) -> dict[str, Any]:
        return {
            "mb_per_s": round(median(self.mb_per_s), 1),
            "aborted": self.aborted,
            "without_a_change_ms": {"p50": _ms(median(self.calm)), "worst": _ms(max(self.calm))},
            **{kind: self._of(kind) for kind in KINDS},
        }

    def _of(self, kind: str) -> dict[str, Any]:
        gaps, views = self.gaps[kind], self.views[kind]
        told = [view.gap_ms for view in views if view.gap_ms is not None]
        held = [view.phases_ms["HELD"] for view in views if "HELD" in view.phases_ms]
        return {
            "changes": len(gaps),
            "gap_ms": gap_ms(gaps),
            "leader_gap_ms": {"p50": round(median(told), 1), "worst": round(max(told), 1)} if told else None,
            "held_ms": {"p50": median(held), "worst": max(held)} if held else None,
        }


def gap_ms(gaps: list[float]) -> dict[str, float]:
    """Of gaps in seconds. Of twenty the p99 is nearly the worst."""
    p99 = float(np.quantile(gaps, 0.99))
    return {"p50": _ms(median(gaps)), "p99": _ms(p99), "worst": _ms(max(gaps))}


def _of_topic(nodes: Nodes, load: str, topic: str, rounds: int, seen: Seen) -> None:
    bytes_per_s, batch_bytes = LOADS[load]
    addresses = ",".join(node.address for node in nodes.all)
    with ringfence.connect(addresses) as client:
        client.create_topic(
            topic,
            schema=SCHEMA,
            key=KEY,
            partitions=1,
            replication=REPLICATION,
            retention_bytes=RETENTION_BYTES,
        )
        layout = ChangedTopic(client, topic, nodes.all[0].control, [node.node for node in nodes.all])
        with Steady(addresses, topic, bytes_per_s, batch_bytes) as steady:
            until(lambda: len(steady.acknowledged_s) > WARM_BATCHES)
            for _ in range(rounds):
                _round(layout, steady, seen)
        client.delete_topic(topic)
    seen.aborted += layout.aborted


def _round(layout: ChangedTopic, steady: Steady, seen: Seen) -> None:
    began = time.perf_counter()
    time.sleep(2 * AFTER_S)
    ended = time.perf_counter()
    seen.calm.append(steady.longest_gap_s(began, ended))
    seen.mb_per_s.append(steady.flow([(began, ended)])["mb_per_s"])
    changes: tuple[tuple[str, Callable[[], LeaderView]], ...] = (
        (MOVED, layout.hand_over),
        ("split", layout.split),
        ("merged", layout.merge),
        ("repartitioned", lambda: layout.repartition(PARTS)),
        ("repartitioned", lambda: layout.repartition(1)),
    )
    for kind, change in changes:
        began = time.perf_counter()
        seen.views[kind].append(change())
        time.sleep(AFTER_S)
        seen.gaps[kind].append(steady.longest_gap_s(began, time.perf_counter()))


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)

"""Random repartitions of a topic that is written to: the longest wait of its producers, and their errors."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import ringfence
from benchmarks.cluster.layouts import KEY, REPLICATION, ChangedTopic, LeaderView
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory

CHANGES = 100
PARTITIONS_MAX = 16
SEED = 24
RETENTION_BYTES = 16 << 20
# By producer: its name in the cluster, bytes a second.
PRODUCERS: dict[str, tuple[str | None, float]] = {"plain": (None, 20e6), "named": ("writer", 2e6)}
BETWEEN_S = 0.3
WAIT_AIM_S = 1.0
SHOWN = 5
"""Longest waits that are shown with what happened meanwhile."""


class Change(NamedTuple):
    """One repartition; seconds of `time.perf_counter`."""

    before: int
    after: int
    began_s: float
    ended_s: float
    view: LeaderView


def measure(changes: int = CHANGES) -> dict[str, Any]:
    """Waits from a send to its outcome."""
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        with ringfence.connect(addresses) as client:
            client.create_topic(
                "t",
                schema=SCHEMA,
                key=KEY,
                partitions=1,
                replication=REPLICATION,
                retention_bytes=RETENTION_BYTES,
            )
            layout = ChangedTopic(client, "t", nodes.all[0].control, [node.node for node in nodes.all])
            producers = {
                kind: Steady(addresses, "t", bytes_per_s, name=name, raises=False)
                for kind, (name, bytes_per_s) in PRODUCERS.items()
            }
            done: list[Change] = []
            dice = random.Random(SEED)
            with contextlib.ExitStack() as open_ones:
                for producer in producers.values():
                    open_ones.enter_context(producer)
                until(lambda: all(len(one.acknowledged_s) > 10 for one in producers.values()))
                done.extend(_changed(layout, dice) for _ in range(changes))
    took_s = [change.ended_s - change.began_s for change in done]
    return {
        "aims": {"longest_wait_s": WAIT_AIM_S},
        "limits": {"errors": 0},
        "changes": len(done),
        "aborted": layout.aborted,
        "errors": sum(len(producer.errors) for producer in producers.values()),
        "change_s": {"median": round(median(took_s), 2), "worst": round(max(took_s), 2)},
        **{kind: waits(producer, done) for kind, producer in producers.items()},
    }


def held(result: dict[str, Any]) -> bool:
    longest_s = max(result[kind]["longest_s"] for kind in PRODUCERS)
    return bool(result["errors"] == 0 and longest_s <= WAIT_AIM_S)


def waits(producer: Steady, done: Sequence[Change]) -> dict[str, Any]:
    """Quantiles of the waits; the longest of different changes, with what happened meanwhile."""
    found = sorted(zip(producer.waits_s, producer.acknowledged_s, strict=True), reverse=True)
    by_change: dict[int, dict[str, Any]] = {}
    for wait_s, answered_s in found:
        number = change_at(done, answered_s - wait_s, answered_s)
        if number not in by_change:
            by_change[number] = explained(done, number, wait_s, answered_s)
        if len(by_change) == SHOWN:
            break
    took_s = [wait_s for wait_s, _ in found]
    p50, p99 = np.quantile(took_s, [0.5, 0.99])
    return {
        "sends": len(found),
        "p50_ms": round(p50 * 1e3, 1),
        "p99_ms": round(p99 * 1e3, 1),
        "longest_s": round(took_s[0], 3),
        "longest": list(by_change.values()),
    }


def change_at(done: Sequence[Change], since_s: float, until_s: float) -> int:
    """The first change that was going on between these moments; -1: none was."""
    meanwhile = (at for at, one in enumerate(done) if one.began_s <= until_s and since_s <= one.ended_s)
    return next(meanwhile, -1)


def explained(done: Sequence[Change], number: int, wait_s: float, answered_s: float) -> dict[str, Any]:
    """A wait, and the change that was going on."""
    told: dict[str, Any] = {"wait_ms": round(wait_s * 1e3, 1)}
    if number < 0:
        return {**told, "change": None}
    change = done[number]
    return {
        **told,
        "change": f"{number}: {change.before} -> {change.after}",
        "sent_ms": round((answered_s - wait_s - change.began_s) * 1e3),
        "answered_ms": round((answered_s - change.began_s) * 1e3),
        "took_ms": round((change.ended_s - change.began_s) * 1e3),
        "gap_ms": change.view.gap_ms,
        "phases_ms": change.view.phases_ms,
    }


def _changed(layout: ChangedTopic, dice: random.Random) -> Change:
    before = len(layout.partitions())
    after = dice.choice([count for count in range(1, PARTITIONS_MAX + 1) if count != before])
    began_s = time.perf_counter()
    view = layout.repartition(after)
    ended_s = time.perf_counter()
    time.sleep(BETWEEN_S)
    return Change(before, after, began_s, ended_s, view)

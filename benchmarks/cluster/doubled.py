"""64 partitions become 128 as one change, and 64 again, while all of them are written to."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import ringfence
from benchmarks.cluster.layouts import KEY, REPLICATION, ChangedTopic
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.cluster.splits import gap_ms
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory

CHANGES = 10
WIDTH = 64
BYTES_PER_S = 20e6
BATCH_BYTES = 256 << 10
"""One every 13 ms: each send is a body for each partition, and a cluster on two cores takes so many."""
AFTER_S = 1.0
GAP_AIM_MS = 250.0


def measure(changes: int = CHANGES, width: int = WIDTH) -> dict[str, Any]:
    """Gaps of the change to twice as many partitions, and of the change back."""
    gaps: dict[str, list[float]] = {"doubled": [], "halved": []}
    held: dict[str, list[int]] = {"doubled": [], "halved": []}
    calm: list[float] = []
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        with ringfence.connect(addresses) as client:
            client.create_topic("t", schema=SCHEMA, key=KEY, partitions=width, replication=REPLICATION)
            layout = ChangedTopic(client, "t", nodes.all[0].control, [node.node for node in nodes.all])
            with Steady(addresses, "t", BYTES_PER_S, BATCH_BYTES) as steady:
                until(lambda: len(steady.acknowledged_s) > 100)
                for _ in range(changes):
                    began = time.perf_counter()
                    time.sleep(AFTER_S)
                    calm.append(steady.longest_gap_s(began, time.perf_counter()))
                    for kind, count in (("doubled", 2 * width), ("halved", width)):
                        began = time.perf_counter()
                        view = layout.repartition(count)
                        time.sleep(AFTER_S)
                        gaps[kind].append(steady.longest_gap_s(began, time.perf_counter()))
                        held[kind].append(view.phases_ms.get("HELD", 0))
    return {
        "aims": {"gap_p99_ms": GAP_AIM_MS},
        "partitions": width,
        "aborted": layout.aborted,
        "without_a_change_ms": gap_ms(calm),
        **{kind: {"gap_ms": gap_ms(gaps[kind]), "held_ms": median(held[kind])} for kind in gaps},
    }


def held(result: dict[str, Any]) -> bool:
    return bool(result["doubled"]["gap_ms"]["p99"] <= GAP_AIM_MS)

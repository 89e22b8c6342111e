"""Read counters of this node's partitions, and compute the lag of their replicas."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


def hosted(native: Any, topic: int = 0) -> list[dict[str, Any]]:
    """Counters of the partitions of `topic` on this node; 0: of all topics.

    `lag_records` counts the records that the slowest replica lacks, 0 where this node is not the owner.
    Targets of moves are not counted as replicas.
    """
    partitions = [dict(counters) for counters in native.partitions() if topic in {0, counters["topic"]}]
    lags: defaultdict[tuple[int, int], int] = defaultdict(int)
    for sync in native.syncs() if partitions else ():
        if not sync["change"]:
            key = sync["topic"], sync["partition"]
            lags[key] = max(lags[key], sync["gap"])
    for counters in partitions:
        counters["lag_records"] = lags[counters["topic"], counters["partition"]]
    return partitions

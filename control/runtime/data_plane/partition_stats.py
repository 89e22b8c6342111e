"""What the native node says of its partitions, and how far their replicas are behind."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


def hosted(native: Any, topic: int = 0) -> list[dict[str, Any]]:
    """As `partitions()`, those of one topic, or of all; an owner's with `lag_records`.

    That is what the replica that is furthest behind lacks; a copy of a move is none.
    """
    found = [dict(known) for known in native.partitions() if topic in {0, known["topic"]}]
    lags: defaultdict[tuple[int, int], int] = defaultdict(int)
    for sync in native.syncs() if found else ():
        if not sync["change"]:
            place = sync["topic"], sync["partition"]
            lags[place] = max(lags[place], sync["gap"])
    for known in found:
        known["lag_records"] = lags[known["topic"], known["partition"]]
    return found

"""Compute the lag of a stream from Spark's own progress: Python data sources have no metrics (Spark 4.3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def waiting(progress: Mapping[str, Any]) -> dict[int, int]:
    """Rows that could be read when the micro-batch was planned and are after its end, by partition.

    Args:
        progress: `query.lastProgress`, or one of `query.recentProgress`.

    Returns:
        Partition -> rows, of all sources of the query that read topics. Empty if Spark's progress has no
        newest offset (a micro-batch without data, for example).
    """
    rows: dict[int, int] = {}
    for source in progress["sources"]:
        newest, end = (_offsets(source[name]) for name in ("latestOffset", "endOffset"))
        for partition, offset in newest.items():
            rows[partition] = max(0, offset - end.get(partition, 0))
    return rows


def _offsets(text: str | None) -> dict[int, int]:
    """Partition -> offset, from an offset of stream_read.py; empty for the offset of another source."""
    try:
        values = json.loads(text or "{}")
        return {int(partition): int(place["offset"]) for partition, place in values["partitions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}

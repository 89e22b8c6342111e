"""How far behind a stream is, out of Spark's own progress: its Python data sources have no metrics (4.3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def waiting(progress: Mapping[str, Any]) -> dict[int, int]:
    """Rows that could be read when the micro-batch was planned and are behind its end, by partition.

    Args:
        progress: `query.lastProgress`, or one of `query.recentProgress`.

    Returns:
        Partition -> rows; all sources of the query that read topics together. Empty where Spark tells no
        newest offset (a micro-batch without data, for one).
    """
    found: dict[int, int] = {}
    for source in progress["sources"]:
        newest, end = (_offsets(source[name]) for name in ("latestOffset", "endOffset"))
        for partition, offset in newest.items():
            found[partition] = max(0, offset - end.get(partition, 0))
    return found


def _offsets(text: str | None) -> dict[int, int]:
    """Partition -> offset of what stream_read.py gave; empty for the offset of another source."""
    try:
        told = json.loads(text or "{}")
        return {int(partition): int(place["offset"]) for partition, place in told["partitions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}

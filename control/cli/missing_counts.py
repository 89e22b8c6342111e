"""Mark unknown row and byte counts of topics in tables, and report the owners that did not answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ringfence.control.cli.exit_codes import CountsMissingError
from ringfence.control.cli.output import format_bytes, format_value
from ringfence.control.model.names import shown_topic_name
from ringfence.control.model.text import listed

UNKNOWN: Final = "?"
# Partitions of a topic that the error names; --json has all of them.
PARTITIONS_NAMED: Final = 8
# Topics of one owner that the error names, so that the error fits on one line.
TOPICS_NAMED: Final = 4


def format_rows(topic: dict[str, Any]) -> str | int:
    """Return the rows of a topic; a `?` is added if some partitions are unknown."""
    if topic["rows"] is not None:
        return int(topic["rows"])
    rows = [part["end_offset"] - part["start_offset"] for part in _counted(topic)]
    return f"{format_value(sum(rows))} + {UNKNOWN}" if rows else UNKNOWN


def format_size(topic: dict[str, Any]) -> str:
    """Return the bytes of a topic, as `format_rows` does for the rows."""
    if topic["bytes"] is not None:
        return format_bytes(topic["bytes"])
    sizes = [part["bytes"] for part in _counted(topic)]
    return f"{format_bytes(sum(sizes))} + {UNKNOWN}" if sizes else UNKNOWN


def check_counts(topics: Iterable[dict[str, Any]], stale_reason: str = "") -> None:
    """Raise CountsMissingError, with partitions and nodes, if a count is missing.

    `stale_reason`: why the topics are those of one node only, which may lack the newest topics.
    """
    missing: dict[str, dict[str, list[int]]] = {}
    for topic in topics:
        for part in topic["partitions"]:
            if part.get("unknown") is not None:
                partitions_by_topic = missing.setdefault(part["unknown"], {})
                name = shown_topic_name(topic["name"])
                partitions_by_topic.setdefault(name, []).append(part["partition"])
    faults = (
        [f"the answer is that of one node and may lack newer changes: {stale_reason}"] if stale_reason else []
    )
    if missing:
        owners = "; ".join(f"{why}: {_partition_list(topics_of)}" for why, topics_of in missing.items())
        faults.append(f"rows and bytes are missing: {owners}")
    if faults:
        raise CountsMissingError("; ".join(faults))


def _partition_list(topics: dict[str, list[int]]) -> str:
    texts = [
        f"{name} partition{'s' if len(numbers) > 1 else ''} {listed(numbers, PARTITIONS_NAMED)}"
        for name, numbers in topics.items()
    ]
    return listed(texts, TOPICS_NAMED, "; ")


def _counted(topic: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the partitions with known counts."""
    return [part for part in topic["partitions"] if part.get("unknown") is None]

"""Rows and bytes of topics where some owner tells none: marked in tables, and told behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ringfence.control.cli.exit_codes import CountsMissingError
from ringfence.control.cli.output import shown, shown_bytes
from ringfence.control.model.names import shown_topic_name
from ringfence.control.model.text import listed

UNKNOWN: Final = "?"
# Of a topic whose owner is silent; --json has them all.
PARTITIONS_NAMED: Final = 8
# Of one silent owner: the error is one line.
TOPICS_NAMED: Final = 4


def shown_rows(topic: dict[str, Any]) -> str | int:
    """Of the partitions that are known, with a mark where others are not."""
    if topic["rows"] is not None:
        return int(topic["rows"])
    known = [part["end_offset"] - part["start_offset"] for part in _known(topic)]
    return f"{shown(sum(known))} + {UNKNOWN}" if known else UNKNOWN


def shown_size(topic: dict[str, Any]) -> str:
    """As `shown_rows`, of the bytes."""
    if topic["bytes"] is not None:
        return shown_bytes(topic["bytes"])
    known = [part["bytes"] for part in _known(topic)]
    return f"{shown_bytes(sum(known))} + {UNKNOWN}" if known else UNKNOWN


def check_counts(topics: Iterable[dict[str, Any]], alone: str = "") -> None:
    """Raises CountsMissingError, which names partitions and nodes, where a figure is missing.

    `alone`: why one node had to be believed, which may not know the newest topics.
    """
    silent: dict[str, dict[str, list[int]]] = {}
    for topic in topics:
        for part in topic["partitions"]:
            if part.get("unknown") is not None:
                of = silent.setdefault(part["unknown"], {})
                of.setdefault(shown_topic_name(topic["name"]), []).append(part["partition"])
    faults = [f"this is what one node knows, newer changes may be missing: {alone}"] if alone else []
    if silent:
        named = "; ".join(f"{why}: {_named(of)}" for why, of in silent.items())
        faults.append(f"rows and bytes are missing: {named}")
    if faults:
        raise CountsMissingError("; ".join(faults))


def _named(topics: dict[str, list[int]]) -> str:
    texts = [
        f"{name} partition{'s' if len(numbers) > 1 else ''} {listed(numbers, PARTITIONS_NAMED)}"
        for name, numbers in topics.items()
    ]
    return listed(texts, TOPICS_NAMED, "; ")


def _known(topic: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in topic["partitions"] if part.get("unknown") is None]

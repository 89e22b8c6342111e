"""Limits of a cluster, kept in its metadata so that every node refuses the same commands."""

from __future__ import annotations

from typing import Final, NamedTuple

from ringfence.control.model.state import MetadataState


class Limit(NamedTuple):
    """A setting of the cluster: its default, the range it may have, and the reason of the default."""

    default: int
    low: int
    high: int
    reason: str


LIMITS: Final[dict[str, Limit]] = {
    "topics_max": Limit(10_000, 1, 100_000, "a command copies the map of topics: 0.1 ms at 10,000"),
    "partitions_max": Limit(
        65_536, 1, 1_000_000, "a node keeps at most 4 KiB for an idle partition: 256 MiB"
    ),
    "topic_partitions_max": Limit(
        4_096,
        1,
        4_096,
        "a table (about 125 bytes a partition) and a description (175) fit a control body of 1 MiB",
    ),
    "topic_schemas_max": Limit(256, 1, 4_096, "every schema travels in the topic's table"),
    "topic_schemas_bytes_max": Limit(
        262_144, 1_024, 262_144, "beside 4,096 partitions in a control body of 1 MiB"
    ),
    "topic_producers_max": Limit(
        10_000, 1, 100_000, "named producers; each open copies the topic's map of names"
    ),
}

PROPERTIES_MAX: Final = 64
"""Properties of one topic: labels for people, not a store."""
PROPERTIES_BYTES_MAX: Final = 8_192
"""All names and values together; they travel in every description."""
SESSIONS_MAX: Final = 1_024
"""Sessions of proposers; the least recently used one gives way. A node holds one."""
SESSION_WINDOW: Final = 64
"""Commands that one session may have unanswered; results are kept for as many."""


def limit(state: MetadataState, name: str) -> int:
    """The value that holds in this state."""
    return state.config.get(name, LIMITS[name].default)

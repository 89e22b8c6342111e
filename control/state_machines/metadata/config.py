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
    "scopes_max": Limit(
        4_096,
        16,
        100_000,
        "scopes of atomic writers; those of batch jobs without a name make room, named ones stay",
    ),
    "nodes_max": Limit(1_000, 1, 10_000, "every node holds the metadata and beats to the leader"),
    "nodes_min": Limit(
        1, 1, 1_000, "a node alone serves; a cluster waits for so many before its first topic"
    ),
    "heartbeat_ms": Limit(200, 10, 60_000, "a small message; 1,000 nodes give the leader 5,000 a second"),
    "failure_ms": Limit(
        2_000, 100, 600_000, "10 beats, more than a loaded machine pauses; a dead owner's rows wait so long"
    ),
    "voters_max": Limit(5, 1, 5, "1, 3 or 5; five survive two failures, more only make commits slower"),
    "changes_max": Limit(
        64, 1, 4_096, "planned changes that are open at once; each holds a sync and questions of the leader"
    ),
    "moves_concurrent": Limit(1, 1, 64, "one at a time: a copy takes disk and network from producers"),
    "node_moves_concurrent": Limit(1, 1, 16, "moves that one node sends or takes at once"),
    "sync_bytes_per_s": Limit(
        0, 0, 1 << 40, "0: a copy is as fast as it can; else the bytes per second of one copy"
    ),
    "move_timeout_ms": Limit(
        3_600_000, 1_000, 604_800_000, "an hour copies 500 GB at 0.15 GB/s; then the try is aborted"
    ),
    "hold_timeout_ms": Limit(
        5_000, 100, 600_000, "a HOLD takes ms; one that does not end keeps producers waiting"
    ),
    "reverse_hold_s": Limit(
        300, 0, 604_800, "so long a finished change can be reversed, and costs its old copy's space; 0: not"
    ),
    "policy_enabled": Limit(0, 0, 1, "0: nothing moves unless somebody says so"),
    "policy_imbalance_percent": Limit(
        200, 100, 10_000, "max/min of the nodes' loads, in percent, that must be passed: 2.0"
    ),
    "policy_check_interval_s": Limit(60, 1, 86_400, "loads are averages of some seconds; moves take minutes"),
    "policy_cooldown_s": Limit(300, 0, 86_400, "after its moves: their effect must be seen first"),
    "policy_grace_s": Limit(120, 0, 86_400, "after an election: a new leader has no loads yet"),
    "data_tokens": Limit(
        1, 0, 1, "1: with tokens in the cluster the data socket asks for one, too; 0: it takes anyone"
    ),
    "ring_joins": Limit(1, 0, 1, "1: a node that has joined is added to the ring; 0: only on demand"),
}

PROPERTIES_MAX: Final = 64
"""Properties of one topic: labels for people, not a store."""
PROPERTIES_BYTES_MAX: Final = 8_192
"""All names and values together; they travel in every description."""
SESSIONS_MAX: Final = 1_024
"""Sessions of proposers; the least recently used one gives way. A node holds one."""
SESSION_WINDOW: Final = 64
"""Commands that one session may have unanswered; results are kept for as many."""
REQUESTS_MAX: Final = 1_024
"""Answers of keyed requests that are kept; the oldest is forgotten. Administrators send a few a minute, and
who lost an answer repeats within minutes; about 150 bytes each."""
TOKENS_MAX: Final = 256
"""People and programs, not users: each HELLO is compared with all of them."""

LABELS_MAX: Final = 32
"""Labels of one node, for people and for placement by zone."""
WEIGHT_MAX: Final = 10_000
"""A hundred times the default: more would be another kind of machine."""
REMOVED_MAX: Final = 4_096
"""Removed nodes that are remembered; the oldest is forgotten, its store is a stranger then."""
BEATS_MIN: Final = 3
"""Heartbeats that must be missed before a node fails: one or two are lost by any network."""


def limit(state: MetadataState, name: str) -> int:
    """The value that holds in this state."""
    return state.config.get(name, LIMITS[name].default)

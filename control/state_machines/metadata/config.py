"""Limits of a cluster, part of its metadata so that every node refuses the same commands."""

from __future__ import annotations

from typing import Final, NamedTuple

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.state import MetadataState


class Limit(NamedTuple):
    """A setting of the cluster: its default, its range, and the reason of the default."""

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
        "scopes of atomic writers; unnamed ones of batch jobs are forgotten first, named ones stay",
    ),
    "nodes_max": Limit(1_000, 1, 10_000, "every node holds the metadata and beats to the leader"),
    "nodes_min": Limit(
        1, 1, 1_000, "one node serves alone; a cluster waits for this number before its first topic"
    ),
    "heartbeat_ms": Limit(200, 10, 60_000, "a small message; 1,000 nodes give the leader 5,000 a second"),
    "failure_ms": Limit(
        2_000,
        100,
        600_000,
        "10 beats, more than a loaded machine pauses; rows for a failed owner wait that long",
    ),
    "voters_max": Limit(5, 1, 5, "1, 3 or 5; five survive two failures, more only make commits slower"),
    "changes_max": Limit(
        64, 1, 4_096, "planned changes open at a time; each costs a copy and requests of the leader"
    ),
    "moves_concurrent": Limit(1, 1, 64, "one at a time: a copy takes disk and network from producers"),
    "node_moves_concurrent": Limit(1, 1, 16, "moves that one node sends or receives at a time"),
    "sync_bytes_per_s": Limit(
        0, 0, 1 << 40, "0: a copy is as fast as it can; else the bytes per second of one copy"
    ),
    "move_timeout_ms": Limit(
        3_600_000, 1_000, 604_800_000, "an hour copies 500 GB at 0.15 GB/s; then the try is aborted"
    ),
    "hold_timeout_ms": Limit(5_000, 100, 600_000, "a HOLD takes ms; producers wait until it ends"),
    "reverse_hold_s": Limit(
        300,
        0,
        604_800,
        "a finished change can be reversed for that long, at the space of the old copy; 0: never",
    ),
    "policy_enabled": Limit(0, 0, 1, "0: only an operator moves partitions"),
    "policy_imbalance_percent": Limit(
        200, 100, 10_000, "max/min of the nodes' loads, in percent, that must be passed: 2.0"
    ),
    "policy_check_interval_s": Limit(60, 1, 86_400, "loads are averages of some seconds; moves take minutes"),
    "policy_cooldown_s": Limit(300, 0, 86_400, "after its moves: their effect must be seen first"),
    "policy_partition_bytes_s": Limit(
        1_000, 0, 1 << 40, "each partition counts as so many bytes per second more: idle ones are spread, too"
    ),
    "policy_grace_s": Limit(120, 0, 86_400, "after an election: a new leader has no loads yet"),
    "data_tokens": Limit(
        1, 0, 1, "1: with tokens in the cluster the data socket needs one, too; 0: it needs none"
    ),
    "layout_changes_enabled": Limit(
        1, 0, 1, "0: no partition is split, merged or repartitioned; open layout changes go on"
    ),
    "layout_timeout_ms": Limit(
        60_000, 1_000, 3_600_000, "from a layout change's PREPARE to its HOLD; sources cannot move meanwhile"
    ),
    "stage_wait_ms": Limit(
        5_000, 0, 600_000, "a layout change waits so long for a moment without staged rows in its sources"
    ),
    "repartition_adoption_timeout_ms": Limit(
        30_000, 0, 3_600_000, "from drained sources to the end of a layout change that clients do not adopt"
    ),
    "auto_split": Limit(0, 0, 1, "0: only an operator splits partitions, and topics that ask for it do"),
    "auto_merge": Limit(0, 0, 1, "0: only an operator merges partitions, and topics that ask for it do"),
    "auto_split_bytes_s": Limit(
        50_000_000, 1_000, 1 << 40, "a third of what one partition takes: there is room until it is split"
    ),
    "auto_split_rows_s": Limit(500_000, 10, 1 << 40, "many small rows cost the owner more than their bytes"),
    "auto_merge_bytes_s": Limit(
        5_000_000, 0, 1 << 40, "of two partitions together; a tenth of a split's, half of it counts at most"
    ),
    "auto_merge_rows_s": Limit(
        50_000, 0, 1 << 40, "of two partitions together; a tenth of a split's, half of it counts at most"
    ),
    "auto_window_s": Limit(60, 1, 86_400, "a load must be high for so long: a burst of seconds is no load"),
    "auto_merge_window_s": Limit(
        300, 1, 604_800, "a load must be low for so long: a merge that is too early is split again"
    ),
    "auto_split_cooldown_s": Limit(
        60, 1, 86_400, "after any layout change of the topic: its effect must be seen first"
    ),
    "auto_merge_cooldown_s": Limit(
        300, 1, 604_800, "after any layout change of the topic: its effect must be seen first"
    ),
    "auto_partitions_max": Limit(
        64, 1, 4_096, "ACTIVE partitions of a topic that splits without an operator"
    ),
    "auto_partitions_min": Limit(1, 1, 4_096, "ACTIVE partitions of a topic that merges without an operator"),
    "auto_open_max": Limit(
        4, 1, 64, "layout changes without an operator at a time; each costs its producers a gap"
    ),
    "resolve_keep_s": Limit(
        1_200, 60, 86_400, "twice the longest deadline: a SEALED partition answers repeats for that long"
    ),
    "cohorts_max": Limit(1_000, 1, 10_000, "cohorts of all topics; each is planned by the leader"),
    "topic_cohorts_max": Limit(
        64, 1, 64, "cohorts of a topic; the owner of a partition searches them for each fetch of a member"
    ),
    "cohort_members_max": Limit(
        10_000, 1, 10_000, "members of a cohort; more than a topic has partitions stand by"
    ),
    "members_max": Limit(
        100_000, 1, 100_000, "members of all cohorts: 200 bytes of metadata and 16 of each node's engine"
    ),
    "cohorts_by_join": Limit(
        1, 0, 1, "1: a member that joins an unknown cohort creates it; 0: it is refused"
    ),
    "ring_joins": Limit(1, 0, 1, "1: a node that joins is added to the ring; 0: only by an operator"),
}

# The cluster's level from which on these limits can be set: programs of lower levels do not know them.
LEVELS_OF_LIMITS: Final[dict[str, int]] = dict.fromkeys(
    (
        "layout_changes_enabled",
        "layout_timeout_ms",
        "stage_wait_ms",
        "repartition_adoption_timeout_ms",
        "resolve_keep_s",
        "policy_partition_bytes_s",
        "auto_split",
        "auto_merge",
        "auto_split_bytes_s",
        "auto_split_rows_s",
        "auto_merge_bytes_s",
        "auto_merge_rows_s",
        "auto_window_s",
        "auto_merge_window_s",
        "auto_split_cooldown_s",
        "auto_merge_cooldown_s",
        "auto_partitions_max",
        "auto_partitions_min",
        "auto_open_max",
    ),
    LAYOUT_LEVEL,
) | dict.fromkeys(
    ("cohorts_max", "topic_cohorts_max", "cohort_members_max", "members_max", "cohorts_by_join"), COHORT_LEVEL
)

# Properties of one topic: labels for people, not a store.
PROPERTIES_MAX: Final = 64
# Bytes of all names and values together; every description of the topic carries them.
PROPERTIES_BYTES_MAX: Final = 8_192
# Sessions of proposers; a new one replaces the least recently used one. A node holds one.
SESSIONS_MAX: Final = 1_024
# Commands of one session without an answer; the state keeps as many results.
SESSION_WINDOW: Final = 64
# Answers of keyed requests in the state; a new one replaces the oldest. Administrators send a few a minute
# and repeat a request within minutes; about 150 bytes each.
REQUESTS_MAX: Final = 1_024
# Tokens are for people and programs, not for users: each HELLO is compared with all of them.
TOKENS_MAX: Final = 256

# Labels of one node, for people and for placement by zone.
LABELS_MAX: Final = 32
# A hundred times the default: no machine of one cluster is larger than that.
WEIGHT_MAX: Final = 10_000
# Removed nodes in the state. The oldest is forgotten; its store counts as unknown from then on.
REMOVED_MAX: Final = 4_096
# Heartbeats that must be missed before a node fails: any network loses one or two.
BEATS_MIN: Final = 3


def limits_of(state: MetadataState) -> dict[str, Limit]:
    """The limits that can be set at the cluster's level."""
    return {name: known for name, known in LIMITS.items() if LEVELS_OF_LIMITS.get(name, 0) <= state.level}


def limit(state: MetadataState, name: str) -> int:
    """The value of a limit in this state."""
    return state.config.get(name, LIMITS[name].default)

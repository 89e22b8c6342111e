"""Define the metrics of a node: name, kind, help and value of each family of the page. A new one goes here.

A counter of the engine that is declared in `core/node/src/counters.rs` appears by itself; one with a current
value stands in LEVELS, too. Metric names never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ringfence.control.metrics.cohort_metrics import cohort_families
from ringfence.control.metrics.layout_metrics import layout_families
from ringfence.control.metrics.prometheus_text import Family, Labels, encode
from ringfence.control.runtime.node_process import Node

# Native counters with a current value. All others only grow until the node stops.
LEVELS: Final = frozenset(
    {
        "arriving_bytes",
        "connections",
        "control_unanswered",
        "credit_bytes",
        "damaged_records",
        "generation",
        "generation_acknowledged_min",
        "logs_bytes",
        "partitions",
        "peers",
        "pool_bytes",
        "pool_free_bytes",
        "producers_bytes",
        "replicas_tail_bytes",
        "replicas_unanswered",
        "replicas_unanswered_bytes",
        "scrub_round_ended_ms",
        "tables_never_acknowledged",
        "topics",
        "unacknowledged",
        "waiting_ahead",
        "waiting_ahead_bytes",
        "waiting_bodies",
        "waiting_polls",
        "waiting_reads",
        "waiting_stalled",
        "waiting_stalled_bytes",
        "watches",
    }
)
# Native names that would clash with figures of the metadata: the page must have each family once.
RENAMED: Final = {"partitions": "store_partitions", "topics": "store_topics"}


def metric_of(counter: str) -> str:
    """The metric that shows a native counter."""
    return f"ringfence_{RENAMED.get(counter, counter)}"


def kind_of(counter: str) -> str:
    return "gauge" if counter in LEVELS else "counter"


def exposition(node: Node) -> bytes:
    """The page. All values are read at the time of the scrape."""
    return encode(_families(node))


def _families(node: Node) -> Iterator[Family]:
    status = node.status()
    is_up = float(status.state in {"serving", "degraded"})
    yield _gauge("up", "1 while the node serves", is_up)
    yield _gauge("reasons", "reasons why the node is degraded", len(status.reasons))
    yield _gauge("uptime_seconds", "seconds since the start", status.uptime_s)
    yield _gauge("metadata_index", "index of the last metadata entry", status.index)
    yield _gauge("topics", "topics", status.topics)
    yield _gauge("partitions", "partitions", status.partitions)
    yield Family(
        "ringfence_advertised_load_bytes_per_second",
        "gauge",
        "rate that the node advertises to producers for a partition of a topic without key",
        tuple(_loads(node.advertised_loads())),
    )
    yield from layout_families(node.proposer.state, node.parts.layouts)
    yield from cohort_families(node.proposer.state, node.parts.cohorts)
    for name, value in sorted(status.counters.items()):
        samples: tuple[tuple[Labels, float], ...] = (((), value),)
        yield Family(metric_of(name), kind_of(name), f"native counter {name}", samples)


def _gauge(name: str, help_text: str, value: float) -> Family:
    return Family(f"ringfence_{name}", "gauge", help_text, (((), value),))


def _loads(advertised: Mapping[str, Mapping[int, float]]) -> Iterator[tuple[Labels, float]]:
    for topic, parts in sorted(advertised.items()):
        for partition, load in sorted(parts.items()):
            yield (("topic", topic), ("partition", str(partition))), load

"""Write the node's counters in Prometheus' text format, version 0.0.4.

Names stay what they were from the first version on: without the suffix `_total`, which this format does not
ask for. prometheus_client adds it to every counter, so the few lines of the format are written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ringfence.control.runtime.node import Node

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
        "topics",
        "unacknowledged",
        "waiting_ahead",
        "waiting_ahead_bytes",
        "waiting_bodies",
        "waiting_polls",
        "waiting_reads",
        "waiting_stalled",
        "waiting_stalled_bytes",
    }
)
"""Native counters that say what there is now. All others only grow until the node stops."""
RENAMED: Final = {"partitions": "store_partitions", "topics": "store_topics"}
"""Native names that the metadata has for figures of its own: a family stands once on the page."""
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """All samples of one name. `kind` is `counter` or `gauge`."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Labels, float], ...]


def metric_of(counter: str) -> str:
    """The metric that shows a native counter."""
    return f"ringfence_{RENAMED.get(counter, counter)}"


def kind_of(counter: str) -> str:
    return "gauge" if counter in LEVELS else "counter"


def exposition(node: Node) -> bytes:
    """The page. Read at scrape time, so that nothing is counted twice."""
    return written(_families(node))


def written(families: Iterable[Family]) -> bytes:
    lines = []
    for family in families:
        told = family.help.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {family.name} {told}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.samples:
            inside = ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in sorted(labels))
            lines.append(f"{family.name}{f'{{{inside}}}' if inside else ''} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines).encode()


def _families(node: Node) -> Iterator[Family]:
    status = node.status()
    serves = float(status.state in {"serving", "degraded"})
    yield _gauge("up", "1 while the node serves", serves)
    yield _gauge("reasons", "reasons why the node is degraded", len(status.reasons))
    yield _gauge("uptime_seconds", "seconds since the start", status.uptime_s)
    yield _gauge("metadata_index", "index of the last metadata entry", status.index)
    yield _gauge("topics", "topics", status.topics)
    yield _gauge("partitions", "partitions", status.partitions)
    yield Family(
        "ringfence_advertised_load_bytes_per_second",
        "gauge",
        "what producers are told that a partition of a topic without key takes",
        tuple(_loads(node.advertised_loads())),
    )
    for name, value in sorted(status.counters.items()):
        samples: tuple[tuple[Labels, float], ...] = (((), value),)
        yield Family(metric_of(name), kind_of(name), f"native counter {name}", samples)


def _gauge(name: str, what: str, value: float) -> Family:
    return Family(f"ringfence_{name}", "gauge", what, (((), value),))


def _loads(advertised: Mapping[str, Mapping[int, float]]) -> Iterator[tuple[Labels, float]]:
    for topic, parts in sorted(advertised.items()):
        for partition, load in sorted(parts.items()):
            yield (("topic", topic), ("partition", str(partition))), load

"""The node's counters in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ringfence.control.runtime.node import Node


class _NodeCollector(Collector):
    """Read at scrape time, so that nothing is counted twice."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        status = self._node.status()
        yield GaugeMetricFamily(
            "ringfence_up", "1 while the node serves", float(status.state in {"serving", "degraded"})
        )
        yield GaugeMetricFamily("ringfence_reasons", "reasons why the node is degraded", len(status.reasons))
        yield GaugeMetricFamily("ringfence_uptime_seconds", "seconds since the start", status.uptime_s)
        yield GaugeMetricFamily("ringfence_metadata_index", "index of the last metadata entry", status.index)
        yield GaugeMetricFamily("ringfence_topics", "topics", status.topics)
        yield GaugeMetricFamily("ringfence_partitions", "partitions", status.partitions)
        loads = GaugeMetricFamily(
            "ringfence_advertised_load_bytes_per_second",
            "what producers are told that a partition of a topic without key takes",
            labels=("topic", "partition"),
        )
        for topic, parts in sorted(self._node.advertised().items()):
            for partition, load in sorted(parts.items()):
                loads.add_metric((topic, str(partition)), load)
        yield loads
        for name, value in sorted(status.counters.items()):
            # Counters and levels alike: the native side names them in docs/operations.md.
            yield GaugeMetricFamily(f"ringfence_{name}", f"native counter {name}", value)


def exposition(node: Node) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_NodeCollector(node))
    return generate_latest(registry)

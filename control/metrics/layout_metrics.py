"""Build the metrics of layouts and layout changes.

No label has unbounded values: partitions are in no metric, and topics only if their layout ever changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import UNSET

from ringfence.control.metrics.prometheus_text import Family, Labels
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.layout.parts import LayoutParts


def layout_families(state: MetadataState, layouts: LayoutParts) -> Iterator[Family]:
    changed = [topic for _, topic in sorted(state.topics.items()) if topic.layout.version > 1]
    yield Family(
        "ringfence_layout_version",
        "gauge",
        "version of the layout of a topic whose layout has changed",
        tuple(((("topic", topic.name),), topic.layout.version) for topic in changed),
    )
    sealed = sum(len(topic.seals) for topic in state.topics.values() if topic.seals is not UNSET)
    yield Family("ringfence_sealed_partitions", "gauge", "partitions that are SEALED", (((), sealed),))
    phases = Counter((one.kind, one.phase) for one in state.transitions.values())
    yield Family(
        "ringfence_transitions_open",
        "gauge",
        "open layout changes",
        tuple((_labels(kind=kind, phase=phase), count) for (kind, phase), count in sorted(phases.items())),
    )
    ends = sorted(layouts.counts.ends.items())
    yield Family(
        "ringfence_transitions",
        "counter",
        "layout changes by their ends, since the start of this node",
        tuple((_labels(kind=kind, result=result), count) for (kind, result), count in ends),
    )
    yield Family(
        "ringfence_pruned",
        "counter",
        "sealed partitions that left their layouts, since the start of this node",
        (((), layouts.counts.pruned),),
    )
    yield Family(
        "ringfence_inherited_again",
        "counter",
        "sources that partitions inherited again after an accepted loss, since the start of this node",
        (((), layouts.late_inheritance.count),),
    )
    yield Family(
        "ringfence_finalize_timed_out",
        "counter",
        "layout changes that this node has ended although clients held older tables",
        (((), layouts.leader.timed_out),),
    )


def _labels(**values: str) -> Labels:
    return tuple(sorted((name, str(value).lower()) for name, value in values.items()))

"""Build the metrics of layouts and layout changes.

No label has unbounded values: partitions are in no metric, and topics only if their layout ever changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import UNSET

from ringfence.control.metrics.prometheus_text import Family, Labels, histogram_parts
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.layout.auto import AutoLayouts
from ringfence.control.runtime.layout.parts import LayoutParts
from ringfence.control.runtime.layout.times import Histogram, LayoutTimes


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

    yield from _times(layouts.times)
    yield from _adoption(state, layouts)
    yield from _automatic(layouts.auto)


def _times(times: LayoutTimes) -> Iterator[Family]:
    yield _histogram(
        "transition_gap_seconds",
        "last acknowledgement of the sources to first one of a child, of changes that this node has led",
        (((), times.gaps),),
    )
    yield _histogram(
        "transition_phase_seconds",
        "phases of layout changes, as this node has applied their entries",
        tuple((_labels(phase=phase), known) for phase, known in times.phases.items()),
    )
    yield _histogram(
        "transition_adoption_seconds",
        "drained sources to the end of a layout change, of changes that this node has led",
        (((), times.adoption),),
    )


def _adoption(state: MetadataState, layouts: LayoutParts) -> Iterator[Family]:
    """Of open layout changes, on the node that leads: other nodes do not get what the clients hold."""
    floors, behind = dict[str, int](), dict[str, int]()
    if layouts.leader.leads():
        board = layouts.leader.coordinator.adoption
        for _, one in sorted(state.transitions.items()):
            if not one.may_abort:
                name = state.topics[one.topic].name
                floors[name] = board.floor(state, one.topic)
                behind[name] = max(behind.get(name, 0), len(board.waits(state, one)))
    yield Family(
        "ringfence_adoption_floor",
        "gauge",
        "lowest generation of the table of a topic in a layout change that clients hold; 0: no client",
        tuple(((("topic", name),), value) for name, value in floors.items()),
    )
    yield Family(
        "ringfence_layout_nodes_behind",
        "gauge",
        "nodes that have not told of a layout change, or have clients with an older table",
        tuple(((("topic", name),), value) for name, value in behind.items()),
    )


def _automatic(auto: AutoLayouts) -> Iterator[Family]:
    yield Family(
        "ringfence_auto_actions",
        "counter",
        "automatic splits and merges that this node has begun as the leader",
        tuple((_labels(action=kind), count) for kind, count in sorted(auto.counts.actions.items())),
    )
    yield Family(
        "ringfence_auto_suppressed",
        "counter",
        "reasons against automatic splits and merges, counted when each begins",
        tuple((_labels(why=why), count) for why, count in sorted(auto.counts.suppressed.items())),
    )
    names = {said.decision.name: len(said.decision.hot_keys) for said in auto.said.values()}
    yield Family(
        "ringfence_hot_keys",
        "gauge",
        "partitions whose load is one slot's, of topics with automatic splits",
        tuple(((("topic", name),), count) for name, count in sorted(names.items()) if count),
    )


def _histogram(name: str, help_text: str, known: tuple[tuple[Labels, Histogram], ...]) -> Family:
    parts = tuple(
        part for labels, one in known for part in histogram_parts(labels, one.bounds, one.counts, one.sum)
    )
    return Family(f"ringfence_{name}", "histogram", help_text, parts=parts)


def _labels(**values: str) -> Labels:
    return tuple(sorted((name, str(value).lower()) for name, value in values.items()))

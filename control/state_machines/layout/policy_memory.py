"""What a leader remembers of loads between decisions of automatic splits and merges. Pure.

A load is judged over a window: `hot_since_ms` and `cold_since_ms` are the beginnings of what has lasted
without a break. A partition counts from the moment at which this leader has first seen it ACTIVE, so children
are unclassified for a whole window, and a new leader begins every window from scratch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import exp
from typing import Final

import msgspec

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.layout.hot_keys import HotKey
from ringfence.control.state_machines.metadata.auto_layout import AutoSettings
from ringfence.control.state_machines.rebalance.loads import PartitionLoad

# The time constant of the smoothed load is this part of the window: a dip of seconds does not begin the
# window again, and the load of an earlier window does not count.
SMOOTHING: Final = 6

Loads = Mapping[PartitionId, PartitionLoad]
Pair = tuple[PartitionId, PartitionId]


class Track(msgspec.Struct, frozen=True):
    """A partition with a load near the threshold of a split or above it, smoothed.

    `hot_since_ms`: the smoothed load is above the threshold since then; None: it is not.
    """

    seen_ms: int
    bytes_s: float
    rows_s: float
    hot_since_ms: int | None = None


class TopicMemory(msgspec.Struct, frozen=True):
    """A topic with automatic changes. `versions`: when this leader has first seen each version of the layout
    within the last windows. `changed_ms`: the last layout change, or the last look at an open one.
    """

    changed_ms: int
    versions: dict[int, int]
    tracks: dict[PartitionId, Track] = {}
    cold_since_ms: dict[Pair, int] = {}
    # When the owner of a partition that is to be split was first asked for its sketch.
    asked_ms: dict[PartitionId, int] = {}
    # Slots that make a split useless, and when that was found.
    hot_keys: dict[PartitionId, tuple[HotKey, int]] = {}

    def active_since_ms(self, part: Partition) -> int:
        """When this leader has first seen the partition ACTIVE. It may have missed versions between looks."""
        return min(at_ms for version, at_ms in self.versions.items() if version >= part.created_version)


class LayoutMemory(msgspec.Struct, frozen=True):
    """A leader's memory between decisions. Times are ms of the leader's monotonic clock.

    `turn`: the topic that the next look begins with.
    """

    began_ms: int
    topics: dict[TopicId, TopicMemory] = {}
    turn: TopicId = TopicId(0)


def heat(load: PartitionLoad | Track, settings: AutoSettings) -> float:
    """The load relative to the threshold of a split: above 1 it passes it."""
    return max(load.bytes_s / settings.split_bytes_s, load.rows_s / settings.split_rows_s)


def changing_topics(state: MetadataState) -> frozenset[TopicId]:
    """Topics with a layout change that has not taken effect everywhere."""
    open_ones = (one for one in state.transitions.values() if one.phase is not ChangePhase.OPENED)
    return frozenset(one.topic for one in open_ones)


def observe(topic: Topic, known: TopicMemory | None, now_ms: int, *, is_changing: bool) -> TopicMemory:
    """The memory after this look at the layout, before the loads are taken."""
    version = topic.layout.version
    if known is None:
        # What happened before this leader is unknown: cool-down and windows begin with its first look.
        return TopicMemory(changed_ms=now_ms, versions={version: now_ms})
    versions = known.versions if version in known.versions else {**known.versions, version: now_ms}
    changed_ms = now_ms if is_changing or version not in known.versions else known.changed_ms
    return msgspec.structs.replace(known, changed_ms=changed_ms, versions=versions)


def with_loads(
    topic: Topic, settings: AutoSettings, memory: TopicMemory, loads: Loads, now_ms: int
) -> TopicMemory:
    """The memory with the newest loads. Partitions and pairs that are gone are forgotten."""
    parts = sorted(topic.layout.active(), key=lambda part: part.slots)
    active = {part.partition for part in parts}
    longest_ms = max(settings.window_ms, settings.merge_window_ms)
    # Of versions that are older than every window the newest one tells as much as all.
    old = [version for version, at_ms in memory.versions.items() if now_ms - at_ms > longest_ms]
    forgotten = {*old} - {max(old, default=0)}
    return msgspec.structs.replace(
        memory,
        versions={version: at for version, at in memory.versions.items() if version not in forgotten},
        tracks=dict(_tracks(parts, settings, memory, loads, now_ms)) if settings.split else {},
        cold_since_ms=dict(_cold(parts, settings, memory, loads, now_ms)) if settings.merge else {},
        hot_keys={part: found for part, found in memory.hot_keys.items() if part in active},
    )


def _tracks(
    parts: Iterable[Partition], settings: AutoSettings, memory: TopicMemory, loads: Loads, now_ms: int
) -> Iterator[tuple[PartitionId, Track]]:
    """Smoothed loads. Without a report a partition is not hot, and its window begins again."""
    for part in parts:
        load, known = loads.get(part.partition), memory.tracks.get(part.partition)
        if load is None or not load.is_exact:
            continue
        if known is None:
            track = Track(now_ms, load.bytes_s, load.rows_s)
        else:
            weight = 1 - exp(-SMOOTHING * (now_ms - known.seen_ms) / settings.window_ms)
            track = Track(
                now_ms,
                known.bytes_s + weight * (load.bytes_s - known.bytes_s),
                known.rows_s + weight * (load.rows_s - known.rows_s),
            )
        level = heat(track, settings)
        if level > 1:
            since_ms = now_ms if known is None or known.hot_since_ms is None else known.hot_since_ms
            yield part.partition, msgspec.structs.replace(track, hot_since_ms=since_ms)
        elif max(level, heat(load, settings)) > 1 / 2:
            yield part.partition, track


def _cold(
    parts: Iterable[Partition], settings: AutoSettings, memory: TopicMemory, loads: Loads, now_ms: int
) -> Iterator[tuple[Pair, int]]:
    """Adjacent pairs whose loads together are below both thresholds. No report is no low load."""
    for one, other in pairwise(parts):
        left, right = loads.get(one.partition), loads.get(other.partition)
        if left is None or right is None:
            continue
        is_cold = (
            left.bytes_s + right.bytes_s < settings.merge_bytes_s
            and left.rows_s + right.rows_s < settings.merge_rows_s
        )
        if is_cold:
            pair = (one.partition, other.partition)
            yield pair, memory.cold_since_ms.get(pair, now_ms)

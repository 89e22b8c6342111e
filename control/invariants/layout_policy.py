"""Invariants of automatic splits and merges: what each decision keeps, whatever the loads and the clock.

P1  a topic is changed only if it, or the cluster, asks for this kind of change, and by one action at a time
P2  a split is of one partition into two, a merge of two adjacent ones into one
P3  sources are ACTIVE, in no other change, and no replica of theirs is on a failed node
P4  a partition without a report of its load is neither hot nor cold
P5  windows, cool-downs and the grace period are over
P6  caps hold: ACTIVE partitions of the topic, its lineage, open actions in the cluster
P7  a merged pair is below the thresholds, which are half of those of a split at most
P8  an action that is not taken has a reason, and the memory has ACTIVE partitions only
"""

from __future__ import annotations

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.layout.policy import (
    LINEAGE_PERCENT,
    REASON,
    LayoutDecision,
    Observations,
    open_actions,
)
from ringfence.control.state_machines.layout.policy_memory import LayoutMemory, TopicMemory
from ringfence.control.state_machines.metadata.auto_layout import AutoSettings, settings_of
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.state_machine import validate


def check(
    state: MetadataState,
    observed: Observations,
    now_ms: int,
    before: LayoutMemory,
    decision: LayoutDecision,
    after: LayoutMemory,
) -> None:
    """AssertionError names the first rule that the decision breaks."""
    topics = [command.topic for command in decision.commands]
    assert len(topics) == len({*topics}), f"P1: two actions of one topic: {topics}"
    allowed = limit(state, "auto_open_max")
    assert not topics or open_actions(state) + len(topics) <= allowed, f"P6: more than {allowed} actions open"
    for command in decision.commands:
        assert limit(state, "layout_changes_enabled"), "P1: layout changes are switched off"
        grace_ms = limit(state, "policy_grace_s") * 1_000
        assert now_ms - before.began_ms >= grace_ms, "P5: the leader is in its grace period"
        memory = before.topics.get(command.topic)
        assert memory is not None, f"P5: topic {command.topic} is changed at the first look at it"
        _check_action(state, observed, now_ms, memory, command)
    for number, known in decision.topics.items():
        chosen = [one for one in known.candidates if one.suppressed is None]
        assert len(chosen) <= 1, f"P8: actions of topic {number} without a reason: {chosen}"
        assert bool(chosen) == (known.command is not None), f"P8: topic {number} waits without a reason"
        assert known.why, f"P8: topic {number} has no explanation"
    _check_memory(state, decision, after)


def _check_action(
    state: MetadataState, observed: Observations, now_ms: int, memory: TopicMemory, command: PrepareLayout
) -> None:
    topic = state.topics[command.topic]
    settings = settings_of(state, topic)
    sources = [number for number, _ in command.sources]
    assert command.why.startswith(REASON), f"P8: the action has the reason {command.why!r}"
    refusal = validate(state, command)
    assert refusal is None, f"P3: the log refuses the action: {refusal}"
    parts = topic.layout.by_id()
    for number in sources:
        assert parts[number].is_active, f"P3: partition {number} is SEALED"
        assert number not in state.changes, f"P3: partition {number} is in another change"
        lives = [state.nodes[place.node].life for place in topic.assignments[number].replicas]
        assert Life.FAILED not in lives, f"P3: a replica of partition {number} is on a failed node"
        assert number in observed.loads, f"P4: partition {number} has no report of its load"
    is_split = command.kind is TransitionKind.SPLIT
    cooldown_ms = settings.cooldown_ms if is_split else settings.merge_cooldown_ms
    assert now_ms - memory.changed_ms >= cooldown_ms, f"P5: topic {topic.topic} is in its cool-down"
    window_ms = settings.window_ms if is_split else settings.merge_window_ms
    for number in sources:
        age_ms = now_ms - memory.active_since_ms(parts[number])
        assert age_ms >= window_ms, f"P5: partition {number} is unclassified"
    if is_split:
        _check_split(topic, settings, memory, command, now_ms)
    else:
        _check_merge(observed, settings, command)
    lineage = len(topic.layout.partitions) + len(command.children)
    assert lineage <= limit(state, "topic_partitions_max") * LINEAGE_PERCENT // 100, (
        "P6: the lineage is too long"
    )


def _check_split(
    topic: Topic, settings: AutoSettings, memory: TopicMemory, command: PrepareLayout, now_ms: int
) -> None:
    assert settings.split, f"P1: nobody asks for splits of topic {topic.topic}"
    assert (len(command.sources), len(command.children)) == (1, 2), f"P2: {command}"
    assert len(topic.layout.active()) < settings.partitions_max, (
        f"P6: topic {topic.topic} has all that it may"
    )
    track = memory.tracks.get(command.sources[0][0])
    since_ms = None if track is None else track.hot_since_ms
    assert since_ms is not None, "P5: the partition was not hot at the look before"
    assert now_ms - since_ms >= settings.window_ms, "P5: the partition is hot for less than its window"


def _check_merge(observed: Observations, settings: AutoSettings, command: PrepareLayout) -> None:
    assert settings.merge, f"P1: nobody asks for merges of topic {command.topic}"
    assert command.kind is TransitionKind.MERGE, f"P2: {command}"
    assert (len(command.sources), len(command.children)) == (2, 1), f"P2: {command}"
    loads = [observed.loads[number] for number, _ in command.sources]
    bytes_s, rows_s = sum(load.bytes_s for load in loads), sum(load.rows_s for load in loads)
    assert bytes_s < settings.merge_bytes_s <= settings.split_bytes_s / 2, (
        f"P7: {bytes_s} B/s of a merged pair"
    )
    assert rows_s < settings.merge_rows_s <= settings.split_rows_s / 2, (
        f"P7: {rows_s} rows/s of a merged pair"
    )
    lagging = [number for number, _ in command.sources if number in observed.lagging]
    assert not lagging, f"P3: registered readers lag on {lagging}"


def _check_memory(state: MetadataState, decision: LayoutDecision, after: LayoutMemory) -> None:
    assert after.topics.keys() <= decision.watched, "P8: the memory has topics that nobody watches"
    for number in decision.topics:
        memory = after.topics[number]
        active = {part.partition for part in state.topics[number].layout.active()}
        pairs = {part for pair in memory.cold_since_ms for part in pair}
        known: set[PartitionId] = {*memory.tracks, *memory.asked_ms, *memory.hot_keys, *pairs}
        assert known <= active, f"P8: the memory of topic {number} has {sorted(known - active)}"

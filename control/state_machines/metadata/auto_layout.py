"""Settings of automatic splits and merges: limits of the cluster, which four properties of a topic override.

The properties are `ringfence.auto.split`, `.merge`, `.partitions_max` and `.partitions_min`. Thresholds,
windows and cool-downs are the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from ringfence.control.model.ids import TopicId
from ringfence.control.model.layout_commands import SetAutoLayout
from ringfence.control.model.results import Done, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.config import LIMITS, PROPERTIES_MAX, limit
from ringfence.control.state_machines.metadata.refusals import invalid, unknown_topic

# The limit of the cluster that each property of a topic overrides.
OVERRIDES: Final = {
    "ringfence.auto.split": "auto_split",
    "ringfence.auto.merge": "auto_merge",
    "ringfence.auto.partitions_max": "auto_partitions_max",
    "ringfence.auto.partitions_min": "auto_partitions_min",
}
# The property that overrides each of these limits.
PROPERTIES: Final = {limit_name: name for name, limit_name in OVERRIDES.items()}


class AutoSettings(NamedTuple):
    """What holds for one topic. Thresholds are per second, times are ms."""

    split: bool
    merge: bool
    partitions_max: int
    partitions_min: int
    split_bytes_s: int
    split_rows_s: int
    merge_bytes_s: int
    merge_rows_s: int
    window_ms: int
    merge_window_ms: int
    cooldown_ms: int
    merge_cooldown_ms: int

    @property
    def is_on(self) -> bool:
        return self.split or self.merge


def settings_of(state: MetadataState, topic: Topic) -> AutoSettings:
    """The settings of a topic.

    The thresholds of a merge count up to half of those of a split: a merged partition is never to be split
    again at the load that it was merged at.
    """
    return _settings(state, {name: _value(state, topic, known) for known, name in OVERRIDES.items()})


def _settings(state: MetadataState, own: Mapping[str, int]) -> AutoSettings:
    split_bytes_s, split_rows_s = limit(state, "auto_split_bytes_s"), limit(state, "auto_split_rows_s")
    return AutoSettings(
        split=bool(own["auto_split"]),
        merge=bool(own["auto_merge"]),
        partitions_max=own["auto_partitions_max"],
        partitions_min=own["auto_partitions_min"],
        split_bytes_s=split_bytes_s,
        split_rows_s=split_rows_s,
        merge_bytes_s=min(limit(state, "auto_merge_bytes_s"), split_bytes_s // 2),
        merge_rows_s=min(limit(state, "auto_merge_rows_s"), split_rows_s // 2),
        window_ms=limit(state, "auto_window_s") * 1_000,
        merge_window_ms=limit(state, "auto_merge_window_s") * 1_000,
        cooldown_ms=limit(state, "auto_split_cooldown_s") * 1_000,
        merge_cooldown_ms=limit(state, "auto_merge_cooldown_s") * 1_000,
    )


def settings_by_topic(state: MetadataState) -> dict[TopicId, AutoSettings]:
    """The settings of topics with automatic changes, in the order of their ids. Cheap where all is off."""
    own = {
        number: settings_of(state, topic)
        for number, topic in state.topics.items()
        if topic.properties and not OVERRIDES.keys().isdisjoint(topic.properties)
    }
    others = _settings(state, {name: limit(state, name) for name in PROPERTIES})
    known = own if not others.is_on else {number: own.get(number, others) for number in state.topics}
    return {number: settings for number, settings in sorted(known.items()) if settings.is_on}


def property_fault(name: str, text: str) -> str | None:
    """The fault of a property's value; None if it is sound, or the property is another one."""
    if name not in OVERRIDES:
        return None
    known = LIMITS[OVERRIDES[name]]
    if text.isascii() and text.isdigit() and len(text) < 10 and known.low <= int(text) <= known.high:
        return None
    return f"property {name}={text[:80]!r}: {known.low} to {known.high}"


def settings_fault(state: MetadataState, command: SetAutoLayout) -> Refused | None:
    """Check new properties of a topic."""
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    unknown = sorted(command.values.keys() - PROPERTIES.keys())
    if unknown or not command.values:
        named = f"{unknown[0][:80]!r} is none of them" if unknown else "none is given"
        return invalid(f"settings of a topic are {', '.join(PROPERTIES)}: {named}")
    for name, value in sorted(command.values.items()):
        fault = None if value is None else property_fault(PROPERTIES[name], str(value))
        if fault is not None:
            return invalid(fault)
    count = len(_changed(topic, command))
    if count > PROPERTIES_MAX:
        return invalid(f"{count} properties: at most {PROPERTIES_MAX}")
    return None


def set_settings(state: MetadataState, command: SetAutoLayout) -> tuple[MetadataState, Result]:
    """Set or remove properties of a topic; others stay as they are."""
    topic = state.topics[command.topic]
    changed = replace(topic, properties=_changed(topic, command))
    return replace(state, topics={**state.topics, command.topic: changed}), Done()


def _changed(topic: Topic, command: SetAutoLayout) -> dict[str, str]:
    properties = dict(topic.properties)
    for name, value in command.values.items():
        if value is None:
            properties.pop(PROPERTIES[name], None)
        else:
            properties[PROPERTIES[name]] = str(value)
    return properties


def _value(state: MetadataState, topic: Topic, name: str) -> int:
    """The topic's own value if it is sound, else the cluster's: topics of lower levels may have any text."""
    text = topic.properties.get(name)
    if text is not None and property_fault(name, text) is None:
        return int(text)
    return limit(state, OVERRIDES[name])

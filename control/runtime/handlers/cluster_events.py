"""Derive events of the cluster from two successive states, in order, for scripts and dashboards.

A ring holds the newest events, and each listener has a queue. Nothing depends on the arrival of an event: a
listener that missed some reads the state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers.cohort_events import cohort_differences
from ringfence.control.runtime.handlers.layout_views import overdue

# Events that a new listener may still ask for.
HISTORY_EVENTS_MAX: Final = 1_024
# Events in the queue of one listener. A listener that exceeds it has missed events, and its stream ends.
WAITING_MAX: Final = 256
LISTENERS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One event. `number` counts up on this node from its start time; `index` is that of the metadata."""

    number: int
    index: int
    kind: str
    values: dict[str, Any]


class EventListener:
    """One listener. `missed`: events are missing from `waiting`, so the stream must end."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[ClusterEvent] = asyncio.Queue(WAITING_MAX)
        self.missed = False


class ClusterEvents:
    """The events of one node since its start."""

    def __init__(self, began_us: int = 0) -> None:
        self._history: deque[ClusterEvent] = deque(maxlen=HISTORY_EVENTS_MAX)
        self._listeners: set[EventListener] = set()
        # A process emits fewer than one event a microsecond, so numbers of a later process are larger.
        self._number = began_us
        self._leader: tuple[int, int] = (0, 0)

    @property
    def newest(self) -> int:
        """The number of the last event."""
        return self._number

    def applied(self, before: MetadataState, after: MetadataState, index: int) -> None:
        """Emit the events between two states."""
        for kind, values in differences(before, after):
            self.emit(kind, index, values)

    def leads(self, leader: int, term: int, index: int) -> None:
        """Emit an event if the leader that this node knows has changed."""
        if (leader, term) != self._leader:
            self._leader = (leader, term)
            self.emit("leader", index, {"leader": leader, "term": term})

    def emit(self, kind: str, index: int, values: dict[str, Any]) -> None:
        self._number += 1
        event = ClusterEvent(self._number, index, kind, values)
        self._history.append(event)
        for listener in self._listeners:
            try:
                listener.waiting.put_nowait(event)
            except asyncio.QueueFull:
                listener.missed = True

    def listen(self, after: int | None) -> EventListener | None:
        """Add a listener, with the events after `after` in its queue; None if there are too many."""
        if len(self._listeners) >= LISTENERS_MAX:
            return None
        listener = EventListener()
        if after is not None:
            later = [event for event in self._history if event.number > after]
            oldest = self._history[0].number if self._history else self._number + 1
            # A number of an earlier process is below the oldest one here. It is above the newest one if the
            # clock was set back in between.
            listener.missed = after > self._number or after + 1 < oldest or len(later) > WAITING_MAX
            for event in later[-WAITING_MAX:]:
                listener.waiting.put_nowait(event)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: EventListener) -> None:
        self._listeners.discard(listener)


def differences(before: MetadataState, after: MetadataState) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kind and values of each event. A map that is the same object in both states did not change."""
    if before.topics is not after.topics:
        yield from _topics(before, after)
    if before.transitions is not after.transitions:
        yield from _layout_changes(before, after)
    yield from cohort_differences(before, after)
    if before.nodes is not after.nodes:
        yield from _nodes(before, after)
    if before.ring != after.ring:
        yield "ring", {"version": after.ring.version, "members": list(after.ring.members)}
    if before.config != after.config:
        changed = {name: value for name, value in after.config.items() if before.config.get(name) != value}
        yield "config", {"values": changed}
    for name in after.tokens.keys() - before.tokens.keys():
        yield "token created", {"name": name, "role": str(after.tokens[name].role)}
    for name in before.tokens.keys() - after.tokens.keys():
        yield "token revoked", {"name": name}


def _topics(before: MetadataState, after: MetadataState) -> Iterator[tuple[str, dict[str, Any]]]:
    for number in after.topics.keys() - before.topics.keys():
        topic = after.topics[number]
        partitions = len(topic.layout.partitions)
        yield "topic created", {"topic": number, "name": topic.name, "partitions": partitions}
    for number in before.topics.keys() - after.topics.keys():
        yield "topic deleted", {"topic": number, "name": before.topics[number].name}
    for number, topic in after.topics.items():
        old = before.topics.get(number)
        if old is None or old is topic:
            continue
        if len(topic.schemas) > len(old.schemas):
            yield "schema added", {"topic": number, "name": topic.name, "schemas": len(topic.schemas)}
        if topic.layout.version != old.layout.version:
            yield "layout", {"topic": number, "name": topic.name, "version": topic.layout.version}
        moved = [
            {"partition": part, "from": old.assignments[part].owner.node, "to": assignment.owner.node}
            for part, assignment in topic.assignments.items()
            if part in old.assignments and old.assignments[part].owner != assignment.owner
        ]
        if moved:
            yield "owners", {"topic": number, "name": topic.name, "moved": moved}


def _layout_changes(before: MetadataState, after: MetadataState) -> Iterator[tuple[str, dict[str, Any]]]:
    """Steps of layout changes. An end names the readers that were not waited for any longer."""
    for number, transition in after.transitions.items():
        old = before.transitions.get(number)
        if old is None or old.phase is not transition.phase:
            yield "layout change", _change_values(after, transition, str(transition.phase))
    for number, transition in before.transitions.items():
        if number in after.transitions:
            continue
        if transition.topic not in after.topics:
            yield "layout change", _change_values(before, transition, "DELETED")
            continue
        result = "ABORTED" if transition.may_abort else "FINALIZED"
        yield (
            "layout change",
            _change_values(after, transition, result) | {"overdue": overdue(after, transition)},
        )


def _change_values(state: MetadataState, transition: Transition, phase: str) -> dict[str, Any]:
    return {
        "change": transition.change,
        "change_kind": str(transition.kind),
        "topic": transition.topic,
        "name": state.topics[transition.topic].name,
        "phase": phase,
        "version": transition.version,
    }


def _nodes(before: MetadataState, after: MetadataState) -> Iterator[tuple[str, dict[str, Any]]]:
    for number in before.nodes.keys() - after.nodes.keys():
        yield "node removed", {"node": number}
    for number, node in after.nodes.items():
        old = before.nodes.get(number)
        if old is None or (old.life, old.started) != (node.life, node.started):
            yield "node", {"node": number, "life": str(node.life), "started": node.started}
        elif (old.draining, old.vote) != (node.draining, node.vote):
            yield "node", {"node": number, "draining": node.draining, "vote": str(node.vote)}

"""What happened to the cluster, as small events for scripts and dashboards: out of two states, in order.

A ring of the last ones, and listeners with queues of their own. Nothing depends on an event's arrival: who
missed some reads the state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ringfence.control.model.state import MetadataState

KEPT: Final = 1_024
"""Events that a listener may ask for afterwards."""
WAITING_MAX: Final = 256
"""Events that wait for one listener; beyond it that one is told that it missed some, and ends."""
LISTENERS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """`number` counts on this node from the time of its start; `index` is the metadata's."""

    number: int
    index: int
    kind: str
    values: dict[str, Any]


class Listening:
    """One listener's queue."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[ClusterEvent] = asyncio.Queue(WAITING_MAX)
        self.missed = False


class ClusterEvents:
    """Of one node, in one life of it."""

    def __init__(self, began_us: int = 0) -> None:
        self._kept: deque[ClusterEvent] = deque(maxlen=KEPT)
        self._listeners: set[Listening] = set()
        # No life tells of one event a microsecond: the next life, which begins later, has other numbers.
        self._number = began_us
        self._leader: tuple[int, int] = (0, 0)

    @property
    def newest(self) -> int:
        """The number of the last event, told or not."""
        return self._number

    def applied(self, before: MetadataState, after: MetadataState, index: int) -> None:
        """The state changed."""
        for kind, values in differences(before, after):
            self.tell(kind, index, values)

    def leads(self, leader: int, term: int, index: int) -> None:
        """Who leads, as this node knows it; told when it changed."""
        if (leader, term) != self._leader:
            self._leader = (leader, term)
            self.tell("leader", index, {"leader": leader, "term": term})

    def tell(self, kind: str, index: int, values: dict[str, Any]) -> None:
        self._number += 1
        happening = ClusterEvent(self._number, index, kind, values)
        self._kept.append(happening)
        for listener in self._listeners:
            try:
                listener.waiting.put_nowait(happening)
            except asyncio.QueueFull:
                listener.missed = True

    def listen(self, after: int | None) -> Listening | None:
        """A listener, with what came after event `after` in its queue; None when there are too many."""
        if len(self._listeners) >= LISTENERS_MAX:
            return None
        listener = Listening()
        if after is not None:
            later = [known for known in self._kept if known.number > after]
            oldest = self._kept[0].number if self._kept else self._number + 1
            # One of a life of this node that is over is older, or of the future if the clock was set back.
            listener.missed = after > self._number or after + 1 < oldest or len(later) > WAITING_MAX
            for known in later[-WAITING_MAX:]:
                listener.waiting.put_nowait(known)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listening) -> None:
        self._listeners.discard(listener)


def differences(before: MetadataState, after: MetadataState) -> Iterator[tuple[str, dict[str, Any]]]:
    """What administrators would call events. Maps that are the same object did not change."""
    if before.topics is not after.topics:
        yield from _topics(before, after)
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
            {"partition": part, "from": old.assignments[part].owner.node, "to": known.owner.node}
            for part, known in topic.assignments.items()
            if part in old.assignments and old.assignments[part].owner != known.owner
        ]
        if moved:
            yield "owners", {"topic": number, "name": topic.name, "moved": moved}


def _nodes(before: MetadataState, after: MetadataState) -> Iterator[tuple[str, dict[str, Any]]]:
    for number in before.nodes.keys() - after.nodes.keys():
        yield "node removed", {"node": number}
    for number, node in after.nodes.items():
        old = before.nodes.get(number)
        if old is None or (old.life, old.started) != (node.life, node.started):
            yield "node", {"node": number, "life": str(node.life), "started": node.started}
        elif (old.draining, old.vote) != (node.draining, node.vote):
            yield "node", {"node": number, "draining": node.draining, "vote": str(node.vote)}

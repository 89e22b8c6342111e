"""Committed epochs that stay unpublished here: reasons of the node's health, until they are published."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ringfence.control.model.ids import NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.runtime.process.health import Health

Place = tuple[ScopeId, int, TopicId, PartitionId]
"""Scope, epoch, topic, partition."""
TRIES: Final = 6
"""Refused so often, some 6 s with their pauses: a partition that is opened or moved is ready by then."""


class UnpublishedEpochs:
    """Counts how often each place was refused; what it holds is bounded by the pending commits."""

    def __init__(self, health: Health, node: NodeId) -> None:
        self._health, self._node = health, node
        self._tries: dict[Place, int] = {}

    def refused(self, place: Place, names: tuple[str, str], why: str) -> None:
        """The engine did not publish it; `names` are the scope's and the topic's."""
        tries = self._tries[place] = self._tries.get(place, 0) + 1
        if tries >= TRIES:
            scope, epoch, topic, partition = place
            self._health.set_reason(
                _key(place),
                f"scope {names[0]!r} ({scope}): epoch {epoch} is committed but not published in partition "
                f"{partition} of topic {names[1]!r} ({topic}), which node {self._node} owns: {why}; it is "
                "tried again, later epochs wait for it",
            )

    def keep(self, due: Iterable[Place]) -> None:
        """What is no longer due was published, moved away or deleted."""
        left = set(due)
        for place in [place for place in self._tries if place not in left]:
            del self._tries[place]
            self._health.clear_reason(_key(place))


def _key(place: Place) -> str:
    return "unpublished {} {} {} {}".format(*place)

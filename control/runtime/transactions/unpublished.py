"""Report committed epochs that stay unpublished on this node as reasons of the node's health."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ringfence.control.model.ids import NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.runtime.process.health import Health

# Scope, epoch, topic, partition.
PartKey = tuple[ScopeId, int, TopicId, PartitionId]
# Refusals before a reason is set, some 6 s with their pauses: a moved partition is usually open by then.
REFUSALS_MIN: Final = 6


class UnpublishedEpochs:
    """Counts the refusals of each part; the pending commits bound the number of parts."""

    def __init__(self, health: Health, node: NodeId) -> None:
        self.health = self._health = health
        self._node = node
        self._refusals: dict[PartKey, int] = {}

    def refused(self, key: PartKey, names: tuple[str, str], why: str) -> None:
        """Count a refusal of the engine to publish `key`; `names` are of the scope and the topic."""
        refusals = self._refusals[key] = self._refusals.get(key, 0) + 1
        if refusals >= REFUSALS_MIN:
            scope, epoch, topic, partition = key
            self._health.set_reason(
                _reason_key(key),
                f"scope {names[0]!r} ({scope}): epoch {epoch} is committed but not published in partition "
                f"{partition} of topic {names[1]!r} ({topic}), which node {self._node} owns: {why}; it is "
                "tried again, later epochs wait for it",
            )

    def keep_only(self, pending: Iterable[PartKey]) -> None:
        """Forget all parts but `pending`: the others were published, moved away or deleted."""
        keys = set(pending)
        for key in [key for key in self._refusals if key not in keys]:
            del self._refusals[key]
            self._health.clear_reason(_reason_key(key))


def _reason_key(key: PartKey) -> str:
    return "unpublished {} {} {} {}".format(*key)

"""Judge whether the clients of all live nodes hold the new layout of a topic.

A node's heartbeat tells, for each topic with an open transition, the lowest generation that its connections
hold; a topic without connections that count is left out. Nothing is correct because of it: it gates the end
of a transition only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringfence.control.model.ids import Index, NodeId, TopicId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState


class NodeAdoption(NamedTuple):
    """What one heartbeat told. `applied`: the last entry that the node had applied; `floors` by topic."""

    applied: Index
    floors: Mapping[TopicId, Index]


class AdoptionBoard:
    """The newest heartbeat of each node in one leader's term. It begins empty with each leadership."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, NodeAdoption] = {}

    def record(self, node: NodeId, adoption: NodeAdoption) -> None:
        """Replace all that a node told before; an older heartbeat that arrives late changes nothing."""
        known = self._nodes.get(node)
        if known is None or known.applied <= adoption.applied:
            self._nodes[node] = adoption

    def is_adopted(self, state: MetadataState, transition: Transition) -> bool:
        """Whether no connection of a live node holds an older table, as far as the nodes know.

        A node that has not applied the COMMIT does not know that its clients' table is an older one. Without
        any connection that counts nobody has adopted.
        """
        return not self.waits(state, transition) and any(
            transition.topic in self._nodes[node].floors for node in _live(state)
        )

    def floor(self, state: MetadataState, topic: TopicId) -> Index:
        """The lowest generation that connections of live nodes hold; 0 without any that counts."""
        told = (self._nodes[node].floors.get(topic) for node in _live(state) if node in self._nodes)
        return min(filter(None, told), default=Index(0))

    def waits(self, state: MetadataState, transition: Transition) -> tuple[NodeId, ...]:
        """Live nodes that have not told of this COMMIT, or have clients with an older table."""
        generation = transition.adoption_generation
        waiting = []
        for node in _live(state):
            told = self._nodes.get(node)
            floor = None if told is None else told.floors.get(transition.topic)
            if told is None or told.applied < generation or (floor is not None and floor < generation):
                waiting.append(node)
        return tuple(waiting)


def _live(state: MetadataState) -> list[NodeId]:
    return [number for number, node in sorted(state.nodes.items()) if node.life is Life.LIVE]

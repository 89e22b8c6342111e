"""Hand sealed partitions over whose owners lack records of them.

A failure gives a node's sealed partitions to any live replicas, without asking what they have. An owner that
lacks records serves nothing, and its heartbeats list the partition. The leader then gives it to another
replica, which proves the sealed end before the COMMIT (I3). A replica that cannot prove it ends the try by
`hold_timeout_ms`, and the next one is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from msgspec import UNSET

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.reassignment_checks import prepare_fault
from ringfence.control.state_machines.metadata.sealed_partitions import live_replicas

# Time between two tries of one partition: twice the time that a try may hold it by default.
RETRY_MS: Final = 10_000
# Tries that one round begins; others follow as these end. It is the default of `changes_max`.
HAND_OVERS_MAX: Final = 64


class _Tried(NamedTuple):
    nodes: tuple[NodeId, ...]
    at_ms: int


class LackBoard:
    """What owners told in one leader's term. It begins empty with each leadership."""

    def __init__(self) -> None:
        self._told: dict[NodeId, frozenset[PartitionId]] = {}
        self._tried: dict[PartitionId, _Tried] = {}

    def record(self, node: NodeId, partitions: Collection[PartitionId]) -> None:
        """Replace all that the node told before."""
        self._told[node] = frozenset(partitions)

    def due(self, state: MetadataState, now_ms: int) -> tuple[PrepareChange, ...]:
        """The hand-overs to begin now, each to a replica that was not tried since all of them were."""
        found: list[PrepareChange] = []
        for topic, partition in self._lacking(state):
            if len(found) == HAND_OVERS_MAX:
                break
            tried = self._tried.get(partition, _Tried((), now_ms - RETRY_MS))
            if now_ms - tried.at_ms < RETRY_MS:
                continue
            assignment = topic.assignments[partition]
            live = sorted(place.node for place in live_replicas(state, assignment, assignment.owner))
            if not live:
                continue
            target = next((node for node in live if node not in tried.nodes), live[0])
            command = PrepareChange(
                topic=topic.topic,
                partition=partition,
                epoch=assignment.epoch,
                owner=target,
                replicas=tuple(place.node for place in assignment.replicas),
            )
            if prepare_fault(state, command) is not None:
                continue
            before = () if target in tried.nodes else tried.nodes
            self._tried[partition] = _Tried((*before, target), now_ms)
            found.append(command)
        return tuple(found)

    def _lacking(self, state: MetadataState) -> Iterator[tuple[Topic, PartitionId]]:
        """Sealed partitions whose present owners are LIVE and say that they lack records."""
        told = {partition for partitions in self._told.values() for partition in partitions}
        if not told:
            self._tried.clear()
            return
        self._tried = {partition: tried for partition, tried in self._tried.items() if partition in told}
        for topic in state.topics.values():
            if topic.seals is UNSET or topic.replication < 2:
                continue
            for partition in sorted(told.intersection(topic.seals)):
                owner = topic.assignments[partition].owner.node
                is_live = state.nodes[owner].life is Life.LIVE
                if is_live and partition in self._told.get(owner, ()) and partition not in state.changes:
                    yield topic, partition

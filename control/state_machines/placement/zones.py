"""Classify nodes for placement, and spread replicas of one partition over zones.

A spread is *level* if no zone has two replicas more than another that has an unused node. So a partition
is in as many zones as there are, before any zone gets a second replica. Only nodes that take partitions
count: the zone label of a failed node is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.nodes import Life, NodeRecord
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica


class PlacementRole(Enum):
    """The role of a node in a plan."""

    # The node takes partitions and gives them.
    TAKES = "takes"
    # The node is drained or out of the ring: it only gives.
    LEAVES = "leaves"
    # The node neither takes nor gives. Its replicas are replaced on other nodes, if others have the rows.
    FAILED = "failed"


class Member(NamedTuple):
    """A node as the planner sees it."""

    node: NodeId
    zone: str = ""
    weight: int = 100
    role: PlacementRole = PlacementRole.TAKES


class PartitionPlacement(NamedTuple):
    """A partition and the nodes of its replicas, the owner first."""

    topic: TopicId
    partition: PartitionId
    nodes: tuple[NodeId, ...]


def members_of(state: MetadataState) -> tuple[Member, ...]:
    """All nodes, ordered by id."""
    ring = frozenset(state.ring.members)
    return tuple(
        Member(number, node.zone, node.weight, _role(node, in_ring=number in ring))
        for number, node in sorted(state.nodes.items())
    )


def placements_of(state: MetadataState, topics: Iterable[TopicId] | None = None) -> list[PartitionPlacement]:
    """All partitions, SEALED ones too, or those of some topics; ordered by id."""
    return [
        PartitionPlacement(topic, partition, _nodes(assignment.owner.node, assignment.replicas))
        for topic in sorted(state.topics if topics is None else topics)
        for partition, assignment in sorted(state.topics[topic].assignments.items())
    ]


def eligible_members(members: Iterable[Member]) -> list[Member]:
    """Members that take partitions."""
    return [member for member in members if member.role is PlacementRole.TAKES]


def zone_sizes(members: Iterable[Member]) -> dict[str, int]:
    """The number of nodes that take partitions, by zone."""
    return dict(
        sorted(Counter(member.zone for member in members if member.role is PlacementRole.TAKES).items())
    )


def replicas_by_zone(sizes: Mapping[str, int], replication: int) -> tuple[dict[str, int], int]:
    """(replicas that a level partition has in each zone at least, number of its further replicas).

    A zone with an unused node gets at most one of the further replicas.
    """
    base, left = dict.fromkeys(sizes, 0), replication
    while True:
        open_zones = [zone for zone, size in sizes.items() if base[zone] < size]
        if not open_zones or left < len(open_zones):
            return base, left
        for zone in open_zones:
            base[zone] += 1
        left -= len(open_zones)


def crowded_zones(zones: Sequence[str], sizes: Mapping[str, int]) -> set[str]:
    """Zones of one partition's replicas from which one should move to another zone."""
    counts = Counter(zones)
    fewest = min((counts[zone] for zone, size in sizes.items() if counts[zone] < size), default=None)
    if fewest is None:
        return set()
    return {zone for zone, count in counts.items() if count >= fewest + 2}


def may_move(zones: Sequence[str], source: str, target: str) -> bool:
    """Whether a replica may move from `source` to `target` without making the spread less level."""
    return source == target or zones.count(target) < zones.count(source)


def _role(node: NodeRecord, *, in_ring: bool) -> PlacementRole:
    if node.life is Life.FAILED:
        return PlacementRole.FAILED
    return PlacementRole.TAKES if in_ring and node.takes_partitions else PlacementRole.LEAVES


def _nodes(owner: NodeId, replicas: Iterable[Replica]) -> tuple[NodeId, ...]:
    nodes = tuple([replica.node for replica in replicas])
    return nodes if nodes[0] == owner else (owner, *[node for node in nodes if node != owner])

"""Who takes partitions, and how replicas of one partition spread over zones.

Spread is *level*: no zone has two replicas more than another that has an unused node. So a partition is in as
many zones as there are, before any zone gets a second replica. Only nodes that take partitions count: the
label of a dead node is no zone.
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


class Part(Enum):
    """What a plan may do with a node."""

    TAKES = "takes"
    """It takes partitions and gives them."""
    LEAVES = "leaves"
    """It is drained, or out of the ring: it only gives."""
    FAILED = "failed"
    """It neither takes nor gives. Its replicas are made anew elsewhere, if others have the rows."""


class Member(NamedTuple):
    """A node in the eyes of the planner."""

    node: NodeId
    zone: str = ""
    weight: int = 100
    part: Part = Part.TAKES


class Placed(NamedTuple):
    """A partition and the nodes of its replicas, the owner first."""

    topic: TopicId
    partition: PartitionId
    nodes: tuple[NodeId, ...]


def members_of(state: MetadataState) -> tuple[Member, ...]:
    """All nodes, in the order of their ids."""
    ring = frozenset(state.ring.members)
    return tuple(
        Member(number, node.zone, node.weight, _part(node, in_ring=number in ring))
        for number, node in sorted(state.nodes.items())
    )


def placed_of(state: MetadataState, topics: Iterable[TopicId] | None = None) -> list[Placed]:
    """All partitions, SEALED ones too, or those of some topics; in the order of their ids."""
    return [
        Placed(topic, partition, _nodes(assignment.owner.node, assignment.replicas))
        for topic in sorted(state.topics if topics is None else topics)
        for partition, assignment in sorted(state.topics[topic].assignments.items())
    ]


def takers(members: Iterable[Member]) -> list[Member]:
    return [member for member in members if member.part is Part.TAKES]


def zone_sizes(members: Iterable[Member]) -> dict[str, int]:
    """Nodes that take partitions, by zone."""
    return dict(sorted(Counter(member.zone for member in members if member.part is Part.TAKES).items()))


def levels(sizes: Mapping[str, int], replication: int) -> tuple[dict[str, int], int]:
    """(replicas that a level partition has in each zone at least, how many more it has in all).

    A zone with a node left over for it gets at most one of the latter.
    """
    base, left = dict.fromkeys(sizes, 0), replication
    while True:
        open_zones = [zone for zone, size in sizes.items() if base[zone] < size]
        if not open_zones or left < len(open_zones):
            return base, left
        for zone in open_zones:
            base[zone] += 1
        left -= len(open_zones)


def crowded(zones: Sequence[str], sizes: Mapping[str, int]) -> set[str]:
    """Zones of one partition's replicas from which one should move to another zone."""
    held = Counter(zones)
    fewest = min((held[zone] for zone, size in sizes.items() if held[zone] < size), default=None)
    if fewest is None:
        return set()
    return {zone for zone, count in held.items() if count >= fewest + 2}


def may_move(zones: Sequence[str], source: str, target: str) -> bool:
    """Whether a replica may move from zone to zone without making the spread less level."""
    return source == target or zones.count(target) < zones.count(source)


def _part(node: NodeRecord, *, in_ring: bool) -> Part:
    if node.life is Life.FAILED:
        return Part.FAILED
    return Part.TAKES if in_ring and node.takes_partitions else Part.LEAVES


def _nodes(owner: NodeId, replicas: Iterable[Replica]) -> tuple[NodeId, ...]:
    nodes = tuple([replica.node for replica in replicas])
    return nodes if nodes[0] == owner else (owner, *[node for node in nodes if node != owner])

"""Place the partitions of a new topic: spread over zones and nodes first, then counts within a zone by
weight.

With one replica, owners are assigned round-robin. A remainder goes to other zones first, then to the nodes
with the least load. With more replicas, each partition takes the nodes and zones with the most quota left,
and transfers of ownership balance the owners. The result is part of the command that creates the topic:
applying the command decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.replica_counts import owned_by_node, replicas_by_node
from ringfence.control.state_machines.metadata.ring_commands import too_few_nodes
from ringfence.control.state_machines.placement.leader_balance import balance_owners
from ringfence.control.state_machines.placement.quotas import portions
from ringfence.control.state_machines.placement.zones import (
    Member,
    PartitionPlacement,
    eligible_members,
    members_of,
    replicas_by_zone,
    zone_sizes,
)

Loads = Mapping[NodeId, int]
# Of each node a value that sorts; see `rebalance.loads.Pressure`.
Pressures = Mapping[NodeId, tuple[Any, ...]]
NO_PRESSURE: Final = (False, False, 0)


class TooFewNodesError(Exception):
    """There are fewer nodes than replicas, or than the cluster's minimum; the message names both numbers."""


def place(
    members: Sequence[Member],
    count: int,
    replication: int,
    *,
    owned_counts: Loads,
    replica_counts: Loads,
    pressures: Pressures = MappingProxyType({}),
) -> tuple[tuple[NodeId, ...], ...]:
    """Nodes for each of `count` partitions, the owner first. Deterministic.

    Args:
        members: all nodes; only those that take partitions are used.
        count: partitions, at least 1.
        replication: replicas of each.
        owned_counts: partitions that nodes own now, over all topics; a missing node owns none.
        replica_counts: replicas that nodes hold now, owned ones included.
        pressures: of nodes with as many, the one with the least is preferred. Comparable values.

    Raises:
        TooFewNodesError: fewer nodes take partitions than a partition has replicas.
    """
    eligible = sorted(eligible_members(members))
    if len(eligible) < replication:
        raise TooFewNodesError(
            f"replication {replication} needs so many nodes, {len(eligible)} of {len(members)} take "
            "partitions: let more nodes join, or undrain one"
        )
    if replication == 1:
        return tuple((node,) for node in _round_robin_owners(eligible, count, owned_counts, pressures))
    sets = _replica_sets(eligible, count, replication, replica_counts, pressures)
    placements = [
        PartitionPlacement(TopicId(0), PartitionId(number), nodes) for number, nodes in enumerate(sets)
    ]
    return tuple(part.nodes for part in balance_owners(eligible, placements, owned_counts))


def place_in(
    state: MetadataState,
    count: int,
    replication: int,
    *,
    but: Collection[NodeId] = (),
    pressures: Pressures = MappingProxyType({}),
) -> tuple[tuple[NodeId, ...], ...]:
    """`place` for a new topic in this state, without the nodes in `but`: the value of `CreateTopic.nodes`.

    Raises:
        TooFewNodesError: as `place`, or the cluster is below its minimum size.
    """
    if not state.ring.is_formed:
        ready = sum(node.takes_partitions for node in state.nodes.values())
        raise TooFewNodesError(too_few_nodes(state, ready).message)
    members = [member for member in members_of(state) if member.node not in but]
    return place(
        members,
        count,
        replication,
        owned_counts=owned_by_node(state),
        replica_counts=replicas_by_node(state),
        pressures=pressures,
    )


def _round_robin_owners(
    eligible: Sequence[Member], count: int, owned_counts: Loads, pressures: Pressures
) -> list[NodeId]:
    """Owners of `count` partitions, round-robin over zones and nodes."""
    by_node = {member.node: member for member in eligible}
    order = {
        node: place
        for place, node in enumerate(
            _interleaved(
                eligible,
                lambda member: (
                    owned_counts.get(member.node, 0) / member.weight,
                    pressures.get(member.node, NO_PRESSURE),
                    member.node,
                ),
            )
        )
    }
    weights = {node: by_node[node].weight for node in order}
    quota = portions(count, weights, prefer=lambda node, _: order[node])
    owners: list[NodeId] = []
    remaining = list(order)
    while len(owners) < count:
        remaining = [node for node in remaining if quota[node] > 0]
        for node in remaining:
            quota[node] -= 1
        owners += remaining
    return owners


def _interleaved(eligible: Sequence[Member], key: Callable[[Member], Any]) -> list[NodeId]:
    """Nodes in such an order that any first few are in as many zones as possible; within a zone ascending by
    `key`.
    """
    zones: dict[str, list[Member]] = {}
    for member in sorted(eligible, key=key):
        zones.setdefault(member.zone, []).append(member)
    return [member.node for layer in zip_longest(*zones.values()) for member in layer if member is not None]


class _Zone:
    """Nodes of a zone, those with the most of their quota left first."""

    def __init__(self, nodes: Mapping[NodeId, int]) -> None:
        self.quota, self.size = sum(nodes.values()), len(nodes)
        self._heap = [(-left, node) for node, left in nodes.items()]
        heapify(self._heap)

    def take(self, count: int) -> list[NodeId]:
        """`count` different nodes."""
        entries = [heappop(self._heap) for _ in range(count)]
        for left, node in entries:
            heappush(self._heap, (left + 1, node))
        return [node for _, node in entries]


def _replica_sets(
    eligible: Sequence[Member], count: int, replication: int, replica_counts: Loads, pressures: Pressures
) -> list[tuple[NodeId, ...]]:
    base, more = replicas_by_zone(zone_sizes(eligible), replication)
    zones = _zones(eligible, count, base, more, replica_counts, pressures)
    always = [(name, number) for name, number in base.items() if number]
    # Zones that have a node beyond their base, the one with the most quota left first.
    heap = [(count * base[name] - zone.quota, name) for name, zone in zones.items() if base[name] < zone.size]
    heapify(heap)
    sets = []
    for _ in range(count):
        extra = [heappop(heap) for _ in range(more)]
        for left, name in extra:
            heappush(heap, (left + 1, name))
        counts = Counter(name for _, name in extra)
        counts.update(dict(always))
        sets.append(tuple(node for name, number in counts.items() for node in zones[name].take(number)))
    return sets


def _zones(
    eligible: Sequence[Member],
    count: int,
    base: Mapping[str, int],
    more: int,
    replica_counts: Loads,
    pressures: Pressures,
) -> dict[str, _Zone]:
    """Quotas of zones, and of nodes within them, by weight."""
    members: dict[str, dict[NodeId, int]] = {}
    for member in eligible:
        members.setdefault(member.zone, {})[member.node] = member.weight
    weight = {name: sum(zone.values()) for name, zone in members.items()}
    load = {
        name: sum(replica_counts.get(node, 0) for node in zone) / weight[name]
        for name, zone in members.items()
    }
    room = {name: count if more and base[name] < len(zone) else 0 for name, zone in members.items()}
    quotas = portions(
        count * (sum(base.values()) + more),
        weight,
        prefer=lambda name, _: (load[name], name),
        least={name: count * base[name] for name in members},
        most={name: count * base[name] + room[name] for name in members},
    )
    return {
        name: _Zone(_node_quotas(quotas[name], zone, count, replica_counts, pressures))
        for name, zone in members.items()
    }


def _node_quotas(
    quota: int, zone: Mapping[NodeId, int], count: int, replica_counts: Loads, pressures: Pressures
) -> dict[NodeId, int]:
    """Quotas of a zone's nodes. A node gets at most one replica of each partition, so at most `count`."""
    return portions(
        quota,
        zone,
        prefer=lambda node, _: (
            replica_counts.get(node, 0) / zone[node],
            pressures.get(node, NO_PRESSURE),
            node,
        ),
        most=dict.fromkeys(zone, count),
    )

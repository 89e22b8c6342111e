"""Mutable placement for planning: current load, target load, unassigned replicas.

Invariant: an unassigned replica still stands in its partition's nodes. It counts for no node's load until
it is assigned to a node or restored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ringfence.control.model.ids import NodeId
from ringfence.control.state_machines.placement.quotas import portions
from ringfence.control.state_machines.placement.zones import (
    Member,
    PartitionPlacement,
    PlacementRole,
    may_move,
    replicas_by_zone,
    zone_sizes,
)


class UnassignedReplica(NamedTuple):
    """A replica to move from `source`; `partition_index` is that of its partition in the draft.

    `must`: the replica has to move, since it crowds a zone or its node is being emptied. Otherwise it may
    move.
    """

    partition_index: int
    source: NodeId
    must: bool


class DraftPlacement:
    """A draft of `placements`, ordered by its ids. Only nodes that take partitions have a load."""

    def __init__(self, members: Sequence[Member], placements: Sequence[PartitionPlacement]) -> None:
        self._placements = placements
        self._nodes = [part.nodes for part in placements]
        self._role = {member.node: member.role for member in members}
        able = sorted(member for member in members if member.role is PlacementRole.TAKES)
        self._weight = {member.node: member.weight for member in able}
        self._zone = {member.node: member.zone for member in able}
        self._sizes = zone_sizes(members)
        self._by_replication = Counter(len(nodes) for nodes in self._nodes)
        self._is_zoned = len(self._sizes) > 1 and max(self._by_replication, default=1) > 1
        counts = Counter[NodeId]()
        for nodes in self._nodes:
            counts.update(nodes)
        self.load = {node: counts[node] for node in self._weight}
        self._owned = Counter(nodes[0] for nodes in self._nodes)
        self._indexes_by_node: dict[NodeId, list[int]] | None = None
        self._unassigned: set[tuple[int, NodeId]] = set()

    def targets(self) -> dict[NodeId, int]:
        """The number of replicas that each node should hold; unassigned replicas count as well."""
        total = sum(self.load.values()) + len(self._unassigned)
        if not self._weight:
            return {}
        if not self._is_zoned:
            return self._shares(total, self._weight)
        weight: Counter[str] = Counter()
        load: Counter[str] = Counter()
        for node, zone in self._zone.items():
            weight[zone] += self._weight[node]
            load[zone] += self.load[node]
        least, most = self._zone_bounds(total)
        zones = portions(
            total,
            weight,
            prefer=lambda zone, floor: (load[zone] <= floor, -load[zone] / weight[zone], zone),
            least=least,
            most=most,
        )
        targets: dict[NodeId, int] = {}
        for zone, share in zones.items():
            targets |= self._shares(share, {n: w for n, w in self._weight.items() if self._zone[n] == zone})
        return targets

    def _zone_bounds(self, total: int) -> tuple[dict[str, int], dict[str, int]]:
        least: Counter[str] = Counter(dict.fromkeys(self._sizes, 0))
        most: Counter[str] = Counter(dict.fromkeys(self._sizes, 0))
        for replication, count in self._by_replication.items():
            base, more = replicas_by_zone(self._sizes, replication)
            for zone, size in self._sizes.items():
                least[zone] += count * base[zone]
                most[zone] += count * (base[zone] + (1 if more and base[zone] < size else 0))
        if not sum(least.values()) <= total <= sum(most.values()):
            # Some partitions have fewer replicas than they should: the bounds of the zones do not apply.
            return {}, {}
        return least, most

    def _shares(self, total: int, weights: dict[NodeId, int]) -> dict[NodeId, int]:
        load = self.load
        room = len(self._placements)
        return portions(
            total,
            weights,
            prefer=lambda node, floor: (load[node] <= floor, -load[node] / weights[node], node),
            most=dict.fromkeys(weights, room) if total <= room * len(weights) else None,
        )

    def _indexes_of(self, node: NodeId) -> list[int]:
        """Indexes of partitions with a replica on a node. The first call builds the lists of all nodes."""
        if self._indexes_by_node is None:
            self._indexes_by_node = defaultdict(list)
            for index, nodes in enumerate(self._nodes):
                for holder in nodes:
                    self._indexes_by_node[holder].append(index)
        return [index for index in self._indexes_by_node[node] if node in self._nodes[index]]

    def _may_take(self, item: UnassignedReplica, node: NodeId) -> bool:
        nodes = self._nodes[item.partition_index]
        if len(nodes) == 1:
            return True
        return (
            self._is_level(item, node) if item.must else self._fits(item.partition_index, item.source, node)
        )

    def _fits(self, index: int, source: NodeId, node: NodeId) -> bool:
        """Whether a replica may move from `source` to `node`: the node has none yet, and the zones stay
        level.
        """
        nodes = self._nodes[index]
        if node in nodes:
            return False
        if len(self._sizes) == 1 or len(nodes) == 1:
            return True
        zones = [self._zone[other] for other in nodes if other in self._zone]
        return may_move(zones, self._zone[source], self._zone[node])

    def _is_level(self, item: UnassignedReplica, node: NodeId) -> bool:
        """Whether no other zone with an unused node has fewer replicas than the node's zone."""
        nodes = self._nodes[item.partition_index]
        if node in nodes:
            return False
        if len(self._sizes) == 1:
            return True
        counts = Counter(self._zone[other] for other in nodes if other in self._zone and other != item.source)
        return all(
            counts[self._zone[node]] <= counts[zone]
            for zone, size in self._sizes.items()
            if counts[zone] < size
        )

    def _unassign(self, item: UnassignedReplica) -> None:
        self._unassigned.add((item.partition_index, item.source))
        if item.source in self.load:
            self.load[item.source] -= 1

    def _restore(self, item: UnassignedReplica) -> None:
        self._unassigned.remove((item.partition_index, item.source))
        if item.source in self.load:
            self.load[item.source] += 1

    def _assign(self, item: UnassignedReplica, node: NodeId) -> None:
        """Assign a replica. The partition keeps its owner if possible; otherwise another replica with its
        rows owns it.
        """
        self._unassigned.remove((item.partition_index, item.source))
        self.load[node] += 1
        nodes = self._nodes[item.partition_index]
        if len(nodes) == 1:
            self._owned[item.source] -= 1
            self._owned[node] += 1
            self._nodes[item.partition_index] = (node,)
            return
        if nodes[0] != item.source:
            self._nodes[item.partition_index] = tuple(
                [node if other == item.source else other for other in nodes]
            )
            return
        self._set_owner(item.partition_index, (*nodes[1:], node), newcomer=node)

    def _set_owner(self, index: int, nodes: tuple[NodeId, ...], newcomer: NodeId | None = None) -> None:
        """Set the partition's nodes. The owner is the node with rows that owns the least for its weight;
        `newcomer` has no rows.
        """
        able = [node for node in nodes if node in self._weight and node != newcomer]
        owner = min(able, key=lambda node: (self._owned[node] / self._weight[node], node), default=nodes[-1])
        self._owned[self._nodes[index][0]] -= 1
        self._owned[owner] += 1
        self._nodes[index] = (owner, *[node for node in nodes if node != owner])

    def _fill_owner_share(self, node: NodeId) -> None:
        """Transfer ownership of partitions to `node`, of those that it holds, until it owns its share."""
        total = sum(self._owned[other] for other in self._weight)
        whole = sum(self._weight.values())
        floor = {other: total * weight // whole for other, weight in self._weight.items()}
        for index, nodes in enumerate(self._nodes):
            if self._owned[node] >= floor[node]:
                return
            if node in nodes[1:] and self._owned[nodes[0]] > floor.get(nodes[0], 0):
                self._owned[nodes[0]] -= 1
                self._owned[node] += 1
                self._nodes[index] = (node, *[other for other in nodes if other != node])

    def ownerless(self) -> list[int]:
        """Partitions whose owner takes no partitions, while another replica's node does."""
        return [
            index
            for index, nodes in enumerate(self._nodes)
            if nodes[0] not in self._weight and any(node in self._weight for node in nodes)
        ]

    def _result(self) -> list[PartitionPlacement]:
        """The new placement. Partitions without an owner that can continue get one of their other replicas as
        owner.
        """
        for index in self.ownerless():
            self._set_owner(index, self._nodes[index])
        return [
            part if part.nodes is nodes else part._replace(nodes=nodes)
            for part, nodes in zip(self._placements, self._nodes, strict=True)
        ]

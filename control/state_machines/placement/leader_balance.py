"""Balance ownership by transferring it between existing replicas; no data moves.

A node that owns too many partitions transfers one along the shortest chain of replicas to a node that owns
too few: A to B a partition that both hold, B to C another. That is the augmenting path of a flow (Ford and
Fulkerson, 1956): without such a path no transfers improve the balance. Transfers first bring each node
down to the ceiling of its share by weight, then up to the floor, as far as the replicas allow it. A second
call changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from ringfence.control.model.ids import NodeId
from ringfence.control.state_machines.placement.zones import Member, PartitionPlacement, eligible_members

# Replicas visited during the search for chains, a second or two; after that the rest stays, which is valid.
VISITED_MAX: Final = 4_000_000

Goal = Callable[[NodeId], bool]
Neighbors = Callable[[NodeId], Iterator[tuple[NodeId, int]]]


def balance_owners(
    members: Sequence[Member],
    placements: Sequence[PartitionPlacement],
    also: Mapping[NodeId, int] | None = None,
) -> list[PartitionPlacement]:
    """`placements` with other owners, by as few transfers as possible. Partitions with one replica count, and
    stay.

    `also` are partitions that nodes own in addition: nodes that own more in all get the floor here, others
    the ceiling.
    """
    if not any(len(part.nodes) > 1 for part in placements):
        return list(placements)
    balancer = _OwnershipBalancer(members, placements)
    balancer.balance()
    if also is not None:
        balancer.balance_totals(also)
    return [
        part if part.nodes is nodes else part._replace(nodes=nodes)
        for part, nodes in zip(placements, balancer.nodes, strict=True)
    ]


class _OwnershipBalancer:
    """Ownership of all partitions during the balancing."""

    def __init__(self, members: Sequence[Member], placements: Sequence[PartitionPlacement]) -> None:
        self.nodes = [part.nodes for part in placements]
        weights = self._weights = {member.node: member.weight for member in sorted(eligible_members(members))}
        self._owned: dict[NodeId, dict[int, None]] = {node: {} for node in weights}
        self._replicas: dict[NodeId, list[int]] = {node: [] for node in weights}
        for index, nodes in enumerate(self.nodes):
            if nodes[0] in self._owned:
                self._owned[nodes[0]][index] = None
            if len(nodes) > 1:
                for node in nodes:
                    if node in self._replicas:
                        self._replicas[node].append(index)
        total, whole = sum(len(indexes) for indexes in self._owned.values()), sum(weights.values())
        self._floor = {node: total * weight // whole for node, weight in weights.items()}
        self._ceiling = {node: -(-total * weight // whole) for node, weight in weights.items()}
        self._visited = 0

    def balance(self) -> None:
        """Bring each node between the floor and the ceiling of its share."""
        owned, floor, ceiling = self._owned, self._floor, self._ceiling
        for node in owned:
            while len(owned[node]) > ceiling[node]:
                if not self._transfer_from(node, lambda other: len(owned[other]) < ceiling[other]):
                    break
        for node in owned:
            while len(owned[node]) < floor[node]:
                if not self._transfer_to(node, lambda other: len(owned[other]) > floor[other]):
                    break

    def balance_totals(self, also: Mapping[NodeId, int]) -> None:
        """Within floor and ceiling, transfer from nodes that own much in all to nodes that own little."""
        owned, weights = self._owned, self._weights

        def load(node: NodeId, more: int) -> float:
            return (also.get(node, 0) + len(owned[node]) + more) / weights[node]

        def gains(giver: NodeId, taker: NodeId) -> bool:
            return len(owned[taker]) < self._ceiling[taker] and load(taker, 1) < load(giver, 0)

        for node in sorted(owned, key=lambda node: (-load(node, 0), node)):
            if len(owned[node]) > self._floor[node]:
                self._transfer_from(node, partial(gains, node))

    def _transfer_from(self, start: NodeId, is_goal: Goal) -> bool:
        """Transfer one partition from `start` along a chain to the nearest goal; False without a chain."""
        nodes = self.nodes

        def neighbors(node: NodeId) -> Iterator[tuple[NodeId, int]]:
            return ((other, index) for index in self._owned[node] for other in nodes[index][1:])

        paths = self._search(start, is_goal, neighbors)
        while paths:
            taker, _, index = paths.pop()
            self._transfer(index, taker)
        return paths is not None

    def _transfer_to(self, start: NodeId, is_goal: Goal) -> bool:
        """Transfer one partition to `start` along a chain from the nearest goal; False without a chain."""
        nodes = self.nodes

        def neighbors(node: NodeId) -> Iterator[tuple[NodeId, int]]:
            return ((nodes[index][0], index) for index in self._replicas[node])

        paths = self._search(start, is_goal, neighbors)
        while paths:
            _, taker, index = paths.pop()
            self._transfer(index, taker)
        return paths is not None

    def _search(
        self, start: NodeId, is_goal: Goal, neighbors: Neighbors
    ) -> list[tuple[NodeId, NodeId, int]] | None:
        """The shortest chain of (node, the node before it, partition between them), the goal's link last."""
        paths: dict[NodeId, tuple[NodeId, int]] = {}
        queue = deque([start])
        while queue and self._visited < VISITED_MAX:
            node = queue.popleft()
            for other, index in neighbors(node):
                self._visited += 1
                if other in paths or other == start or other not in self._owned:
                    continue
                paths[other] = (node, index)
                if not is_goal(other):
                    queue.append(other)
                    continue
                chain, link = [], other
                while link != start:
                    chain.append((link, *paths[link]))
                    link = paths[link][0]
                return chain[::-1]
        return None

    def _transfer(self, index: int, taker: NodeId) -> None:
        nodes = self.nodes[index]
        del self._owned[nodes[0]][index]
        self._owned[taker][index] = None
        self.nodes[index] = (taker, *[node for node in nodes if node != taker])

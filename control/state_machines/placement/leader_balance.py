"""Balance ownership by transferring it between existing replicas; no data moves.

A node that owns too many partitions transfers one along the shortest chain of replicas to a node that owns
too few: A to B a partition that both hold, B to C another. That is the augmenting path of a flow (Ford and
Fulkerson, 1956): without such a path no transfers improve the balance. First each node is brought to the
ceiling of its share by weight at most, then to the floor at least, as far as the replicas allow it. A
second call changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from ringfence.control.model.ids import NodeId
from ringfence.control.state_machines.placement.zones import Member, Placed, takers

# Replicas visited during the search for chains, a second or two; after that the rest stays, which is valid.
LOOKED_MAX: Final = 4_000_000

Goal = Callable[[NodeId], bool]
Onward = Callable[[NodeId], Iterator[tuple[NodeId, int]]]


def even_owners(
    members: Sequence[Member], placed: Sequence[Placed], also: Mapping[NodeId, int] | None = None
) -> list[Placed]:
    """`placed` with other owners, by as few transfers as possible. Partitions with one replica count, and
    stay.

    `also` are partitions that nodes own in addition: nodes that own more in all get the floor here, others
    the ceiling.
    """
    if not any(len(part.nodes) > 1 for part in placed):
        return list(placed)
    hands = _Hands(members, placed)
    hands.even()
    if also is not None:
        hands.lean(also)
    return [
        part if part.nodes is nodes else part._replace(nodes=nodes)
        for part, nodes in zip(placed, hands.nodes, strict=True)
    ]


class _Hands:
    """Ownership of all partitions during the balancing."""

    def __init__(self, members: Sequence[Member], placed: Sequence[Placed]) -> None:
        self.nodes = [part.nodes for part in placed]
        weights = self._weights = {member.node: member.weight for member in sorted(takers(members))}
        self._owned: dict[NodeId, dict[int, None]] = {node: {} for node in weights}
        self._held: dict[NodeId, list[int]] = {node: [] for node in weights}
        for place, nodes in enumerate(self.nodes):
            if nodes[0] in self._owned:
                self._owned[nodes[0]][place] = None
            if len(nodes) > 1:
                for node in nodes:
                    if node in self._held:
                        self._held[node].append(place)
        total, whole = sum(len(places) for places in self._owned.values()), sum(weights.values())
        self._floor = {node: total * weight // whole for node, weight in weights.items()}
        self._ceiling = {node: -(-total * weight // whole) for node, weight in weights.items()}
        self._looked = 0

    def even(self) -> None:
        """Bring each node between the floor and the ceiling of its share."""
        owned, floor, ceiling = self._owned, self._floor, self._ceiling
        for node in owned:
            while len(owned[node]) > ceiling[node]:
                if not self._gives(node, lambda other: len(owned[other]) < ceiling[other]):
                    break
        for node in owned:
            while len(owned[node]) < floor[node]:
                if not self._takes(node, lambda other: len(owned[other]) > floor[other]):
                    break

    def lean(self, also: Mapping[NodeId, int]) -> None:
        """Within floor and ceiling, transfer from nodes that own much in all to nodes that own little."""
        owned, weights = self._owned, self._weights

        def load(node: NodeId, more: int) -> float:
            return (also.get(node, 0) + len(owned[node]) + more) / weights[node]

        def gains(giver: NodeId, taker: NodeId) -> bool:
            return len(owned[taker]) < self._ceiling[taker] and load(taker, 1) < load(giver, 0)

        for node in sorted(owned, key=lambda node: (-load(node, 0), node)):
            if len(owned[node]) > self._floor[node]:
                self._gives(node, partial(gains, node))

    def _gives(self, start: NodeId, is_goal: Goal) -> bool:
        """Transfer one partition from `start` along a chain to the nearest goal; False without a chain."""
        nodes = self.nodes

        def onward(node: NodeId) -> Iterator[tuple[NodeId, int]]:
            return ((other, place) for place in self._owned[node] for other in nodes[place][1:])

        came = self._search(start, is_goal, onward)
        while came:
            taker, _, place = came.pop()
            self._hand_over(place, taker)
        return came is not None

    def _takes(self, start: NodeId, is_goal: Goal) -> bool:
        """Transfer one partition to `start` along a chain from the nearest goal; False without a chain."""
        nodes = self.nodes

        def onward(node: NodeId) -> Iterator[tuple[NodeId, int]]:
            return ((nodes[place][0], place) for place in self._held[node])

        came = self._search(start, is_goal, onward)
        while came:
            _, taker, place = came.pop()
            self._hand_over(place, taker)
        return came is not None

    def _search(
        self, start: NodeId, is_goal: Goal, onward: Onward
    ) -> list[tuple[NodeId, NodeId, int]] | None:
        """The shortest chain of (node, the node before it, partition between them), the goal's link last."""
        came: dict[NodeId, tuple[NodeId, int]] = {}
        queue = deque([start])
        while queue and self._looked < LOOKED_MAX:
            node = queue.popleft()
            for other, place in onward(node):
                self._looked += 1
                if other in came or other == start or other not in self._owned:
                    continue
                came[other] = (node, place)
                if not is_goal(other):
                    queue.append(other)
                    continue
                chain, link = [], other
                while link != start:
                    chain.append((link, *came[link]))
                    link = came[link][0]
                return chain[::-1]
        return None

    def _hand_over(self, place: int, taker: NodeId) -> None:
        nodes = self.nodes[place]
        del self._owned[nodes[0]][place]
        self._owned[taker][place] = None
        self.nodes[place] = (taker, *[node for node in nodes if node != taker])

"""Even numbers of owned partitions by hand-overs: a partition's owner changes, its replicas do not.

A node that owns too many hands one over along the shortest chain of replicas to a node that owns too few: A
to B what both hold, B to C another. That is the augmenting path of a flow (Ford and Fulkerson, 1956): where
there is none, no hand-overs even anything. First nobody keeps more than the ceiling of its share by weight,
then nobody has less than the floor, wherever the replicas allow it. What cannot be evened once cannot the
second time, so evening again changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from ringfence.control.model.ids import NodeId
from ringfence.control.state_machines.placement.zones import Member, Placed, takers

LOOKED_MAX: Final = 4_000_000
"""Replicas looked at while searching chains, a second or two; the rest stays as it is, which is sound."""

Goal = Callable[[NodeId], bool]
Onward = Callable[[NodeId], Iterator[tuple[NodeId, int]]]


def even_owners(
    members: Sequence[Member], placed: Sequence[Placed], also: Mapping[NodeId, int] | None = None
) -> list[Placed]:
    """`placed` with other owners, as few as it takes. Partitions of one replica count, and stay.

    With `also`, what nodes own besides: those who own more in all get the floor here, the others the ceiling.
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
        """Within floor and ceiling, from those that own much in all to those that own little."""
        owned, weights = self._owned, self._weights

        def load(node: NodeId, more: int) -> float:
            return (also.get(node, 0) + len(owned[node]) + more) / weights[node]

        def gains(giver: NodeId, taker: NodeId) -> bool:
            return len(owned[taker]) < self._ceiling[taker] and load(taker, 1) < load(giver, 0)

        for node in sorted(owned, key=lambda node: (-load(node, 0), node)):
            if len(owned[node]) > self._floor[node]:
                self._gives(node, partial(gains, node))

    def _gives(self, start: NodeId, is_goal: Goal) -> bool:
        """Whether `start` owns one fewer now, and the nearest goal one more."""
        nodes = self.nodes

        def onward(node: NodeId) -> Iterator[tuple[NodeId, int]]:
            return ((other, place) for place in self._owned[node] for other in nodes[place][1:])

        came = self._search(start, is_goal, onward)
        while came:
            taker, _, place = came.pop()
            self._hand_over(place, taker)
        return came is not None

    def _takes(self, start: NodeId, is_goal: Goal) -> bool:
        """Whether `start` owns one more now, and the nearest goal one fewer."""
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
        """The shortest chain as (node, the one before it, partition between them), the goal's last."""
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

"""One round of a plan: take replicas from nodes with too many, and assign them to nodes with too few.

Replicas on nodes that leave, and replicated ones on failed nodes, must move. With several zones, a replica
that makes its partition's spread uneven must move, too. Then every node's target is the floor or the
ceiling of its share by weight. Nodes above the floor get the ceiling first: each such node saves a move.
Replicas above the target move, first from the topics that the node holds most of, followers before owners.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Final

from ringfence.control.model.ids import NodeId, TopicId
from ringfence.control.state_machines.placement.draft_placement import DraftPlacement, Loose
from ringfence.control.state_machines.placement.zones import Member, Part, Placed, crowded

# Nodes compared for each replica, so that one topic's replicas go to different nodes.
LOOK_MAX: Final = 8


def disorder(members: Sequence[Member], placed: Sequence[Placed]) -> tuple[int, int, int, int]:
    """(replicas that must move, missing owners, crowded zones, replicas above the targets).

    Smaller is better, and the first number counts most.
    """
    state = Round(members, placed)
    above = sum(max(0, state.load[node] - target) for node, target in state.targets().items())
    return len(state.must_go()), len(state.ownerless()), len(state.crowding()), above


class Round(DraftPlacement):
    """One round; the next one begins with its result."""

    def __init__(self, members: Sequence[Member], placed: Sequence[Placed]) -> None:
        super().__init__(members, placed)
        self._giving: dict[NodeId, Iterator[int]] = {}

    def balance(self) -> list[Placed]:
        loose = [*self.must_go(), *self.crowding()]
        for item in loose:
            self._let_go(item)
        targets = self.targets()
        for node in self._weight:
            count = self.load[node] - targets[node]
            if count > 0:
                loose += self._released(node, count)
        slots = {
            node: target - self.load[node] for node, target in targets.items() if target > self.load[node]
        }
        self._deal(loose, slots)
        return self._result()

    def clear(self) -> list[Placed]:
        loose = self.must_go()
        for item in loose:
            self._let_go(item)
        self._put_where_least(loose)
        return self._result()

    def fill(self, node: NodeId) -> list[Placed]:
        targets = self.targets()
        left = targets[node] - self.load[node]
        over = {other: self.load[other] - targets[other] for other in self._weight if other != node}
        # Take from the nodes that are most above their targets, so that the old nodes end as even as
        # possible.
        givers = [(-count, other) for other, count in over.items() if count > 0]
        heapify(givers)
        wishes: Counter[NodeId] = Counter()
        while givers and wishes.total() < left:
            count, other = givers[0]
            wishes[other] += 1
            heapreplace(givers, (count + 1, other)) if count + 1 < 0 else heappop(givers)
        for other, count in sorted(wishes.items()):
            for _ in range(count):
                item = self._next_to_go(other, partial(self._fits, source=other, node=node))
                if item is None:
                    break
                self._let_go(item)
                self._put(item, node)
        self._own_share(node)
        return self._result()

    def must_go(self) -> list[Loose]:
        """Replicas on nodes that leave, and replicated ones on failed nodes."""
        if all(part is Part.TAKES for part in self._part.values()):
            return []
        found = []
        for place, nodes in enumerate(self._nodes):
            for node in nodes:
                part = self._part.get(node, Part.FAILED)
                if part is Part.LEAVES or (part is Part.FAILED and len(nodes) > 1):
                    found.append(Loose(place, node, must=True))
        return found

    def crowding(self) -> list[Loose]:
        """At most one replica of each partition; in a zone with too many the one on the fullest node, owners
        last.
        """
        if not self._is_zoned:
            return []
        found = []
        for place, nodes in enumerate(self._nodes):
            able = [node for node in nodes if node in self._zone]
            if len(able) < 2:
                continue
            zones = [self._zone[node] for node in able]
            if len(set(zones)) == len(zones):
                continue
            full = crowded(zones, self._sizes)
            if full:
                candidates = [node for node in able if self._zone[node] in full]
                source = max(
                    candidates,
                    key=lambda node: (node != nodes[0], self.load[node] / self._weight[node], node),
                )
                found.append(Loose(place, source, must=True))
        return found

    def _released(self, node: NodeId, count: int) -> list[Loose]:
        """Take `count` replicas from a node; each from the topic that the node then holds most of."""
        released = [Loose(place, node, must=False) for place in islice(self._gives(node), count)]
        for item in released:
            self._let_go(item)
        assert len(released) == count, f"node {node} holds fewer than the {count} replicas above its target"
        return released

    def _next_to_go(self, node: NodeId, fits: Callable[[int], bool]) -> Loose | None:
        """The next replica of a node that fits. A replica that does not fit is skipped for the rest of the
        round.
        """
        place = next(filter(fits, self._gives(node)), None)
        return None if place is None else Loose(place, node, must=False)

    def _gives(self, node: NodeId) -> Iterator[int]:
        """Partitions whose replica on `node` may move; each once in a round."""
        if node not in self._giving:
            self._giving[node] = (
                place for place in self._giving_order(node) if (place, node) not in self._loose
            )
        return self._giving[node]

    def _giving_order(self, node: NodeId) -> Iterator[int]:
        """Partitions of the node, from its largest topics first, followers before owners."""
        topics: dict[TopicId, list[tuple[bool, int]]] = defaultdict(list)
        for place in self._places(node):
            is_owner = len(self._nodes[place]) > 1 and self._nodes[place][0] == node
            topics[self._placed[place].topic].append((is_owner, -place))
        for places in topics.values():
            places.sort(reverse=True)  # popped from the end: followers first, then by id
        heap = [(-len(places), topic) for topic, places in topics.items()]
        heapify(heap)
        while heap:
            count, topic = heap[0]
            _, place = topics[topic].pop()
            heapreplace(heap, (count + 1, topic)) if count + 1 < 0 else heappop(heap)
            yield -place

    def _deal(self, loose: list[Loose], slots: dict[NodeId, int]) -> None:
        """Assign each replica to a node with a free slot, those of one topic to different nodes."""
        ring = deque(sorted(slots, key=lambda node: (-slots[node], node)))
        loose = [
            *sorted(item for item in loose if item.must),
            *sorted(item for item in loose if not item.must),
        ]
        counts = self._topic_counts({self._placed[item.place].topic for item in loose}, slots)
        homeless: list[Loose] = []
        for first in loose:
            item, best = first, self._best(first, ring, counts)
            if best is None and first.must:
                homeless.append(first)
                continue
            if best is None:
                # Another replica of the same node may fit where this one does not.
                self._put_back(first)
                other = self._next_to_go(
                    first.source, partial(self._fits_some, source=first.source, ring=ring)
                )
                if other is None:
                    continue
                self._let_go(other)
                item, best = other, self._best(other, ring, counts)
                assert best is not None, f"replica {other} fits no node, although it was found to fit one"
            node = ring[best]
            self._put(item, node)
            counts[self._placed[item.place].topic, node] += 1
            slots[node] -= 1
            ring.rotate(-best)
            ring.popleft()
            if slots[node]:
                ring.append(node)
        self._put_where_least(homeless)

    def _best(self, item: Loose, ring: deque[NodeId], counts: Counter[tuple[TopicId, NodeId]]) -> int | None:
        """The index in `ring` of a node that may take the replica, and holds little of its topic."""
        topic = self._placed[item.place].topic
        best, best_count, looked = None, 0, 0
        for at, node in enumerate(ring):
            if self._may_take(item, node):
                count = counts[topic, node]
                if best is None or count < best_count:
                    best, best_count = at, count
                looked += 1
                if looked == LOOK_MAX or best_count == 0:
                    break
        return best

    def _fits_some(self, place: int, source: NodeId, ring: deque[NodeId]) -> bool:
        return any(self._fits(place, source, node) for node in ring)

    def _topic_counts(
        self, topics: set[TopicId], slots: dict[NodeId, int]
    ) -> Counter[tuple[TopicId, NodeId]]:
        counts: Counter[tuple[TopicId, NodeId]] = Counter()
        if topics and slots:
            for part, nodes in zip(self._placed, self._nodes, strict=True):
                if part.topic in topics:
                    for node in nodes:
                        if node in slots:
                            counts[part.topic, node] += 1
        return counts

    def _put_where_least(self, loose: list[Loose]) -> None:
        """Assign each replica to the node that holds least for its weight; without such a node it stays."""
        if not loose:
            return
        heap = [((self.load[node] + 1) / weight, node) for node, weight in self._weight.items()]
        heapify(heap)
        for item in loose:
            passed = []
            while heap:
                least, node = heappop(heap)
                if len(self._nodes[item.place]) == 1 or self._is_level(item, node):
                    self._put(item, node)
                    heappush(heap, ((self.load[node] + 1) / self._weight[node], node))
                    break
                passed.append((least, node))
            else:
                self._put_back(item)
            for entry in passed:
                heappush(heap, entry)

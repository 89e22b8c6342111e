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
from ringfence.control.state_machines.placement.draft_placement import DraftPlacement, UnassignedReplica
from ringfence.control.state_machines.placement.zones import (
    Member,
    PartitionPlacement,
    PlacementRole,
    crowded_zones,
)

# Nodes compared for each replica, so that one topic's replicas go to different nodes.
COMPARED_MAX: Final = 8


def disorder(
    members: Sequence[Member], placements: Sequence[PartitionPlacement]
) -> tuple[int, int, int, int]:
    """(replicas that must move, missing owners, crowded zones, replicas above the targets).

    Smaller is better, and the first number counts most.
    """
    state = Round(members, placements)
    above = sum(max(0, state.load[node] - target) for node, target in state.targets().items())
    return len(state.must_move()), len(state.ownerless()), len(state.crowding_replicas()), above


class Round(DraftPlacement):
    """One round; the next one begins with its result."""

    def __init__(self, members: Sequence[Member], placements: Sequence[PartitionPlacement]) -> None:
        super().__init__(members, placements)
        self._movable_by_node: dict[NodeId, Iterator[int]] = {}

    def balance(self) -> list[PartitionPlacement]:
        unassigned = [*self.must_move(), *self.crowding_replicas()]
        for item in unassigned:
            self._unassign(item)
        targets = self.targets()
        for node in self._weight:
            count = self.load[node] - targets[node]
            if count > 0:
                unassigned += self._unassign_surplus(node, count)
        slots = {
            node: target - self.load[node] for node, target in targets.items() if target > self.load[node]
        }
        self._assign_all(unassigned, slots)
        return self._result()

    def clear(self) -> list[PartitionPlacement]:
        unassigned = self.must_move()
        for item in unassigned:
            self._unassign(item)
        self._assign_to_least_loaded(unassigned)
        return self._result()

    def fill(self, node: NodeId) -> list[PartitionPlacement]:
        targets = self.targets()
        left = targets[node] - self.load[node]
        surplus = {other: self.load[other] - targets[other] for other in self._weight if other != node}
        # Take from the nodes that are most above their targets, so that the old nodes end as even as
        # possible.
        givers = [(-count, other) for other, count in surplus.items() if count > 0]
        heapify(givers)
        wanted_counts: Counter[NodeId] = Counter()
        while givers and wanted_counts.total() < left:
            count, other = givers[0]
            wanted_counts[other] += 1
            heapreplace(givers, (count + 1, other)) if count + 1 < 0 else heappop(givers)
        for other, count in sorted(wanted_counts.items()):
            for _ in range(count):
                item = self._next_movable(other, partial(self._fits, source=other, node=node))
                if item is None:
                    break
                self._unassign(item)
                self._assign(item, node)
        self._fill_owner_share(node)
        return self._result()

    def must_move(self) -> list[UnassignedReplica]:
        """Replicas on nodes that leave, and replicated ones on failed nodes."""
        if all(part is PlacementRole.TAKES for part in self._role.values()):
            return []
        replicas = []
        for index, nodes in enumerate(self._nodes):
            for node in nodes:
                part = self._role.get(node, PlacementRole.FAILED)
                if part is PlacementRole.LEAVES or (part is PlacementRole.FAILED and len(nodes) > 1):
                    replicas.append(UnassignedReplica(index, node, must=True))
        return replicas

    def crowding_replicas(self) -> list[UnassignedReplica]:
        """At most one replica of each partition; in a zone with too many the one on the fullest node, owners
        last.
        """
        if not self._is_zoned:
            return []
        replicas = []
        for index, nodes in enumerate(self._nodes):
            able = [node for node in nodes if node in self._zone]
            if len(able) < 2:
                continue
            zones = [self._zone[node] for node in able]
            if len(set(zones)) == len(zones):
                continue
            full = crowded_zones(zones, self._sizes)
            if full:
                candidates = [node for node in able if self._zone[node] in full]
                source = max(
                    candidates,
                    key=lambda node: (node != nodes[0], self.load[node] / self._weight[node], node),
                )
                replicas.append(UnassignedReplica(index, source, must=True))
        return replicas

    def _unassign_surplus(self, node: NodeId, count: int) -> list[UnassignedReplica]:
        """Take `count` replicas from a node; each from the topic that the node then holds most of."""
        replicas = [
            UnassignedReplica(index, node, must=False) for index in islice(self._movable(node), count)
        ]
        for item in replicas:
            self._unassign(item)
        assert len(replicas) == count, f"node {node} holds fewer than the {count} replicas above its target"
        return replicas

    def _next_movable(self, node: NodeId, fits: Callable[[int], bool]) -> UnassignedReplica | None:
        """The next replica of a node that fits. A replica that does not fit is skipped for the rest of the
        round.
        """
        index = next(filter(fits, self._movable(node)), None)
        return None if index is None else UnassignedReplica(index, node, must=False)

    def _movable(self, node: NodeId) -> Iterator[int]:
        """Partitions whose replica on `node` may move; each once in a round."""
        if node not in self._movable_by_node:
            self._movable_by_node[node] = (
                index for index in self._movable_order(node) if (index, node) not in self._unassigned
            )
        return self._movable_by_node[node]

    def _movable_order(self, node: NodeId) -> Iterator[int]:
        """Partitions of the node, from its largest topics first, followers before owners."""
        topics: dict[TopicId, list[tuple[bool, int]]] = defaultdict(list)
        for index in self._indexes_of(node):
            is_owner = len(self._nodes[index]) > 1 and self._nodes[index][0] == node
            topics[self._placements[index].topic].append((is_owner, -index))
        for places in topics.values():
            places.sort(reverse=True)  # popped from the end: followers first, then by id
        heap = [(-len(places), topic) for topic, places in topics.items()]
        heapify(heap)
        while heap:
            count, topic = heap[0]
            _, index = topics[topic].pop()
            heapreplace(heap, (count + 1, topic)) if count + 1 < 0 else heappop(heap)
            yield -index

    def _assign_all(self, unassigned: list[UnassignedReplica], slots: dict[NodeId, int]) -> None:
        """Assign each replica to a node with a free slot, those of one topic to different nodes."""
        candidates = deque(sorted(slots, key=lambda node: (-slots[node], node)))
        unassigned = [
            *sorted(item for item in unassigned if item.must),
            *sorted(item for item in unassigned if not item.must),
        ]
        counts = self._topic_counts(
            {self._placements[item.partition_index].topic for item in unassigned}, slots
        )
        unplaced: list[UnassignedReplica] = []
        for first in unassigned:
            item, best = first, self._best_candidate(first, candidates, counts)
            if best is None and first.must:
                unplaced.append(first)
                continue
            if best is None:
                # Another replica of the same node may fit where this one does not.
                self._restore(first)
                other = self._next_movable(
                    first.source, partial(self._fits_any, source=first.source, candidates=candidates)
                )
                if other is None:
                    continue
                self._unassign(other)
                item, best = other, self._best_candidate(other, candidates, counts)
                assert best is not None, f"replica {other} fits no node, although it was found to fit one"
            node = candidates[best]
            self._assign(item, node)
            counts[self._placements[item.partition_index].topic, node] += 1
            slots[node] -= 1
            candidates.rotate(-best)
            candidates.popleft()
            if slots[node]:
                candidates.append(node)
        self._assign_to_least_loaded(unplaced)

    def _best_candidate(
        self, item: UnassignedReplica, candidates: deque[NodeId], counts: Counter[tuple[TopicId, NodeId]]
    ) -> int | None:
        """The index in `candidates` of a node that may take the replica, and holds little of its topic."""
        topic = self._placements[item.partition_index].topic
        best, best_count, compared = None, 0, 0
        for at, node in enumerate(candidates):
            if self._may_take(item, node):
                count = counts[topic, node]
                if best is None or count < best_count:
                    best, best_count = at, count
                compared += 1
                if compared == COMPARED_MAX or best_count == 0:
                    break
        return best

    def _fits_any(self, index: int, source: NodeId, candidates: deque[NodeId]) -> bool:
        return any(self._fits(index, source, node) for node in candidates)

    def _topic_counts(
        self, topics: set[TopicId], slots: dict[NodeId, int]
    ) -> Counter[tuple[TopicId, NodeId]]:
        counts: Counter[tuple[TopicId, NodeId]] = Counter()
        if topics and slots:
            for part, nodes in zip(self._placements, self._nodes, strict=True):
                if part.topic in topics:
                    for node in nodes:
                        if node in slots:
                            counts[part.topic, node] += 1
        return counts

    def _assign_to_least_loaded(self, unassigned: list[UnassignedReplica]) -> None:
        """Assign each replica to the node that holds least for its weight; without such a node it stays."""
        if not unassigned:
            return
        heap = [((self.load[node] + 1) / weight, node) for node, weight in self._weight.items()]
        heapify(heap)
        for item in unassigned:
            passed = []
            while heap:
                least, node = heappop(heap)
                if len(self._nodes[item.partition_index]) == 1 or self._is_level(item, node):
                    self._assign(item, node)
                    heappush(heap, ((self.load[node] + 1) / self._weight[node], node))
                    break
                passed.append((least, node))
            else:
                self._restore(item)
            for entry in passed:
                heappush(heap, entry)

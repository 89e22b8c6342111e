"""Members, topics and placements for the planner and its parts, and the checks of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.state_machines.placement.placement import place
from ringfence.control.state_machines.placement.planner import Plan
from ringfence.control.state_machines.placement.zones import (
    Member,
    PartitionPlacement,
    PlacementRole,
    crowded_zones,
    eligible_members,
    zone_sizes,
)

ONE, TWO, THREE, FOUR = (NodeId(number) for number in range(1, 5))


def members(count: int, *, zones: int = 1, weights: Sequence[int] = (100,)) -> list[Member]:
    return [
        Member(NodeId(number + 1), f"z{number % zones}" if zones > 1 else "", weights[number % len(weights)])
        for number in range(count)
    ]


def topics(nodes: Sequence[Member], counts: Sequence[int], replication: int = 1) -> list[PartitionPlacement]:
    """Topics placed one after the other, as the cluster does it."""
    owned: Counter[NodeId] = Counter()
    held: Counter[NodeId] = Counter()
    placed = []
    for topic, count in enumerate(counts, start=1):
        sets = place(nodes, count, replication, owned_counts=owned, replica_counts=held)
        for ordinal, replicas in enumerate(sets):
            placed.append(PartitionPlacement(TopicId(topic), PartitionId(topic << 16 | ordinal), replicas))
        for part in placed[-count:]:
            owned[part.nodes[0]] += 1
            held.update(part.nodes)
    return placed


def carried_out(placed: Sequence[PartitionPlacement], plan: Plan) -> list[PartitionPlacement]:
    after = {move.partition: move.after for move in plan.moves}
    return [part._replace(nodes=after.get(part.partition, part.nodes)) for part in placed]


def loads(placed: Sequence[PartitionPlacement], nodes: Sequence[Member]) -> dict[NodeId, int]:
    held = Counter(node for part in placed for node in part.nodes)
    return {member.node: held[member.node] for member in eligible_members(nodes)}


def owned(placed: Sequence[PartitionPlacement], nodes: Sequence[Member]) -> dict[NodeId, int]:
    held = Counter(part.nodes[0] for part in placed)
    return {member.node: held[member.node] for member in eligible_members(nodes)}


def within_one(load: dict[NodeId, int], nodes: Sequence[Member]) -> bool:
    """Every load is the floor or the ceiling of its share by weight."""
    weight = {member.node: member.weight for member in eligible_members(nodes)}
    total, whole = sum(load.values()), sum(weight.values())
    return all(
        total * weight[node] // whole <= count <= -(-total * weight[node] // whole)
        for node, count in load.items()
    )


def check_sound(
    before: Sequence[PartitionPlacement], plan: Plan, nodes: Sequence[Member]
) -> list[PartitionPlacement]:
    """Z2 and what no plan may do; the placement after it."""
    after = carried_out(before, plan)
    changed = {old.partition for old, new in zip(before, after, strict=True) if old.nodes != new.nodes}
    assert [move.partition for move in plan.moves] == sorted(changed), "Z2: the plan is not what changes"
    old_nodes = {part.partition: part.nodes for part in before}
    able = {member.node for member in eligible_members(nodes)}
    for move in plan.moves:
        assert move.before == old_nodes[move.partition]
        assert len(set(move.after)) == len(move.before), "a replica more or less, or two on one node"
        assert set(move.after) - set(move.before) <= able, "a replica went to a node that takes none"
    return after


@st.composite
def clusters(draw: st.DrawFn, *, replication: int = 1) -> tuple[list[Member], list[PartitionPlacement]]:
    """Any members and any placement on them, however uneven."""
    nodes = [
        Member(
            NodeId(number),
            draw(st.sampled_from(["", "a", "b", "c"])),
            draw(st.sampled_from([100, 100, 100, 50, 300])),
            draw(st.sampled_from([PlacementRole.TAKES] * 6 + [PlacementRole.LEAVES, PlacementRole.FAILED])),
        )
        for number in range(1, draw(st.integers(replication, 9)) + 1)
    ]
    random = Random(draw(st.integers(0, 1 << 32)))
    few = random.sample(nodes, random.randint(replication, len(nodes)))
    placed = [
        PartitionPlacement(
            TopicId(topic),
            PartitionId(topic << 16 | ordinal),
            tuple(member.node for member in random.sample(few, replication)),
        )
        for topic in range(1, random.randint(1, 5) + 1)
        for ordinal in range(random.randint(1, 20))
    ]
    return nodes, placed


def is_level(part: PartitionPlacement, nodes: Sequence[Member]) -> bool:
    zone = {member.node: member.zone for member in eligible_members(nodes)}
    return not crowded_zones([zone[node] for node in part.nodes if node in zone], zone_sizes(nodes))


def owners_fit(placed: Sequence[PartitionPlacement], most: int) -> bool:
    """Whether every partition can have an owner while no node owns more than `most` (Kuhn's matching)."""
    taken: dict[tuple[NodeId, int], int] = {}

    def seat(part: int, seen: set[tuple[NodeId, int]]) -> bool:
        for node in placed[part].nodes:
            for chair in range(most):
                if (node, chair) not in seen:
                    seen.add((node, chair))
                    if (node, chair) not in taken or seat(taken[node, chair], seen):
                        taken[node, chair] = part
                        return True
        return False

    return all(seat(part, set()) for part in range(len(placed)))

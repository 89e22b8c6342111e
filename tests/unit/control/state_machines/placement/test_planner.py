"""The planner's laws: minimal moves, within one, spread before balance, nothing twice, nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.node_commands import SetNode
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.placement.leader_balance import balance_owners
from ringfence.control.state_machines.placement.placement import TooFewNodesError, place, place_in
from ringfence.control.state_machines.placement.planner import Move, Plan, balance, clear, fill
from ringfence.control.state_machines.placement.quotas import portions
from ringfence.control.state_machines.placement.zones import (
    Member,
    PartitionPlacement,
    PlacementRole,
    crowded_zones,
    eligible_members,
    members_of,
    placements_of,
    replicas_by_zone,
    zone_sizes,
)
from tests.fakes.metadata_commands import cluster, create, entry

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


def test_the_check_of_plans_finds_planted_defects() -> None:
    placed = topics(members(3), [6])
    move = Move(TopicId(1), placed[0].partition, placed[0].nodes, (TWO,))
    check_sound(placed, Plan((move,)), members(3))
    idle = Move(TopicId(1), placed[1].partition, placed[1].nodes, placed[1].nodes)
    for defect in (
        Plan((move, idle)),
        Plan((move._replace(before=(THREE,)),)),
        Plan((move._replace(after=(NodeId(9),)),)),
        Plan((move._replace(after=(TWO, THREE)),)),
    ):
        with pytest.raises(AssertionError):
            check_sound(placed, defect, members(3))
    assert not within_one({ONE: 1, TWO: 3}, members(2))


# ---- one replica: everything is exact ---------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_balance_moves_as_little_as_can_be_and_ends_within_one(
    cluster: tuple[list[Member], list[PartitionPlacement]],
) -> None:
    """I12: sum(max(0, load - target)), for every choice of targets that is within one."""
    nodes, placed = cluster
    plan = balance(nodes, placed)
    after = check_sound(placed, plan, nodes)
    failed = {member.node for member in nodes if member.role is PlacementRole.FAILED}
    if not eligible_members(nodes):
        assert plan.moves == ()
        return
    assert within_one(loads(after, nodes), nodes)
    movable = [part for part in placed if part.nodes[0] not in failed]
    weight = {member.node: member.weight for member in eligible_members(nodes)}
    load, whole = Counter(part.nodes[0] for part in movable), sum(weight.values())
    floor = {node: len(movable) * weight[node] // whole for node in weight}
    over = len(movable) - sum(floor.values())
    may_have_one_more = [node for node in weight if len(movable) * weight[node] % whole]
    saved = min(over, sum(load[node] > floor[node] for node in may_have_one_more))
    needed = sum(max(0, load[node] - floor.get(node, 0)) for node in load) - saved
    assert len(plan.moves) == needed
    assert set(plan.stranded) == {part.partition for part in placed if part.nodes[0] in failed}


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 3))
def test_a_node_that_is_added_takes_its_share_and_nothing_moves_between_the_others(
    count: int, counts: list[int], zones: int
) -> None:
    """Z1, J8: about 1/(N+1) of what there is."""
    old, new = members(count, zones=zones), members(count + 1, zones=zones)
    placed = carried_out(topics(old, counts), balance(old, topics(old, counts)))
    plan = fill(new, placed, new[-1].node)
    after = check_sound(placed, plan, new)
    assert {move.after[0] for move in plan.moves} <= {new[-1].node}
    assert len(plan.moves) == len(placed) // (count + 1)
    assert within_one(loads(after, new), new)
    assert fill(new, after, new[-1].node).moves == ()
    assert balance(new, after).moves == ()


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_what_leaves_is_emptied_and_nothing_else_moves(
    cluster: tuple[list[Member], list[PartitionPlacement]],
) -> None:
    """Z16, F18: no owner moves that is neither drained nor out of the ring."""
    nodes, placed = cluster
    plan = clear(nodes, placed)
    after = check_sound(placed, plan, nodes)
    leaving = {member.node for member in nodes if member.role is PlacementRole.LEAVES}
    assert {move.before[0] for move in plan.moves} <= leaving
    if eligible_members(nodes):
        assert not any(part.nodes[0] in leaving for part in after)
    assert clear(nodes, after).moves == ()


@settings(max_examples=100, deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_plans_are_the_same_for_every_order_of_the_input_and_empty_the_second_time(
    cluster: tuple[list[Member], list[PartitionPlacement]], random: Random
) -> None:
    nodes, placed = cluster
    plan = balance(nodes, placed)
    shuffled, mixed = list(placed), list(nodes)
    random.shuffle(shuffled)
    random.shuffle(mixed)
    assert balance(mixed, shuffled) == plan
    assert balance(nodes, carried_out(placed, plan)).moves == ()


def test_a_failed_node_keeps_what_only_it_has() -> None:
    nodes = [Member(ONE, role=PlacementRole.FAILED), Member(TWO), Member(THREE)]
    placed = [
        PartitionPlacement(TopicId(1), PartitionId(number), (NodeId(number % 3 + 1),)) for number in range(6)
    ]
    plan = clear(nodes, placed)
    assert plan.moves == ()
    assert plan.stranded == (PartitionId(0), PartitionId(3))
    assert balance(nodes, placed).moves == ()


def test_twice_the_weight_is_twice_the_partitions() -> None:
    nodes = [Member(ONE, weight=100), Member(TWO, weight=200), Member(THREE, weight=100)]
    placed = topics(nodes, [8])
    assert loads(placed, nodes) == {ONE: 2, TWO: 4, THREE: 2}
    heavier = [nodes[0], nodes[1], Member(THREE, weight=500)]
    assert loads(carried_out(placed, balance(heavier, placed)), heavier) == {ONE: 1, TWO: 2, THREE: 5}


def test_one_topics_partitions_go_to_different_nodes() -> None:
    placed = [PartitionPlacement(TopicId(part % 4), PartitionId(part), (ONE,)) for part in range(16)]
    after = carried_out(placed, balance(members(4), placed))
    for topic in range(4):
        assert loads([part for part in after if part.topic == topic], members(4)) == dict.fromkeys(
            (ONE, TWO, THREE, FOUR), 1
        )


def test_a_node_that_takes_nothing_is_not_filled() -> None:
    with pytest.raises(ValueError, match="node 2 takes no partitions"):
        fill([Member(ONE), Member(TWO, role=PlacementRole.LEAVES)], [], TWO)


# ---- several replicas: spread first -----------------------------------------------------------------


def is_level(part: PartitionPlacement, nodes: Sequence[Member]) -> bool:
    zone = {member.node: member.zone for member in eligible_members(nodes)}
    return not crowded_zones([zone[node] for node in part.nodes if node in zone], zone_sizes(nodes))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([3, 5]).flatmap(lambda replication: clusters(replication=replication)))
def test_plans_of_several_replicas_are_sound_spread_level_and_empty_the_second_time(
    cluster: tuple[list[Member], list[PartitionPlacement]],
) -> None:
    nodes, placed = cluster
    able = {member.node for member in eligible_members(nodes)}
    for make in (balance, clear):
        plan = make(nodes, placed)
        after = check_sound(placed, plan, nodes)
        assert make(nodes, after).moves == ()
        if len(able) >= len(placed[0].nodes):
            assert all(able.issuperset(part.nodes) for part in after), "a replica stayed though there is room"
            assert plan.stranded == ()
        for part in after:
            assert part.nodes[0] in able or not able & set(part.nodes), "a dead owner beside a live replica"
            if make is balance:
                assert is_level(part, nodes), "two replicas in a zone, another has none"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([3, 5]), st.integers(0, 5), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_with_even_zones_replicas_and_owners_end_within_one(
    replication: int, more: int, counts: list[int]
) -> None:
    for zones in (1, replication):
        nodes = members((replication + more) if zones == 1 else replication * (1 + more), zones=zones)
        placed = topics(nodes[:replication], counts, replication)
        after = check_sound(placed, balance(nodes, placed), nodes)
        assert within_one(loads(after, nodes), nodes)
        assert within_one(owned(after, nodes), nodes)


def test_the_last_node_of_a_zone_gets_the_replicas_that_crowd_another() -> None:
    """The label of a dead node is no zone; of one that lives again it is."""
    failed = Member(FOUR, "c", role=PlacementRole.FAILED)
    nodes = [Member(ONE, "a"), Member(TWO, "a"), Member(THREE, "b"), failed]
    placed = topics(nodes, [6], 3)
    assert all(set(part.nodes) == {ONE, TWO, THREE} for part in placed)
    assert balance(nodes, placed).moves == ()
    alive = [*nodes[:3], Member(FOUR, "c")]
    after = check_sound(placed, balance(alive, placed), alive)
    assert all({THREE, FOUR} < set(part.nodes) for part in after)
    assert loads(after, alive) == {ONE: 3, TWO: 3, THREE: 6, FOUR: 6}


def test_the_owner_that_failed_gives_way_to_a_replica_with_the_rows() -> None:
    nodes = [Member(ONE, role=PlacementRole.FAILED), *(Member(NodeId(number)) for number in range(2, 5))]
    placed = [PartitionPlacement(TopicId(1), PartitionId(1), (ONE, TWO, THREE))]
    (move,) = clear(nodes, placed).moves
    assert move == Move(TopicId(1), PartitionId(1), (ONE, TWO, THREE), (TWO, THREE, FOUR))
    assert move.changes_owner
    stuck = clear(nodes[:3], placed)
    assert stuck == Plan(
        (Move(TopicId(1), PartitionId(1), (ONE, TWO, THREE), (TWO, ONE, THREE)),), (PartitionId(1),)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(3, 8), st.integers(1, 40))
def test_owners_are_evened_as_far_as_the_replicas_allow_by_hand_overs_alone(
    seed: int, count: int, parts: int
) -> None:
    """Against the best that a search over all flows gives: nobody can be brought nearer to the share."""
    random = Random(seed)
    nodes = members(count)
    placed = [
        PartitionPlacement(
            TopicId(1), PartitionId(part), tuple(NodeId(n) for n in random.sample(range(1, count + 1), 3))
        )
        for part in range(parts)
    ]
    after = balance_owners(nodes, placed)
    assert all(set(old.nodes) == set(new.nodes) for old, new in zip(placed, after, strict=True))
    assert balance_owners(nodes, after) == after
    most = max(owned(after, nodes).values())
    assert not owners_fit(placed, most - 1) or most <= -(-parts // count)


def owners_fit(placed: Sequence[PartitionPlacement], most: int) -> bool:
    """Whether every partition can have an owner with nobody owning more than `most` (Kuhn's matching)."""
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


# ---- new topics -------------------------------------------------------------------------------------


def test_six_partitions_on_three_nodes_are_two_each_in_turn() -> None:
    """F18, J3."""
    assert place(members(3), 6, 1, owned_counts={}, replica_counts={}) == ((1,), (2,), (3,), (1,), (2,), (3,))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 4),
    st.lists(st.sampled_from([50, 100, 300]), min_size=1),
)
def test_a_new_topic_is_within_one_by_weight_and_in_all_zones_that_it_can_be_in(
    count: int, parts: int, zones: int, weights: list[int]
) -> None:
    nodes = members(count, zones=zones, weights=weights)
    placed = topics(nodes, [parts])
    assert within_one(loads(placed, nodes), nodes)
    even = members(count, zones=zones)
    used = {even[part.nodes[0] - 1].zone for part in topics(even, [parts])}
    assert len(used) == min(parts, len(zone_sizes(even)))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([3, 5]), st.integers(0, 6), st.integers(1, 40), st.integers(1, 6))
def test_replicas_of_a_new_topic_are_level_over_zones_and_owners_within_one(
    replication: int, more: int, parts: int, zones: int
) -> None:
    nodes = members(replication + more, zones=zones)
    placed = topics(nodes, [parts], replication)
    assert all(len(set(part.nodes)) == replication for part in placed)
    assert all(is_level(part, nodes) for part in placed)
    sizes = zone_sizes(nodes)
    if len(set(sizes.values())) == 1:
        assert within_one(loads(placed, nodes), nodes)
        assert within_one(owned(placed, nodes), nodes)


def test_a_topic_is_placed_on_the_ring_of_a_state_where_there_is_least() -> None:
    state = cluster(3)
    five = max(state.nodes)
    assert place_in(state, 6, 1) == ((ONE,), (TWO,), (five,), (ONE,), (TWO,), (five,))
    assert place_in(state, 4, 1, but={TWO}) == ((ONE,), (five,), (ONE,), (five,))
    with pytest.raises(TooFewNodesError):
        place_in(state, 1, 1, but={ONE, TWO, five})
    state, _ = apply(state, entry(20, create(partitions=2, nodes=((1,), (2,)))))
    assert place_in(state, 1, 1) == ((five,),)
    state, _ = apply(state, entry(21, SetNode(node=five, draining=True)))
    assert set(place_in(state, 4, 1)) == {(ONE,), (TWO,)}
    roles = [PlacementRole.TAKES, PlacementRole.TAKES, PlacementRole.LEAVES]
    assert [member.role for member in members_of(state)] == roles
    assert [part.nodes for part in placements_of(state)] == [(ONE,), (TWO,)]
    with pytest.raises(TooFewNodesError, match="2 live nodes; its first table waits for 3"):
        place_in(cluster(2, nodes_min=3), 1, 1)


def test_topics_after_each_other_even_each_other_out() -> None:
    for replication in (1, 3):
        placed = topics(members(6), [4] * 9, replication)
        assert within_one(loads(placed, members(6)), members(6))
        assert within_one(owned(placed, members(6)), members(6))


def test_drained_failed_and_outer_nodes_get_nothing_and_too_few_are_refused() -> None:
    nodes = [Member(ONE), Member(TWO, role=PlacementRole.LEAVES), Member(THREE, role=PlacementRole.FAILED)]
    assert place(nodes, 3, 1, owned_counts={}, replica_counts={}) == ((1,), (1,), (1,))
    with pytest.raises(TooFewNodesError, match="replication 3 needs so many nodes, 1 of 3"):
        place(nodes, 3, 3, owned_counts={}, replica_counts={})


# ---- the small parts --------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 60)), min_size=1, max_size=7),
)
def test_portions_add_up_keep_their_bounds_and_are_within_one_of_the_share(
    total: int, takers_: list[tuple[int, int, int]]
) -> None:
    weights = {number: weight for number, (weight, _, _) in enumerate(takers_)}
    least = {number: low for number, (_, low, _) in enumerate(takers_)}
    most = {number: low + more for number, (_, low, more) in enumerate(takers_)}
    if not sum(least.values()) <= total <= sum(most.values()):
        with pytest.raises(ValueError, match="exceeds the bounds"):
            portions(total, weights, prefer=lambda key, _: key, least=least, most=most)
        return
    portion = portions(total, weights, prefer=lambda key, _: key, least=least, most=most)
    assert sum(portion.values()) == total
    assert all(least[key] <= portion[key] <= most[key] for key in weights)
    free = [key for key in weights if least[key] < portion[key] < most[key]]
    for one in free:
        for other in free:
            assert (portion[one] - 1) * weights[other] < (portion[other] + 1) * weights[one]


def test_levels_fill_zones_evenly_as_far_as_they_have_nodes() -> None:
    assert replicas_by_zone({"a": 3, "b": 3}, 3) == ({"a": 1, "b": 1}, 1)
    assert replicas_by_zone({"a": 1, "b": 4}, 5) == ({"a": 1, "b": 4}, 0)
    assert replicas_by_zone({"a": 1, "b": 1, "c": 1, "d": 1}, 3) == ({"a": 0, "b": 0, "c": 0, "d": 0}, 3)

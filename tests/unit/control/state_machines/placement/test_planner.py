"""The planner's laws: minimal moves, within one, spread before balance, no move twice, nothing else."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.state_machines.placement.planner import Move, Plan, balance, clear, fill
from ringfence.control.state_machines.placement.zones import (
    Member,
    PartitionPlacement,
    PlacementRole,
    eligible_members,
)
from tests.fakes.placements import (
    FOUR,
    ONE,
    THREE,
    TWO,
    carried_out,
    check_sound,
    clusters,
    is_level,
    loads,
    members,
    owned,
    topics,
    within_one,
)


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

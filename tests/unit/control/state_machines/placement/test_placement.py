"""Replicas of a new topic: within one by weight, spread over zones, on nodes that take any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.node_commands import SetNode
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.placement.placement import TooFewNodesError, place, place_in
from ringfence.control.state_machines.placement.zones import (
    Member,
    PlacementRole,
    members_of,
    placements_of,
    zone_sizes,
)
from ringfence.control.state_machines.rebalance.loads import Pressure
from tests.fakes.metadata_commands import cluster, create, entry
from tests.fakes.placements import ONE, THREE, TWO, is_level, loads, members, owned, topics, within_one


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


def test_of_nodes_with_as_many_partitions_the_one_with_the_least_pressure_gets_the_next() -> None:
    """S6: a full disk first, then a lag, then the load; counts stay within one."""
    nodes = members(4)
    pressures = {
        nodes[0].node: Pressure(is_full=True),
        nodes[1].node: Pressure(lags=True),
        nodes[2].node: Pressure(bytes_s=9),
        nodes[3].node: Pressure(bytes_s=4),
    }
    taken = [
        place(nodes, count, 1, owned_counts={}, replica_counts={}, pressures=pressures)
        for count in (1, 2, 3, 4)
    ]
    assert taken[-1] == tuple((nodes[number].node,) for number in (3, 2, 1, 0))
    assert [{one for (one,) in placed} for placed in taken] == [
        {nodes[number].node for number in chosen} for chosen in ((3,), (3, 2), (3, 2, 1), (3, 2, 1, 0))
    ]
    [three] = place(nodes, 1, 3, owned_counts={}, replica_counts={}, pressures=pressures)
    assert nodes[0].node not in three
    counts = {nodes[3].node: 5, nodes[2].node: 5, nodes[1].node: 5}
    busy = place(nodes, 1, 1, owned_counts=counts, replica_counts=counts, pressures=pressures)
    assert busy == ((nodes[0].node,),), "numbers come first"

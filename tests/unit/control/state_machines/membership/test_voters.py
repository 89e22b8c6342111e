"""Voters: 1, 3 or 5, spread over zones, replaced when they fail, one step at a time."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.nodes import Life, NodeRecord, Vote
from ringfence.control.model.rebalances import Action, Run, RunState
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.membership.voters import ChangeVoters, TransferLeadership, next_change
from tests.fakes.metadata_commands import cluster

Change = ChangeVoters | TransferLeadership | None


def members(zones: str, **config: int) -> MetadataState:
    """Nodes 1, 2, 3 ... in the zones that the letters name."""
    plain = cluster(1)
    first = plain.nodes[NodeId(1)]
    nodes = {
        NodeId(number): replace(first, node=NodeId(number), store=bytes([number]) * 16, zone=zone)
        for number, zone in enumerate(zones, start=1)
    }
    return replace(plain, nodes=nodes, config=config)


def with_node(state: MetadataState, number: int, **fields: object) -> MetadataState:
    node: NodeRecord = replace(state.nodes[NodeId(number)], **fields)
    return replace(state, nodes={**state.nodes, node.node: node})


def change(
    state: MetadataState, voters: AbstractSet[int], learners: AbstractSet[int] = frozenset(), leader: int = 1
) -> Change:
    return next_change(
        state,
        voters={NodeId(node) for node in voters},
        caught_up={NodeId(node) for node in learners},
        leader=NodeId(leader),
    )


def to(*nodes: int) -> ChangeVoters:
    return ChangeVoters(frozenset(NodeId(node) for node in nodes))


def settled(state: MetadataState, voters: set[int], leader: int = 1) -> list[set[int]]:
    """The voters after each step, everybody caught up, until nothing changes."""
    path: list[set[int]] = []
    for _ in range(20):
        step = change(state, voters, set(state.nodes) - voters, leader)
        if step is None:
            return path
        if isinstance(step, TransferLeadership):
            leader = step.to
        else:
            voters = set(step.voters)
            path.append(voters)
    raise AssertionError(f"the voters never settle: {path}")


def test_one_node_votes_alone_and_two_are_no_better() -> None:
    assert change(members("a"), {1}) is None
    assert change(members("ab"), {1}, {2}) is None


def test_three_vote_as_soon_as_two_learners_have_caught_up() -> None:
    state = members("aaa")
    assert change(state, {1}, {2}) is None
    assert change(state, {1}, {2, 3}) == to(1, 2, 3)


def test_five_vote_by_way_of_three_and_never_more() -> None:
    assert settled(members("aaaaaaa"), {1}) == [{1, 2, 3}, {1, 2, 3, 4, 5}]
    assert settled(members("aaaaaaa", voters_max=3), {1}) == [{1, 2, 3}]
    assert settled(members("aaaaaaa", voters_max=3), {1, 2, 3, 4, 5}) == [{1, 2, 3}]


def test_voters_are_spread_over_zones() -> None:
    assert settled(members("aaabc", voters_max=3), {1}) == [{1, 4, 5}]
    assert settled(members("aaabc", voters_max=3), {1, 2, 3}) == [{1, 2, 4}, {1, 4, 5}]
    assert change(members("aabbc", voters_max=3), {1, 3, 5}, {2, 4}) is None


def test_a_dead_nodes_zone_is_none() -> None:
    state = with_node(members("aaab", voters_max=3), 4, life=Life.FAILED)
    assert change(state, {1, 2, 3}, {4}) is None


def test_a_failed_voter_is_replaced_by_a_learner_that_has_caught_up_and_else_stays() -> None:
    state = with_node(members("aaaa", voters_max=3), 2, life=Life.FAILED)
    assert change(state, {1, 2, 3}) is None
    assert change(state, {1, 2, 3}, {4}) == to(1, 3, 4)


def test_failures_shrink_nothing() -> None:
    state = with_node(with_node(members("aaaaa"), 4, life=Life.FAILED), 5, life=Life.FAILED)
    assert change(state, {1, 2, 3, 4, 5}) is None


def test_a_removed_or_unwanted_voter_leaves_and_an_even_number_never_stays() -> None:
    state = members("aaaaa")
    gone = replace(state, nodes={node: record for node, record in state.nodes.items() if node != 5})
    assert change(gone, {1, 2, 3, 4, 5}) == to(1, 2, 3)
    never = with_node(members("aaaa", voters_max=3), 3, vote=Vote.NEVER)
    assert change(never, {1, 2, 3}, {4}) == to(1, 2, 4)
    assert change(members("aaaa"), {1, 2}, {3, 4}) == to(1, 2, 3)


def test_who_is_wanted_votes() -> None:
    state = with_node(members("aaaab", voters_max=3), 4, vote=Vote.ALWAYS)
    assert settled(state, {1, 2, 5}) == [{1, 4, 5}]
    assert change(state, {1, 2, 5}) is None


def test_a_drained_voter_gives_way_but_votes_while_nobody_else_can() -> None:
    state = with_node(members("aaaa", voters_max=3), 2, draining=True)
    assert change(state, {1, 2, 3}) is None
    assert change(state, {1, 2, 3}, {4}) == to(1, 3, 4)


def test_a_drained_leader_leads_no_more_where_another_voter_can() -> None:
    state = with_node(members("aaa"), 1, draining=True)
    assert change(state, {1, 2, 3}, leader=1) == TransferLeadership(NodeId(2))
    assert change(state, {1, 2, 3}, leader=2) is None
    moving = replace(state, rebalance=Run(run=Index(9), action=Action.DRAIN, state=RunState.RUNNING))
    assert change(moving, {1, 2, 3}, leader=1) is None, "the run comes first"
    silent = with_node(state, 2, life=Life.FAILED)
    assert change(silent, {1, 2, 3}, leader=1) == TransferLeadership(NodeId(3))
    everybody = with_node(with_node(state, 2, draining=True), 3, draining=True)
    assert change(everybody, {1, 2, 3}, leader=1) is None
    assert change(with_node(members("a"), 1, draining=True), {1}) is None


def test_the_leader_hands_over_before_it_leaves() -> None:
    state = with_node(members("aaaa", voters_max=3), 1, vote=Vote.NEVER)
    assert change(state, {1, 2, 3}, {4}, leader=1) == TransferLeadership(NodeId(2))
    assert change(state, {1, 2, 3}, {4}, leader=2) == to(2, 3, 4)
    alone = with_node(members("aa"), 1, vote=Vote.NEVER)
    assert settled(alone, {1}) == [{1, 2}, {2}]


def test_the_same_question_has_the_same_answer_whatever_the_order_of_nodes() -> None:
    state = members("aabbc", voters_max=3)
    turned = replace(state, nodes=dict(reversed(state.nodes.items())))
    assert change(state, {1, 2}, {3, 4, 5}) == change(turned, {2, 1}, {5, 4, 3})

"""Majorities of a configuration and of both halves of a joint one, counted by hand."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ringfence.control.consensus import quorum
from ringfence.control.consensus.quorum import VoteResult

IDS = st.frozensets(st.integers(1, 7), max_size=5)


def by_hand(members: frozenset[int], acknowledged: dict[int, int]) -> int:
    """The best that any group of more than half has in common."""
    if not members:
        return quorum.INFINITY
    size = len(members) // 2 + 1
    return max(min(acknowledged.get(m, 0) for m in group) for group in combinations(members, size))


@given(IDS, IDS, st.dictionaries(st.integers(1, 7), st.integers(0, 9)))
def test_committed_is_what_some_majority_of_each_half_has(
    incoming: frozenset[int], outgoing: frozenset[int], acknowledged: dict[int, int]
) -> None:
    expected = min(by_hand(incoming, acknowledged), by_hand(outgoing, acknowledged))
    assert quorum.joint_committed(incoming, outgoing, acknowledged) == expected
    assert quorum.joint_committed(outgoing, incoming, acknowledged) == expected


@given(IDS, IDS, st.dictionaries(st.integers(1, 7), st.booleans()))
def test_a_vote_is_won_or_lost_only_when_no_answer_to_come_can_change_it(
    incoming: frozenset[int], outgoing: frozenset[int], votes: dict[int, bool]
) -> None:
    def won(yes: set[int]) -> bool:
        return all(not half or len(half & yes) * 2 > len(half) for half in (incoming, outgoing))

    yes = {member for member, vote in votes.items() if vote}
    silent = (incoming | outgoing) - votes.keys()
    result = quorum.joint_vote(incoming, outgoing, votes)
    assert (result is VoteResult.WON) == won(yes)
    if result is VoteResult.LOST:
        assert not won(yes | silent)

"""Compute the decision of a majority, or of two majorities together. Pure arithmetic over ids.

A joint configuration decides only if both of its halves do (Ongaro, Raft thesis, 4.3). An empty half agrees
to every decision, so a configuration that is not joint is a joint one with an empty second half.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final

# The index that an empty majority has committed: an empty half never blocks a commit.
INFINITY: Final = (1 << 64) - 1


class VoteResult(enum.IntEnum):
    """The result of a vote so far."""

    PENDING = 1
    LOST = 2
    WON = 3


def majority(count: int) -> int:
    """The least number of `count` members such that two groups of it always overlap."""
    return count // 2 + 1


def majority_committed(members: Collection[int], acknowledged: Mapping[int, int]) -> int:
    """The greatest index that a majority has acknowledged. Members missing in `acknowledged` count as 0."""
    count = len(members)
    if count == 0:
        return INFINITY
    indexes = sorted([acknowledged.get(member, 0) for member in members])
    return indexes[count - majority(count)]


def joint_committed(
    incoming: Collection[int], outgoing: Collection[int], acknowledged: Mapping[int, int]
) -> int:
    """The greatest index that both majorities have acknowledged."""
    first = majority_committed(incoming, acknowledged)
    return min(first, majority_committed(outgoing, acknowledged)) if outgoing else first


def majority_vote(members: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """The result of a vote among `members`. Members missing in `votes` have not answered."""
    if not members:
        return VoteResult.WON
    yes = sum(votes.get(member, False) for member in members)
    open_count = sum(member not in votes for member in members)
    needed = majority(len(members))
    if yes >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if yes + open_count >= needed else VoteResult.LOST


def joint_vote(incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Won needs both halves; one half is enough to lose."""
    first, second = majority_vote(incoming, votes), majority_vote(outgoing, votes)
    if first is second:
        return first
    return VoteResult.LOST if VoteResult.LOST in (first, second) else VoteResult.PENDING

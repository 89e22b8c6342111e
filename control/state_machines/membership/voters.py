"""Choose the voters of the metadata log: 1, 3 or 5 nodes; all other nodes are learners.

A pure decision: the next change, or none. Preferred are, in this order: nodes with `Vote.ALWAYS`, live
ones, ones that are not drained, zones without a voter, present voters, the leader. A live learner that has
caught up replaces a failed voter. Without such a learner the failed voter stays, since fewer voters
survive fewer failures. Each step is one swap, two more voters or two fewer, by joint consensus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life, NodeRecord, Vote
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit

# Voters added or removed by one step: an odd number becomes the next odd one.
STEP: Final = 2


class ChangeVoters(NamedTuple):
    """The new voters; former voters become learners if they are still members."""

    voters: frozenset[NodeId]


class TransferLeadership(NamedTuple):
    """The leader shall not vote any more, or is drained: another node leads, and continues the change."""

    to: NodeId


def next_change(
    state: MetadataState, *, voters: AbstractSet[NodeId], caught_up: AbstractSet[NodeId], leader: NodeId
) -> ChangeVoters | TransferLeadership | None:
    """The leader's next step towards the right voters; None if they are right.

    Args:
        state: the members, with their lives and settings.
        voters: the configuration in force. Call only without an open change.
        caught_up: learners that have all but the newest entries.
        leader: the node that asks.
    """
    chosen, spare = _ranked(state, voters, caught_up, leader)
    target = set(chosen)
    order = [*chosen, *spare]
    after = _step(set(voters), target, order) if target and target != voters else set(voters)
    if after == voters:
        return _transfer_from_drained(state, [node for node in order if node in voters], leader)
    if leader in after:
        return ChangeVoters(frozenset(after))
    successors = [node for node in order if node in after and node in voters and _is_live(state, node)]
    return TransferLeadership(successors[0]) if successors else ChangeVoters(frozenset({*after, leader}))


def _transfer_from_drained(
    state: MetadataState, order: list[NodeId], leader: NodeId
) -> TransferLeadership | None:
    """Transfer the leadership away from a drained leader, which may have to stay a voter.

    Not during a run: the next leader would have to ask for the progress of each move again.
    """
    record = state.nodes.get(leader)
    if record is None or not record.draining or state.rebalance.is_active:
        return None
    successors = [node for node in order if _is_live(state, node) and not state.nodes[node].draining]
    return TransferLeadership(successors[0]) if successors else None


def _ranked(
    state: MetadataState, voters: AbstractSet[NodeId], caught_up: AbstractSet[NodeId], leader: NodeId
) -> tuple[list[NodeId], list[NodeId]]:
    """The nodes that should vote, and present voters that need not, each with the best choice first."""
    able = {
        number: node
        for number, node in state.nodes.items()
        if node.vote is not Vote.NEVER
        and (number in voters or (number in caught_up and node.life is Life.LIVE))
    }
    zones: Counter[str] = Counter()
    order: list[NodeId] = []

    def key(number: NodeId) -> tuple[bool | int, ...]:
        node: NodeRecord = able[number]
        return (
            node.vote is not Vote.ALWAYS,
            node.life is not Life.LIVE,
            node.draining,
            zones[node.zone],
            number not in voters,
            number != leader,
            number,
        )

    votes = _odd(min(len(able), limit(state, "voters_max")))
    while len(order) < votes:
        best = min(able, key=key)
        # The zone of a failed node does not count.
        zones[able[best].zone] += able[best].life is Life.LIVE
        order.append(best)
        del able[best]
    return order, sorted((number for number in able if number in voters), key=key)


def _step(voters: set[NodeId], target: set[NodeId], order: list[NodeId]) -> set[NodeId]:
    """The voters after one step towards `target`."""
    joining = [node for node in order if node in target - voters]
    place = {node: at for at, node in enumerate(order)}
    leaving = sorted(voters - target, key=lambda node: (-place.get(node, len(order)), node))
    if len(target) > len(voters):
        return voters | set(joining[: STEP - (len(voters) + 1) % STEP])
    if len(target) < len(voters):
        return voters - set(leaving[: STEP - (len(voters) + 1) % STEP])
    return (voters | set(joining[:1])) - set(leaving[:1])


def _odd(count: int) -> int:
    return count if count % 2 else max(count - 1, 0)


def _is_live(state: MetadataState, node: NodeId) -> bool:
    return state.nodes[node].life is Life.LIVE

"""Plan moves from the current placement to a balanced one. Pure and deterministic.

    balance(members, placed)       clear, and no node holds more than its share
    fill(members, placed, node)    a new node takes its share; no move between the others
    clear(members, placed)         drained nodes are emptied, replicas of failed ones replaced; no other move

Rules, each a property test: a plan names every partition that changes and no other. Its moves are as few
as `sum(max(0, load - target))`. Afterwards loads are the floor or the ceiling of each node's share by
weight, as far as the spread over zones allows it (spread comes first). Planning again gives no moves. The
order of the input does not matter. A failed node with the only replica keeps it: no other node has the
rows (F18).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.state_machines.placement.leader_balance import balance_owners
from ringfence.control.state_machines.placement.replica_round import Round, disorder
from ringfence.control.state_machines.placement.zones import Member, PartitionPlacement, eligible_members

# With several replicas a round may make moves of the next one possible; each must leave less disorder than
# before.
ROUNDS_MAX: Final = 8


class Move(NamedTuple):
    """A partition that changes: nodes of its replicas before and after, the owner first."""

    topic: TopicId
    partition: PartitionId
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]

    @property
    def changes_owner(self) -> bool:
        return self.before[0] != self.after[0]


class Plan(NamedTuple):
    """Moves ordered by id. `stranded`: partitions with a replica that no node can take."""

    moves: tuple[Move, ...]
    stranded: tuple[PartitionId, ...] = ()


def balance(members: Sequence[Member], placements: Iterable[PartitionPlacement]) -> Plan:
    """Clear, then balance the loads of all nodes that take partitions, then their owned partitions."""
    before = sorted(placements)
    after = _rounds(members, before, lambda current: Round(members, current).balance())
    return _plan(members, before, balance_owners(members, after))


def fill(members: Sequence[Member], placements: Iterable[PartitionPlacement], node: NodeId) -> Plan:
    """Moves to `node` alone, from the nodes that are most above their share.

    Raises:
        ValueError: `node` does not take partitions.
    """
    if all(member.node != node for member in eligible_members(members)):
        raise ValueError(f"node {node} takes no partitions: it is not in the ring, drained, or failed")
    before = sorted(placements)
    return _plan(members, before, Round(members, before).fill(node))


def clear(members: Sequence[Member], placements: Iterable[PartitionPlacement]) -> Plan:
    """Moves away from nodes that leave, and new replicas for failed ones, to the least loaded nodes."""
    before = sorted(placements)
    return _plan(members, before, _rounds(members, before, lambda current: Round(members, current).clear()))


def _rounds(
    members: Sequence[Member],
    before: list[PartitionPlacement],
    run_round: Callable[[list[PartitionPlacement]], list[PartitionPlacement]],
) -> list[PartitionPlacement]:
    if all(len(part.nodes) == 1 for part in before):
        return run_round(before)  # exact in one round: any replica may go to any node
    current, least = before, disorder(members, before)
    for _ in range(ROUNDS_MAX):
        after = run_round(current)
        left = disorder(members, after)
        if left >= least:
            return current
        current, least = after, left
    return current


def _plan(
    members: Sequence[Member], before: Sequence[PartitionPlacement], after: Sequence[PartitionPlacement]
) -> Plan:
    moves = tuple(
        Move(old.topic, old.partition, old.nodes, new.nodes)
        for old, new in zip(before, after, strict=True)
        if old.nodes != new.nodes
    )
    able = {member.node for member in eligible_members(members)}
    stranded = tuple(part.partition for part in after if not able.issuperset(part.nodes))
    return Plan(moves, stranded)

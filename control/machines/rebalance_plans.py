"""What a rebalance would move: the preview, and the start that it becomes. Pure and deterministic.

add_node      the node takes its share, nothing moves between the others (whether it is in the ring or not)
remove_node   the node's partitions go, nothing else; the ring follows at the end
drain         the same, and the node stays in the ring
balance       nobody holds more than its share
move          exactly the moves that were chosen
reverse       back to where partitions were before their last planned change, while that is kept: the chosen
              ones, or all of the newest rebalance of which anything is kept
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence.control.machines.config import limit
from ringfence.control.machines.metadata_rebalances import MOVES_MAX, validate
from ringfence.control.machines.planner import Plan, balance, clear, fill
from ringfence.control.machines.refusals import conflict
from ringfence.control.machines.spread import Member, Part, members_of, placed_of
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.rebalance_commands import StartRebalance
from ringfence.control.model.rebalances import LEAVING, Action, PlannedMove
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState

NO_NODE: Final = NodeId(0)


class Preview(NamedTuple):
    """A start that may be proposed, or why it would be refused. `stranded`: partitions that cannot go."""

    command: StartRebalance
    refusal: Refused | None = None
    stranded: tuple[PartitionId, ...] = ()


class Chosen(NamedTuple):
    """A move that somebody chose: nodes of the replicas afterwards, the owner first."""

    partition: PartitionId
    after: tuple[NodeId, ...]


def preview(
    state: MetadataState,
    action: Action,
    node: NodeId = NO_NODE,
    chosen: Sequence[Chosen] = (),
    why: str = "",
) -> Preview:
    """The start of a rebalance as it would be proposed now."""
    empty = StartRebalance(action=action, node=node, why=why)
    refusal = validate(state, empty)
    if refusal is not None:
        return Preview(empty, refusal)
    moves: tuple[PlannedMove, ...]
    stranded: tuple[PartitionId, ...] = ()
    if action is Action.MOVE:
        moves = _chosen(state, chosen)
    elif action is Action.REVERSE:
        moves = _reversed(state, [number for number, _ in chosen])
        if not moves:
            why_not = f"nothing is kept to reverse; `reverse_hold_s` is {limit(state, 'reverse_hold_s')}"
            return Preview(empty, conflict(why_not))
    else:
        plan = _plan(state, action, node)
        found = [PlannedMove(*move) for move in plan.moves]
        # One run is limited; the next one finds the rest.
        moves, stranded = tuple(found[:MOVES_MAX]), plan.stranded if action in LEAVING else ()
    command = StartRebalance(action=action, node=node, moves=moves, why=why)
    return Preview(command, validate(state, command), stranded)


def _plan(state: MetadataState, action: Action, node: NodeId) -> Plan:
    members, placed = members_of(state), placed_of(state)
    if action is Action.ADD_NODE:
        return fill([_as(member, node, Part.TAKES) for member in members], placed, node)
    if action in LEAVING:
        # Only what this node holds: replicas of failed nodes are another rebalance's.
        leaving = [_as(member, node, Part.LEAVES) for member in members]
        held = [part for part in placed if node in part.nodes]
        others = [part for part in placed if node not in part.nodes]
        plan = clear(leaving, [*held, *others])
        return Plan(
            tuple(move for move in plan.moves if node in move.before),
            tuple(part for part in plan.stranded if any(part == own.partition for own in held)),
        )
    return balance(members, placed)


def _reversed(state: MetadataState, chosen: Sequence[PartitionId]) -> tuple[PlannedMove, ...]:
    """In the order of the partitions; of a chosen one that is not kept the machine says so."""
    newest = max((kept.run for kept in state.kept.values()), default=0)
    numbers = chosen or sorted(number for number, kept in state.kept.items() if kept.run == newest)
    now = {part.partition: part for part in placed_of(state)}
    moves = []
    for number in numbers[:MOVES_MAX]:
        kept, part = state.kept.get(number), now.get(number)
        topic, before = (part.topic, part.nodes) if part is not None else (TopicId(0), (NO_NODE,))
        after = () if kept is None else tuple(place.node for place in kept.before)
        if chosen or before != after:
            moves.append(PlannedMove(topic=topic, partition=number, before=before, after=after))
    return tuple(moves)


def _as(member: Member, node: NodeId, part: Part) -> Member:
    return member._replace(part=part) if member.node == node else member


def _chosen(state: MetadataState, chosen: Sequence[Chosen]) -> tuple[PlannedMove, ...]:
    """In the order in which they were chosen; what is unknown is refused by the machine, by its number."""
    now = {part.partition: part for part in placed_of(state)}
    moves = []
    for partition, after in chosen:
        part = now.get(partition)
        topic, before = (part.topic, part.nodes) if part is not None else (TopicId(0), (NO_NODE,))
        moves.append(PlannedMove(topic=topic, partition=partition, before=before, after=after))
    return tuple(moves)

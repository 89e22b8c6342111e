"""Plan the moves of a rebalance: the preview, and the start that it becomes. Pure and deterministic.

    add_node      the node takes its share, no move between the others (the node may be in the ring or not)
    remove_node   the node's partitions move away, no others; the ring follows at the end
    drain         the same, and the node stays in the ring
    balance       no node holds more than its share
    move          exactly the chosen moves
    reverse       back to the placement before each partition's last planned change, while that is kept: of
                  the chosen partitions, or of all partitions of the newest rebalance with kept copies

For remove_node and drain, `left_out` plans two kinds of partitions later: those with an open change of
owner or replicas, once it has ended, and those that only a failed node could take, once it is back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignments import Change
from ringfence.control.model.rebalance_commands import StartRebalance
from ringfence.control.model.rebalances import LEAVING, Action, PlannedMove, Run, RunState
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.reassignment_rules import assignment_of
from ringfence.control.state_machines.metadata.rebalances import MOVES_MAX, validate
from ringfence.control.state_machines.metadata.refusals import conflict
from ringfence.control.state_machines.metadata.replica_counts import replicas_of
from ringfence.control.state_machines.placement.planner import Plan, balance, clear, fill
from ringfence.control.state_machines.placement.zones import Member, PlacementRole, members_of, placements_of

# Node of an action without a node.
NO_NODE: Final = NodeId(0)


class Preview(NamedTuple):
    """A start that may be proposed, or its refusal.

    `stranded` are partitions that no node can take; `waits` are those that are planned once another change
    has ended.
    """

    command: StartRebalance
    refusal: Refused | None = None
    stranded: tuple[PartitionId, ...] = ()
    waits: tuple[PartitionId, ...] = ()


class LeftOut(NamedTuple):
    """Partitions that are left on a node that is being emptied: moves that are possible now, changes and
    nodes to wait for, and partitions that no node may take.
    """

    moves: tuple[PlannedMove, ...] = ()
    changes: tuple[Change, ...] = ()
    nodes: tuple[NodeId, ...] = ()
    stranded: tuple[PartitionId, ...] = ()

    @property
    def waits(self) -> bool:
        return bool(self.changes or self.nodes)


class ChosenMove(NamedTuple):
    """A move that an operator chose: nodes of the replicas afterwards, the owner first."""

    partition: PartitionId
    after: tuple[NodeId, ...]


def preview(
    state: MetadataState,
    action: Action,
    node: NodeId = NO_NODE,
    chosen: Sequence[ChosenMove] = (),
    why: str = "",
) -> Preview:
    """The start of a rebalance as it would be proposed now."""
    empty = StartRebalance(action=action, node=node, why=why)
    refusal = validate(state, empty)
    if refusal is not None:
        return Preview(empty, refusal)
    moves: tuple[PlannedMove, ...]
    stranded: tuple[PartitionId, ...] = ()
    waits: tuple[PartitionId, ...] = ()
    if action is Action.MOVE:
        moves = _chosen(state, chosen)
    elif action is Action.REVERSE:
        moves = _reversed(state, [number for number, _ in chosen])
        if not moves:
            why_not = f"no change can be reversed; `reverse_hold_s` is {limit(state, 'reverse_hold_s')}"
            return Preview(empty, conflict(why_not))
    else:
        plan = _plan(state, action, node)
        planned = [PlannedMove(*move) for move in plan.moves]
        # A run has at most MOVES_MAX moves; the next run plans the rest.
        moves = tuple(planned[:MOVES_MAX])
        if action in LEAVING:
            stranded, waits = (
                plan.stranded,
                tuple(change.partition for change in _changes_of_plan(state, node)),
            )
    command = StartRebalance(action=action, node=node, moves=moves, why=why)
    return Preview(command, validate(state, command), stranded, waits)


def drain_under_way(state: MetadataState, node: NodeId) -> Run | None:
    """The open run that drains this node and is not being cancelled; another start would repeat it."""
    run = state.rebalance
    is_drain = (run.action, run.node) == (Action.DRAIN, node)
    return run if is_drain and run.state in {RunState.RUNNING, RunState.PAUSED} else None


def left_out(state: MetadataState) -> LeftOut:
    """The partitions that are left on the node that the open run empties."""
    run = state.rebalance
    changes = tuple(_changes_of_plan(state, run.node))
    if not replicas_of(state, run.node):
        return LeftOut(changes=changes)
    plan = _plan(state, run.action, run.node)
    # If only the ownership can be transferred, a removed node keeps its replica: it is stranded.
    possible = [move for move in plan.moves if run.action is Action.DRAIN or run.node not in move.after]
    replanned = [move for move in possible if move.partition in state.moves]
    more = [move for move in possible if move.partition not in state.moves][: MOVES_MAX - len(state.moves)]
    missing = tuple(
        node
        for node in state.ring.members
        if node != run.node and state.nodes[node].life is not Life.LIVE and not state.nodes[node].draining
    )
    moves = tuple(PlannedMove(*move) for move in (*replanned, *more))
    return LeftOut(moves, changes, missing if plan.stranded else (), plan.stranded)


def _changes_of_plan(state: MetadataState, node: NodeId) -> Iterator[Change]:
    """Changes that may alter the plan for the node once they end, ordered by partition."""
    for _, change in sorted(state.changes.items()):
        places = (*assignment_of(state, change).replicas, *change.adds)
        if not change.is_committed and any(place.node == node for place in places):
            yield change


def _plan(state: MetadataState, action: Action, node: NodeId) -> Plan:
    members, placements = members_of(state), placements_of(state)
    if action is Action.ADD_NODE:
        return fill([_as(member, node, PlacementRole.TAKES) for member in members], placements, node)
    if action in LEAVING:
        # Plan only this node's partitions: replicas of failed nodes belong to another rebalance.
        leaving = [_as(member, node, PlacementRole.LEAVES) for member in members]
        own = [part for part in placements if node in part.nodes]
        others = [part for part in placements if node not in part.nodes]
        plan = clear(leaving, [*own, *others])
        settled = {part.partition for part in own} - {
            change.partition for change in _changes_of_plan(state, node)
        }
        return Plan(
            tuple(move for move in plan.moves if move.partition in settled),
            tuple(part for part in plan.stranded if part in settled),
        )
    return balance(members, placements)


def _reversed(state: MetadataState, chosen: Sequence[PartitionId]) -> tuple[PlannedMove, ...]:
    """Moves ordered by partition. If a chosen partition has no kept copy, `validate` refuses its move."""
    newest = max((kept.run for kept in state.kept.values()), default=0)
    numbers = chosen or sorted(number for number, kept in state.kept.items() if kept.run == newest)
    now = {part.partition: part for part in placements_of(state)}
    moves = []
    for number in numbers[:MOVES_MAX]:
        kept, part = state.kept.get(number), now.get(number)
        topic, before = (part.topic, part.nodes) if part is not None else (TopicId(0), (NO_NODE,))
        after = () if kept is None else tuple(place.node for place in kept.before)
        if chosen or before != after:
            moves.append(PlannedMove(topic=topic, partition=number, before=before, after=after))
    return tuple(moves)


def _as(member: Member, node: NodeId, role: PlacementRole) -> Member:
    return member._replace(role=role) if member.node == node else member


def _chosen(state: MetadataState, chosen: Sequence[ChosenMove]) -> tuple[PlannedMove, ...]:
    """Moves in the given order. For an unknown partition, `validate` returns the refusal with its number."""
    now = {part.partition: part for part in placements_of(state)}
    moves = []
    for partition, after in chosen:
        part = now.get(partition)
        topic, before = (part.topic, part.nodes) if part is not None else (TopicId(0), (NO_NODE,))
        moves.append(PlannedMove(topic=topic, partition=partition, before=before, after=after))
    return tuple(moves)

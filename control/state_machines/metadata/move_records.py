"""Records of a run's moves, changed by the same entries as the steps of their changes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.model.reassignments import Change
from ringfence.control.model.rebalances import MOVE_TRIES, MoveRecord, MoveState, PlannedMove, RunState
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale

# Characters of a reason in a record: one state has thousands of records.
ERROR_MAX = 300


def try_fault(state: MetadataState, command: PrepareChange) -> Refused | None:
    """The refusal of a PREPARE that is not the next try of its run's move; None if it is, or belongs to no
    run.
    """
    if command.run == 0:
        return None
    run = state.rebalance
    if run.run != command.run:
        return stale(f"rebalance {command.run} is over, the last one is {run.run}")
    if run.state is not RunState.RUNNING:
        return conflict(f"rebalance {run.run} is {run.state}; no move can begin")
    move = state.moves.get(command.partition)
    if move is None:
        return invalid(f"partition {command.partition} is in no move of rebalance {run.run}")
    if not move.may_start:
        return conflict(
            f"the move of partition {command.partition} is {move.state} after {move.attempts} of "
            f"{MOVE_TRIES} tries; start another rebalance"
        )
    if command.replicas != move.after:
        return invalid(
            f"the move of partition {command.partition} goes to {list(move.after)}, "
            f"not to {list(command.replicas)}"
        )
    return None


def nodes_down(state: MetadataState, move: MoveRecord) -> tuple[NodeId, ...]:
    """Nodes that are down, may return, and are needed for the move to begin: the owner, and the new nodes.

    A drained owner counts as well: it has the rows that shall move.
    """
    owner = state.topics[move.topic].assignments[move.partition].owner.node
    needed = {owner, *_new_places(state, move)}
    return tuple(
        node
        for node in sorted(needed)
        if node in state.nodes
        and state.nodes[node].life is not Life.LIVE
        and (node == owner or not state.nodes[node].draining)
    )


def has_ineligible_node(state: MetadataState, move: MoveRecord) -> bool:
    """Whether one of the move's new nodes takes no partitions, for now or for good."""
    places = _new_places(state, move)
    return any(node not in state.nodes or not state.nodes[node].takes_partitions for node in places)


def _new_places(state: MetadataState, move: MoveRecord) -> set[NodeId]:
    """The move's owner, and its nodes that have no replica yet."""
    assignment = state.topics[move.topic].assignments[move.partition]
    return {move.after[0], *({*move.after} - {place.node for place in assignment.replicas})}


def record_for(state: MetadataState, planned: PlannedMove) -> MoveRecord:
    """The record of a move that a plan adds, or plans again. The number of its tries is kept."""
    record = MoveRecord(
        topic=planned.topic, partition=planned.partition, before=planned.before, after=planned.after
    )
    previous = state.moves.get(planned.partition)
    if previous is None or previous.state is MoveState.COMMITTED:
        return record
    return replace(record, state=previous.state, attempts=previous.attempts, error=previous.error)


def with_try(state: MetadataState, partition: PartitionId) -> tuple[MetadataState, int]:
    """The state with another try of a move, and the try's number."""
    attempts = state.moves[partition].attempts + 1
    return with_move(state, partition, MoveState.DUAL_WRITE, attempts=attempts), attempts


def with_step(state: MetadataState, change: Change, to: MoveState, **values: Any) -> MetadataState:
    """The state in which the move of a change is `to`. A change of an older run has no record."""
    if change.run == 0 or change.run != state.rebalance.run or change.partition not in state.moves:
        return state
    return with_move(state, change.partition, to, **values)


def without_topic_moves(state: MetadataState, topic: Topic) -> MetadataState:
    """End the moves of a deleted topic."""
    for partition in topic.assignments:
        move = state.moves.get(partition)
        if move is not None and move.state is not MoveState.COMMITTED:
            # The text is part of the hashed state: every version of the program must write the same.
            state = with_move(state, partition, MoveState.COMMITTED, error="the topic was deleted")
    return state


def with_move(state: MetadataState, partition: PartitionId, to: MoveState, **values: Any) -> MetadataState:
    if "error" in values:
        values["error"] = values["error"][:ERROR_MAX]
    move = replace(state.moves[partition], state=to, **values)
    return replace(state, moves={**state.moves, partition: move})

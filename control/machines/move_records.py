"""The record of a run's move, as its changes go: kept in the entry that the change's step is in."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ringfence.control.machines.refusals import conflict, invalid, stale
from ringfence.control.model.change_commands import PrepareChange
from ringfence.control.model.changes import Change
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.rebalances import MOVE_TRIES, MoveState, RunState
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic

ERROR_MAX = 300
"""Characters of a reason that a record keeps: thousands of records are one state."""


def try_fault(state: MetadataState, command: PrepareChange) -> Refused | None:
    """Why this is not the next try of a move of the run."""
    if command.run == 0:
        return None
    run = state.rebalance
    if run.run != command.run:
        return stale(f"rebalance {command.run} is over, {run.run} is the last one")
    if run.state is not RunState.RUNNING:
        return conflict(f"rebalance {run.run} is {run.state}; no move begins")
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


def tried(state: MetadataState, partition: PartitionId) -> tuple[MetadataState, int]:
    """Another try begins; the state, and which one it is."""
    attempts = state.moves[partition].attempts + 1
    return with_move(state, partition, MoveState.DUAL_WRITE, attempts=attempts), attempts


def followed(state: MetadataState, change: Change, to: MoveState, **values: Any) -> MetadataState:
    """The move that a change belongs to is `to` now; of an older run nothing is kept."""
    if change.run == 0 or change.run != state.rebalance.run or change.partition not in state.moves:
        return state
    return with_move(state, change.partition, to, **values)


def without_topic(state: MetadataState, topic: Topic) -> MetadataState:
    """Moves of a deleted topic have nothing to do any more."""
    for partition in topic.assignments:
        move = state.moves.get(partition)
        if move is not None and move.state is not MoveState.COMMITTED:
            state = with_move(state, partition, MoveState.COMMITTED, error="the topic was deleted")
    return state


def with_move(state: MetadataState, partition: PartitionId, to: MoveState, **values: Any) -> MetadataState:
    if "error" in values:
        values["error"] = values["error"][:ERROR_MAX]
    move = replace(state.moves[partition], state=to, **values)
    return replace(state, moves={**state.moves, partition: move})

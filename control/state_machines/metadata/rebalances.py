"""Commands of rebalances: start, pause, resume, cancel, amend, and the end of a run together with the ring.

A command that finds the run in the desired state is accepted and changes nothing: repeating it is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from ringfence.control.model.ids import Index, PartitionId
from ringfence.control.model.node_commands import AddToRing, RemoveFromRing
from ringfence.control.model.rebalance_commands import (
    AmendMoves,
    CancelRebalance,
    FailMove,
    FinishRebalance,
    PauseRebalance,
    RebalanceCommand,
    ResumeRebalance,
    StartRebalance,
)
from ringfence.control.model.rebalances import (
    LEAVING,
    MOVE_TRIES,
    Action,
    MoveRecord,
    MoveState,
    Outcome,
    PlannedMove,
    Run,
    RunState,
)
from ringfence.control.model.results import Done, RebalanceStarted, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import counted, listed
from ringfence.control.state_machines.metadata import node_checks, ring_commands
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.move_records import has_ineligible_node, record_for, with_move
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale
from ringfence.control.state_machines.metadata.replica_counts import replication_max
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus

# Moves of one run: an entry of 300 KB. Every step copies the map of their records.
MOVES_MAX = 4_096
# Ended runs in the state.
HISTORY_MAX = 32
# Characters of a run's reason.
WHY_MAX = 1_000


def validate(state: MetadataState, command: RebalanceCommand) -> Refused | None:
    match command:
        case StartRebalance():
            return check_start(state, command)
        case PauseRebalance():
            return _run_fault(state, command.run, {RunState.RUNNING, RunState.PAUSED}, "pause")
        case ResumeRebalance():
            return _run_fault(state, command.run, {RunState.RUNNING, RunState.PAUSED}, "resume")
        case CancelRebalance():
            active = {RunState.RUNNING, RunState.PAUSED, RunState.CANCELLING}
            return _run_fault(state, command.run, active, "cancel")
        case FailMove():
            return check_fail_move(state, command)
        case AmendMoves():
            return check_amend(state, command)
        case FinishRebalance():
            return check_finish(state, command)


def execute(state: MetadataState, command: RebalanceCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case StartRebalance():
            return start(state, command, index)
        case PauseRebalance():
            return _with_run_state(state, RunState.PAUSED), Done()
        case ResumeRebalance():
            return _with_run_state(state, RunState.RUNNING), Done()
        case CancelRebalance():
            return _with_run_state(state, RunState.CANCELLING), Done()
        case FailMove(partition=partition, why=why):
            attempts = state.moves[partition].attempts + 1
            failed = with_move(state, partition, MoveState.FAILED, attempts=attempts, error=why)
            return failed, Done()
        case AmendMoves():
            return amend(state, command), Done()
        case FinishRebalance(why=why):
            return finish(state, index, why), Done()


def check_start(state: MetadataState, command: StartRebalance) -> Refused | None:
    run = state.rebalance
    if run.is_active:
        return conflict(f"rebalance {run.run} ({run.action}) is {run.state}; wait for its end or cancel it")
    if not state.ring.is_formed:
        return ring_commands.too_few_nodes(state, sum(node.takes_partitions for node in state.nodes.values()))
    if len(command.moves) > MOVES_MAX:
        return invalid(f"{len(command.moves)} moves, one run has at most {MOVES_MAX}; use several runs")
    if len(command.why) > WHY_MAX:
        return invalid(f"a reason of {len(command.why)} characters: at most {WHY_MAX}")
    fault = _node_fault(state, command)
    if fault is not None:
        return fault
    if len({move.partition for move in command.moves}) != len(command.moves):
        return invalid("a partition has two moves in one plan")
    return next(
        (fault for move in command.moves if (fault := move_fault(state, command, move)) is not None), None
    )


def _node_fault(state: MetadataState, command: StartRebalance) -> Refused | None:
    if command.action in {Action.BALANCE, Action.MOVE, Action.REVERSE}:
        return None if command.node == 0 else invalid(f"{command.action} takes no node")
    if command.action is Action.ADD_NODE:
        return ring_commands.eligible_fault(state, command.node)
    fault = node_checks.member_fault(state, command.node)
    if fault is not None:
        return fault
    if command.action is Action.DRAIN:
        return _drain_fault(state, command)
    if command.node not in state.ring.members:
        return invalid(f"node {command.node} is not in the ring, version {state.ring.version}")
    left, needed = len(state.ring.members) - 1, max(limit(state, "nodes_min"), replication_max(state))
    if left < needed:
        return invalid(
            f"{left} nodes would be left in the ring, it needs {needed} (`nodes_min`, one for each replica)"
        )
    return None


def _drain_fault(state: MetadataState, command: StartRebalance) -> Refused | None:
    """The refusal of a drain if no other node of the ring can take the partitions of this node, and of new
    topics.

    A failed node counts, although `takes_partitions` is False for it: the run waits for its return.
    """
    others = [node for node in state.ring.members if node != command.node and not state.nodes[node].draining]
    if others:
        return None
    return invalid(
        f"no other node takes partitions, so node {command.node} cannot be emptied: let another node join "
        "or undrain one"
    )


def move_fault(state: MetadataState, command: StartRebalance | Run, move: PlannedMove) -> Refused | None:
    topic = state.topics.get(move.topic)
    assignment = None if topic is None else topic.assignments.get(move.partition)
    if not move.topic:  # an operator's move of an unknown partition
        return invalid(f"there is no partition {move.partition}; `ringfence topic show` lists a topic's")
    if topic is None or assignment is None:
        return stale(f"partition {move.partition} of topic {move.topic} does not exist any more; plan again")
    nodes = {place.node for place in assignment.replicas}
    if set(move.before) != nodes or move.before[0] != assignment.owner.node:
        return stale(
            f"partition {move.partition} is at {sorted(nodes)} with owner {assignment.owner.node}, the plan "
            f"was made for {list(move.before)}; plan again"
        )
    if command.action is Action.REVERSE:
        fault = reverse_fault(state, move)
        if fault is not None:
            return fault
    if len(move.after) != topic.replication or len(set(move.after)) != topic.replication:
        return invalid(
            f"partition {move.partition} has {topic.replication} replicas, not {list(move.after)}: "
            f"name so many different nodes, the owner first (--move {move.partition}:A,B,C)"
        )
    if move.after[0] == move.before[0] and set(move.after) == nodes:
        return invalid(f"partition {move.partition} is already at {sorted(nodes)}; nothing would move")
    # If no other node may take it, a drained node keeps its replica and only transfers its ownership.
    stays = command.action is Action.DRAIN and command.node in nodes and command.node != move.after[0]
    if command.action in LEAVING and command.node in move.after and not stays:
        return invalid(
            f"partition {move.partition} would move to node {command.node}, which is being emptied"
        )
    return next(
        (
            fault
            for node in sorted({*move.after} - nodes)
            if (fault := ring_commands.eligible_fault(state, node)) is not None
        ),
        None,
    )


def reverse_fault(state: MetadataState, move: PlannedMove) -> Refused | None:
    """The refusal of a reversal that does not lead to the placement before the partition's last planned
    change.
    """
    kept = state.kept.get(move.partition)
    if kept is None:
        return conflict(
            f"partition {move.partition} has no change that can be reversed: none has ended in the last "
            f"{limit(state, 'reverse_hold_s')} s (`reverse_hold_s`); move it with action `move`"
        )
    before = tuple(place.node for place in kept.before)
    if move.after != before or any(state.nodes[place.node].store != place.store for place in kept.before):
        return stale(
            f"partition {move.partition} was at {list(before)}, not at {list(move.after)}; plan again"
        )
    return None


def start(state: MetadataState, command: StartRebalance, index: Index) -> tuple[MetadataState, Result]:
    """Start the run. A node that it empties gets no new partitions from this entry on."""
    drained, nodes = False, state.nodes
    if command.action in LEAVING and not nodes[command.node].draining:
        drained, nodes = True, {**nodes, command.node: replace(nodes[command.node], draining=True)}
    run = Run(
        run=index,
        action=command.action,
        node=command.node,
        state=RunState.RUNNING,
        drained=drained,
        why=command.why,
        started_ms=state.time_ms,
    )
    state = replace(state, nodes=nodes, rebalance=run, moves={})
    state = replace(state, moves=_records(state, command.moves))
    return state, RebalanceStarted(run=index)


def _records(state: MetadataState, moves: Iterable[PlannedMove]) -> dict[PartitionId, MoveRecord]:
    return {move.partition: record_for(state, move) for move in moves}


def check_amend(state: MetadataState, command: AmendMoves) -> Refused | None:
    fault = _run_fault(state, command.run, {RunState.RUNNING}, "amend")
    if fault is not None:
        return fault
    run, partitions = state.rebalance, [*(move.partition for move in command.moves), *command.done]
    if not partitions or len(set(partitions)) != len(partitions):
        counts = f"{len(partitions)} amendments of {len(set(partitions))} partitions"
        return invalid(f"{counts}: amend each once, and at least one")
    for partition in command.done:
        move = state.moves.get(partition)
        if move is None or not move.may_start or not is_done(state, move):
            return conflict(f"the move of partition {partition} is not done, or is in no plan")
    if command.moves and run.action not in LEAVING:
        return invalid(f"rebalance {run.run} is a {run.action}; only runs that empty a node take more moves")
    if len({*state.moves, *partitions}) > MOVES_MAX:
        return invalid(f"{len({*state.moves, *partitions})} moves, one run has at most {MOVES_MAX}")
    return next(
        (fault for move in command.moves if (fault := _amend_fault(state, run, move)) is not None), None
    )


def _amend_fault(state: MetadataState, run: Run, move: PlannedMove) -> Refused | None:
    record, change = state.moves.get(move.partition), state.changes.get(move.partition)
    if (
        record is not None
        and record.state is not MoveState.COMMITTED
        and not _may_be_replanned(state, record)
    ):
        return conflict(
            f"the move of partition {move.partition} is {record.state}; it is already in the plan"
        )
    if change is not None and not change.is_committed:
        return conflict(
            f"partition {move.partition} is in change {change.change}; plan it once the change has ended"
        )
    if run.node not in move.before:
        return invalid(f"partition {move.partition} is not on node {run.node}, which is being emptied")
    return move_fault(state, run, move)


def _may_be_replanned(state: MetadataState, record: MoveRecord) -> bool:
    return record.may_start and not is_done(state, record) and has_ineligible_node(state, record)


def amend(state: MetadataState, command: AmendMoves) -> MetadataState:
    for partition in command.done:
        # The text is part of the hashed state: every version of the program must write the same.
        state = with_move(state, partition, MoveState.COMMITTED, error="another change had done it")
    return replace(state, moves={**state.moves, **_records(state, command.moves)})


def is_done(state: MetadataState, move: MoveRecord) -> bool:
    """Whether a move that has not begun has nothing left to do: the partition is at the move's nodes, or is
    off the node that is being emptied.
    """
    run, assignment = state.rebalance, state.topics[move.topic].assignments[move.partition]
    nodes = {place.node for place in assignment.replicas}
    if run.action in LEAVING and run.node not in nodes:
        return True
    return assignment.owner.node == move.after[0] and nodes == set(move.after)


def check_fail_move(state: MetadataState, command: FailMove) -> Refused | None:
    fault = _run_fault(state, command.run, {RunState.RUNNING}, "count a try")
    if fault is not None:
        return fault
    move = state.moves.get(command.partition)
    if move is None or not move.may_start:
        now = "not in the plan" if move is None else f"{move.state} after {move.attempts} tries"
        return conflict(f"the move of partition {command.partition} is {now}; it has no try to count")
    return None


def check_finish(state: MetadataState, command: FinishRebalance) -> Refused | None:
    fault = _run_fault(state, command.run, {RunState.RUNNING, RunState.CANCELLING}, "finish")
    if fault is not None:
        return fault
    open_changes = sorted(change.partition for change in state.changes.values() if change.run == command.run)
    if open_changes:
        return conflict(f"rebalance {command.run}: changes of {listed(open_changes, 20)} are open")
    open_moves = [move.partition for move in state.moves.values() if not move.is_over]
    if open_moves and state.rebalance.state is RunState.RUNNING:
        return conflict(
            f"rebalance {command.run}: {len(open_moves)} moves are not over, the first of partition "
            f"{open_moves[0]}"
        )
    return None


def finish(state: MetadataState, index: Index, left: str = "") -> MetadataState:
    """End the run, change the ring if all moves were committed, and undrain the node otherwise.

    The run's reason is part of the hashed state. So all versions of the program must write the same texts
    here, and the same refusals in `ring.validate`, which a reason may quote.
    """
    run = state.rebalance
    counts = Counter(str(move.state) for move in state.moves.values())
    outcome, why = Outcome.DONE, left or run.why
    if run.state is RunState.CANCELLING:
        outcome = Outcome.CANCELLED
    elif counts[MoveState.FAILED]:
        outcome = Outcome.GIVEN_UP
        failed = counted(counts[MoveState.FAILED], "move")
        why = f"{failed} failed {MOVE_TRIES} times; `history` and `status` say why"
    else:
        state, fault = _with_ring(state, run, index)
        if fault is not None:
            outcome, why = Outcome.GIVEN_UP, f"moved, but the ring stays: {fault.message}"
    if outcome is not Outcome.DONE and run.drained and run.node in state.nodes:
        nodes = {**state.nodes, run.node: replace(state.nodes[run.node], draining=False)}
        state = replace(state, nodes=nodes)
    ended = replace(
        run,
        state=RunState.IDLE,
        outcome=outcome,
        why=why[:WHY_MAX],
        ended_ms=state.time_ms,
        counts=dict(sorted(counts.items())),
        gaps=gaps_of(state.moves.values()),
    )
    return replace(state, rebalance=ended, runs=(*state.runs, ended)[-HISTORY_MAX:])


def gaps_of(moves: Iterable[MoveRecord]) -> dict[str, int]:
    """Quantiles (nearest rank, us) of the times without acknowledgements, over moves with a known time; empty
    without any.
    """
    gaps_us = sorted(move.gap_us for move in moves if move.gap_us is not None)
    if not gaps_us:
        return {}
    ranks = {"p50_us": 50, "p99_us": 99, "max_us": 100}
    quantiles = {
        name: gaps_us[max(0, -(-len(gaps_us) * percent // 100) - 1)] for name, percent in ranks.items()
    }
    return {"count": len(gaps_us), **quantiles}


def _with_ring(state: MetadataState, run: Run, index: Index) -> tuple[MetadataState, Refused | None]:
    """Change the ring once, after all moves; a ring that already has the desired members stays."""
    command: AddToRing | RemoveFromRing
    if run.action is Action.ADD_NODE and run.node not in state.ring.members:
        command = RingConsensus.propose_add(state, run.node)
    elif run.action is Action.REMOVE_NODE and run.node in state.ring.members:
        command = RingConsensus.propose_remove(state, run.node)
    else:
        return state, None
    fault = ring_commands.validate(state, command)
    return (state, fault) if fault is not None else (ring_commands.execute(state, command, index)[0], None)


def _with_run_state(state: MetadataState, to: RunState) -> MetadataState:
    run = state.rebalance
    return state if run.state is to else replace(state, rebalance=replace(run, state=to))


def _run_fault(state: MetadataState, number: int, states: set[RunState], what: str) -> Refused | None:
    run = state.rebalance
    if run.run != number or not run.is_active:
        last = f", the last one is {run.run}" if run.run != number else ""
        return conflict(f"rebalance {number} is over, there is nothing to {what}{last}")
    if run.state not in states:
        return conflict(f"rebalance {number} is {run.state}; it cannot {what}")
    return None

"""Choose the leader's next entry of a rebalance. The log has all state that must survive a leader.

RUNNING starts tries while the limits on concurrency allow it, and ends the run once every move is over. A
run that empties a node first adds moves for partitions that its plan left out. It waits a while for
changes and nodes that block these. A move whose new node takes no partitions waits for that node, or gets
another one if the run empties a node.

CANCELLING aborts changes that can be aborted. PAUSED starts nothing. A new leader begins with the records:
it skips COMMITTED moves and starts PENDING and FAILED ones that have tries left.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId
from ringfence.control.model.reassignment_commands import AbortChange, PrepareChange
from ringfence.control.model.reassignments import Change
from ringfence.control.model.rebalance_commands import AmendMoves, FailMove, FinishRebalance
from ringfence.control.model.rebalances import LEAVING, MoveRecord, MoveState, PlannedMove, RunState
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import counted, listed
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.move_records import has_ineligible_node, nodes_down
from ringfence.control.state_machines.metadata.rebalances import is_done
from ringfence.control.state_machines.metadata.replica_counts import replicas_of
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.rebalance.plans import LeftOut, left_out
from ringfence.native.wire import Code

# A failed move is tried again after this time, multiplied by its tries: the cause of the failure may pass.
RETRY_MS: Final = 1_000
# Time that another operation may block a move before a try is counted. Also the time that a run waits for
# changes that keep replicas on a node that is being emptied. Failovers and restarts of nodes take seconds.
WAIT_MS: Final = 60_000

# Interval between plans for partitions left on a node: each plans over all partitions.
LEFT_INTERVAL_MS: Final = 1_000
# Items of each kind of left partitions in the run's reason.
LEFT_SHOWN: Final = 3


class Rebalancer:
    """Soft state of one leader: times of failed tries, and of the first refusal of each blocked move."""

    def __init__(self) -> None:
        self._run = Index(0)
        self._failed_since_ms: dict[tuple[PartitionId, int], int] = {}
        self._blocked_since_ms: dict[PartitionId, int] = {}
        self._left_since_ms: int | None = None
        self._next_left_ms = 0
        self._replan_ms = 0
        self._replanned: dict[PartitionId, PlannedMove] = {}

    def step(self, state: MetadataState, now_ms: int) -> tuple[Command, ...]:
        """Entries to propose now; a refused one is decided again on the newer state."""
        run = state.rebalance
        if run.run != self._run:
            self.__init__()  # type: ignore[misc]
            self._run = run.run
        if not run.is_active or run.state is RunState.PAUSED:
            return ()
        running = [change for change in state.changes.values() if change.run == run.run]
        if run.state is RunState.CANCELLING:
            aborts = tuple(_abort(change) for change in running if change.may_abort)
            return aborts or (() if running else (FinishRebalance(run=run.run),))
        if not running and all(move.is_over for move in state.moves.values()):
            return self._end(state, now_ms)
        self._left_since_ms, self._next_left_ms = None, now_ms
        return self._starts(state, running, now_ms)

    def _end(self, state: MetadataState, now_ms: int) -> tuple[Command, ...]:
        """All moves are over. First move the partitions that are left on the node, unless a move failed."""
        run = state.rebalance
        failed = any(move.state is MoveState.FAILED for move in state.moves.values())
        if run.action not in LEAVING or failed:
            return (FinishRebalance(run=run.run),)
        if now_ms < self._next_left_ms:
            return ()
        self._next_left_ms = now_ms + LEFT_INTERVAL_MS
        left = left_out(state)
        if left.moves:
            return (AmendMoves(run=run.run, moves=left.moves),)
        if self._left_since_ms is None:
            self._left_since_ms = now_ms
        if left.waits and now_ms - self._left_since_ms < WAIT_MS:
            return ()
        return (FinishRebalance(run=run.run, why=_reason_left(state, left)),)

    def _starts(self, state: MetadataState, running: list[Change], now_ms: int) -> tuple[Command, ...]:
        busy: Counter[NodeId] = Counter()
        active = 0
        for change in running:
            if not change.is_committed:
                active += 1
                busy.update(_nodes(state.moves[change.partition]))
        commands: list[Command] = []
        for partition, move in sorted(state.moves.items(), key=lambda item: (item[1].attempts, item[0])):
            if active >= limit(state, "moves_concurrent"):
                break
            if not move.may_start or not self._is_due(partition, move, now_ms):
                continue
            nodes = _nodes(move)
            if any(busy[node] >= limit(state, "node_moves_concurrent") for node in nodes):
                continue
            command = self._try(state, move, now_ms)
            if command is not None:
                commands.append(command)
                active += 1
                busy.update(nodes)
        return tuple(commands)

    def _try(self, state: MetadataState, move: MoveRecord, now_ms: int) -> Command | None:
        """The move's next entry, or None to wait. A move that cannot begin counts as a failed try,
        immediately or after WAIT_MS.
        """
        run = state.rebalance.run
        if is_done(state, move):
            return AmendMoves(run=run, done=(move.partition,))
        prepare = PrepareChange(
            topic=move.topic,
            partition=move.partition,
            epoch=_epoch(state, move),
            owner=move.after[0],
            replicas=move.after,
            run=run,
        )
        refusal = validate(state, prepare)
        if refusal is None:
            self._blocked_since_ms.pop(move.partition, None)
            return prepare
        since = self._blocked_since_ms.setdefault(move.partition, now_ms)
        elsewhere = self._elsewhere(state, move, now_ms)
        if elsewhere is not None:
            del self._blocked_since_ms[move.partition]
            return AmendMoves(run=run, moves=(elsewhere,))
        may_pass = refusal.code == Code.ALREADY_EXISTS or bool(nodes_down(state, move))
        if may_pass and now_ms - since < WAIT_MS:
            return None
        del self._blocked_since_ms[move.partition]
        return FailMove(run=run, partition=move.partition, why=_fail_reason(refusal))

    def _elsewhere(self, state: MetadataState, move: MoveRecord, now_ms: int) -> PlannedMove | None:
        """Another move for a partition of a node that is being emptied, if its new node takes no partitions
        any more.
        """
        if state.rebalance.action not in LEAVING or not has_ineligible_node(state, move):
            return None
        if now_ms >= self._replan_ms:
            self._replan_ms = now_ms + LEFT_INTERVAL_MS
            self._replanned = {planned.partition: planned for planned in left_out(state).moves}
        planned = self._replanned.pop(move.partition, None)
        return None if planned is None or planned.after == move.after else planned

    def _is_due(self, partition: PartitionId, move: MoveRecord, now_ms: int) -> bool:
        if move.state is not MoveState.FAILED:
            return True
        since = self._failed_since_ms.setdefault((partition, move.attempts), now_ms)
        return now_ms - since >= RETRY_MS * move.attempts


def _abort(change: Change) -> AbortChange:
    return AbortChange(partition=change.partition, change=change.change, why="the rebalance was cancelled")


def _nodes(move: MoveRecord) -> set[NodeId]:
    """Nodes that work for a move: its owner, and the new nodes."""
    return {move.before[0], *({*move.after} - {*move.before})}


def _epoch(state: MetadataState, move: MoveRecord) -> Epoch:
    return state.topics[move.topic].assignments[move.partition].epoch


def _reason_left(state: MetadataState, left: LeftOut) -> str:
    """The reason that the node is not empty at the end of the run; empty if it is."""
    replicas = replicas_of(state, state.rebalance.node)
    if not replicas and not left.changes:
        return ""
    reasons = [listed([describe_change(change) for change in left.changes], LEFT_SHOWN, "; ")]
    if left.stranded:
        shown = listed(left.stranded, LEFT_SHOWN)
        many = counted(len(left.stranded), "partition")
        reasons.append(f"no other node may take {many} ({shown}): let another node join, or undrain this one")
    lives = [f"node {node} is {state.nodes[node].life}" for node in left.nodes]
    reasons.append(listed(lives, LEFT_SHOWN, "; "))
    text = "; ".join(filter(None, reasons)) or "one run has no more moves; start another one"
    return f"node {state.rebalance.node} has {counted(replicas, 'replica')} left: {text}"


def describe_change(change: Change) -> str:
    """A change that a run waits for, as a text for operators."""
    return f"partition {change.partition} is in change {change.change} ({change.kind}, {change.phase})"


def _fail_reason(refusal: Refused) -> str:
    return refusal.message

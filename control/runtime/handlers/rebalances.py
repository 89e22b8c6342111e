"""Preview, start, steer and show rebalances, for HTTP and the command line alike."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from ringfence.control.model.ids import NodeId
from ringfence.control.model.reassignments import Kept
from ringfence.control.model.rebalance_commands import CancelRebalance, PauseRebalance, ResumeRebalance
from ringfence.control.model.rebalances import (
    LEAVING,
    Action,
    MoveRecord,
    MoveState,
    Outcome,
    PlannedMove,
    Run,
    RunState,
)
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers import node_plans
from ringfence.control.runtime.handlers.commands import Plan
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.move_records import nodes_down
from ringfence.control.state_machines.metadata.rebalances import gaps_of
from ringfence.control.state_machines.metadata.replica_counts import replicas_of
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.messages import Synced
from ringfence.control.state_machines.rebalance.loads import LoadBoard
from ringfence.control.state_machines.rebalance.plans import ChosenMove, Preview, left_out, preview
from ringfence.control.state_machines.rebalance.run_rates import RunRates, combine, encode_windows
from ringfence.control.state_machines.rebalance.runner import describe_change
from ringfence.native.wire import Code

# Timeout for the leader's answer with the progress of copies; after it the caller gets this node's view.
SHOW_S: Final = 1.0
STEERS: Final = ("pause", "resume", "cancel")
# A state for display only: the log has FAILED and the number of attempts.
RETRYING: Final = "RETRYING"
# A state for display only: the log has PENDING, and the run is over or about to end.
CANCELLED: Final = "CANCELLED"
# Partitions of each node whose load is shown.
BUSIEST_SHOWN: Final = 5
# Moves in one answer, because control answers are limited. The counts cover all moves.
MOVES_SHOWN: Final = 1_000


class Rebalances:
    """Handlers; they raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        peer_client: PeerClient,
        coordinator: Coordinator,
        board: LoadBoard,
        run_rates: RunRates,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`refresh` asks for the progress of all copies, on the leader."""
        self._proposer, self._peer_client, self._coordinator = proposer, peer_client, coordinator
        self._board, self._run_rates, self._refresh = board, run_rates, refresh

    async def show(self) -> dict[str, Any]:
        """The leader's view of the rebalance; this node's view if the leader does not answer."""
        leader = self._proposer.replica.leader
        if leader and leader != self._peer_client.here:
            try:
                reply = await self._peer_client.ask(NodeId(leader), messages.ShowRebalance(), SHOW_S)
            except RequestRefused:
                return self.here()
            if isinstance(reply, messages.Document):
                return reply.value
        return await self.show_here()

    async def show_here(self) -> dict[str, Any]:
        """This node's view, with the progress of copies as of now if it leads."""
        await self._refresh()
        return self.here()

    def here(self) -> dict[str, Any]:
        """The rebalance as this node knows it."""
        state = self._proposer.state
        decision = self._coordinator.decision
        return {
            **self._shown_run(state),
            "waits": _shown_waits(state),
            "held": replicas_of(state, state.rebalance.node) if _leaves(state) else 0,
            "moves": [self._shown_move(move) for _, move in sorted(state.moves.items())[:MOVES_SHOWN]],
            "reverse_hold_s": limit(state, "reverse_hold_s"),
            "reversible": [
                _shown_kept(state, record) for _, record in sorted(state.kept.items())[:MOVES_SHOWN]
            ],
            "loads": self._shown_loads(),
            "policy": None if decision is None else decision.why,
        }

    async def history(self) -> dict[str, Any]:
        """The runs that have ended, the newest first, with the rates that the live nodes have measured."""
        nodes = [self._run_rates.windows, *await self._peer_client.run_rates()]
        state = self._proposer.state
        return {
            "runs": [
                {**shown_run(state, run), "rates": combine(nodes, run.run)} for run in reversed(state.runs)
            ]
        }

    def rates_here(self) -> dict[str, Any]:
        return encode_windows(self._run_rates.windows)

    async def preview(self, action: Action, node: NodeId, chosen: list[ChosenMove]) -> Preview:
        """The moves that would start now, on the newest state. RequestRefused if they could not start."""
        await self._proposer.read_barrier()
        plan = preview(self._proposer.state, action, node, chosen)
        if plan.refusal is not None:
            raise RequestRefused(_code(self._proposer.state, plan), plan.refusal.message)
        return plan

    async def plan_start(
        self,
        action: Action,
        node: NodeId,
        chosen: list[ChosenMove],
        on_preview: Callable[[Preview], None] = lambda _: None,
    ) -> Plan:
        """Plan a start. A drain joins the running one of the node; else `on_preview` gets the moves."""
        if action is Action.DRAIN and (joined := await node_plans.joined_drain(self._proposer, node)):
            return joined
        previewed = await self.preview(action, node, chosen)
        on_preview(previewed)
        return Plan((previewed.command,))

    async def plan_steer(self, verb: str) -> Plan:
        """Plan to pause, resume or cancel the current run."""
        if verb not in STEERS:
            message = f"verb={verb!r}: preview, start, show, history, {', '.join(STEERS)}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        await self._proposer.read_barrier()
        run = self._proposer.state.rebalance.run
        if verb == "pause":
            return Plan((PauseRebalance(run=run),))
        return Plan((ResumeRebalance(run=run) if verb == "resume" else CancelRebalance(run=run),))

    def _shown_loads(self) -> list[dict[str, Any]]:
        """The last load reports of the nodes. Only the leader receives reports."""
        return [
            {
                "node": node,
                "bytes_s": report.bytes_s,
                "requests_s": report.requests_s,
                "busiest": [msgspec.structs.asdict(load) for load in report.parts[:BUSIEST_SHOWN]],
            }
            for node, report in self._board.by_node(time.monotonic_ns() // 1_000_000).items()
            if node in self._proposer.state.nodes
        ]

    def _shown_run(self, state: MetadataState) -> dict[str, Any]:
        """The current or last run, with its moves counted by the state shown for each."""
        shown = shown_run(state, state.rebalance)
        copying = sum(self._copies(move) is not None for move in state.moves.values())
        if copying and state.rebalance.is_active:
            counts = Counter(shown["counts"])
            counts.subtract({MoveState.DUAL_WRITE: copying})
            counts[MoveState.COPYING] += copying
            shown["counts"] = {str(state): count for state, count in sorted((+counts).items())}
        run = state.rebalance
        if run.action in LEAVING and run.outcome is Outcome.DONE and not _leaves(state):
            # An operator has ended the drain since: the replicas left on the node may stay there.
            shown["why"] = ""
        return shown

    def _copies(self, move: MoveRecord) -> list[tuple[NodeId, Synced]] | None:
        """The progress of a move's copies, once they have begun. Only the leader knows it."""
        if move.state is not MoveState.DUAL_WRITE:
            return None
        progress = self._coordinator.progress(move.partition)
        return None if progress is None else [(target.node, sync) for target, sync in progress.syncs] or None

    def _shown_move(self, move: MoveRecord) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "partition": move.partition,
            "topic": move.topic,
            "from": list(move.before),
            "to": list(move.after),
            "state": _shown_state(self._proposer.state, move),
            "rows": move.rows,
            "bytes": move.bytes,
            "attempts": move.attempts,
            "error": move.error,
            "gap_us": move.gap_us,
        }
        copies = self._copies(move)
        return shown if copies is None else shown | shown_copy(move, copies)


def _leaves(state: MetadataState) -> bool:
    """Whether the last run empties a node, and no operator has ended the drain since.

    A run that ends as GIVEN_UP clears the node's drain mark itself.
    """
    run = state.rebalance
    node = state.nodes.get(run.node)
    still_leaving = node is not None and (node.draining or run.outcome is Outcome.GIVEN_UP)
    return run.action in LEAVING and still_leaving


def shown_copy(move: MoveRecord, syncs: list[tuple[NodeId, Synced]]) -> dict[str, Any]:
    """The progress of copies. The reason for a current delay takes the place of an earlier try's error."""
    delays = "; ".join(f"to node {node}: {sync.why}" for node, sync in syncs if sync.why)
    return {
        "state": str(MoveState.COPYING),
        "rows": sum(sync.rows for _, sync in syncs),
        "bytes": sum(sync.bytes for _, sync in syncs),
        "gap_records": sum(sync.gap for _, sync in syncs),
        "error": delays or move.error,
    }


def shown_run(state: MetadataState, run: Run) -> dict[str, Any]:
    """A run as JSON values. `eta_s` extrapolates from the finished moves; null without any."""
    is_last = run.run == state.rebalance.run
    counts = (
        dict(sorted(Counter(_shown_state(state, move) for move in state.moves.values()).items()))
        if is_last and run.is_active
        else _final_counts(run.counts)
    )
    over = sum(move.is_over for move in state.moves.values()) if is_last else 0
    spent_ms = state.time_ms - run.started_ms
    eta_s = (
        round(spent_ms / 1_000 / over * (len(state.moves) - over), 1)
        if run.is_active and over and spent_ms > 0
        else None
    )
    return {
        "run": run.run,
        "action": str(run.action),
        "node": run.node,
        "state": str(run.state),
        "outcome": str(run.outcome),
        "why": run.why,
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "counts": counts,
        "eta_s": eta_s,
        "gaps": gaps_of(state.moves.values()) if is_last and run.is_active else run.gaps,
    }


def _shown_state(state: MetadataState, move: MoveRecord) -> str:
    """The state to display: RETRYING for a FAILED move that this run tries again."""
    if state.rebalance.state in {RunState.RUNNING, RunState.PAUSED}:
        is_retried = move.state is MoveState.FAILED and move.may_start
        return RETRYING if is_retried else str(move.state)
    return CANCELLED if move.state is MoveState.PENDING else str(move.state)


def _final_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of a run that is over: PENDING moves will not start any more."""
    return {CANCELLED if state == MoveState.PENDING else state: count for state, count in counts.items()}


def _code(state: MetadataState, plan: Preview) -> Code:
    """The code of a refusal. Without changes to reverse a retry is useless, so that is no conflict."""
    assert plan.refusal is not None
    is_conflict = plan.refusal.code is Code.ALREADY_EXISTS
    if is_conflict and plan.command.action is Action.REVERSE and not state.rebalance.is_active:
        return Code.INVALID_ARGUMENT
    return Code(plan.refusal.code)


def shown_plan(plan: Preview) -> dict[str, Any]:
    return {
        "action": str(plan.command.action),
        "node": plan.command.node,
        "moves": [_shown_plan_move(move) for move in plan.command.moves[:MOVES_SHOWN]],
        "count": len(plan.command.moves),
        "stranded": list(plan.stranded[:MOVES_SHOWN]),
        "waits": list(plan.waits[:MOVES_SHOWN]),
    }


def _shown_waits(state: MetadataState) -> list[str]:
    """The nodes that blocked moves wait for; after all moves, the replicas that a drain still waits for."""
    run = state.rebalance
    if run.state not in {RunState.RUNNING, RunState.PAUSED}:
        return []
    moves = [move for _, move in sorted(state.moves.items())]
    if not all(move.is_over for move in moves):
        waiting = [(move, node) for move in moves if move.may_start for node in nodes_down(state, move)]
        shown = [
            f"partition {move.partition} for node {node}, which is {state.nodes[node].life}"
            for move, node in waiting
        ]
        return shown[:MOVES_SHOWN]
    if run.action not in LEAVING:
        return []
    left = left_out(state)
    nodes = [f"node {node} is {state.nodes[node].life}" for node in left.nodes]
    return [*map(describe_change, left.changes), *nodes][:MOVES_SHOWN]


def _shown_kept(state: MetadataState, record: Kept) -> dict[str, Any]:
    """A change that may be reversed, with the partition's nodes now and after the reversal."""
    assignment = state.topics[record.topic].assignments[record.partition]
    others = [replica.node for replica in assignment.replicas if replica != assignment.owner]
    return {
        "partition": record.partition,
        "topic": record.topic,
        "run": record.run,
        "since_ms": record.since_ms,
        "from": [assignment.owner.node, *others],
        "to": [replica.node for replica in record.before],
    }


def _shown_plan_move(move: PlannedMove) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "from": list(move.before),
        "to": list(move.after),
    }


def action_of(text: str) -> Action:
    """The action with this name. RequestRefused if there is none."""
    try:
        return Action(text)
    except ValueError as error:
        message = f"action={text[:40]!r}: {', '.join(Action)}"
        raise RequestRefused(Code.INVALID_ARGUMENT, message) from error

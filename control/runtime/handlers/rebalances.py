"""What people ask of rebalances, and what they are shown: for HTTP and the command line alike."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.reassignments import Kept
from ringfence.control.model.rebalance_commands import (
    CancelRebalance,
    PauseRebalance,
    RebalanceCommand,
    ResumeRebalance,
)
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
from ringfence.control.model.results import RebalanceStarted
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.membership.node_commands import joined_drain
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.move_records import down
from ringfence.control.state_machines.metadata.rebalances import gaps_of
from ringfence.control.state_machines.metadata.replica_counts import replicas_of
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.messages import Synced
from ringfence.control.state_machines.rebalance.loads import Board
from ringfence.control.state_machines.rebalance.plans import Chosen, Preview, left_out, preview
from ringfence.control.state_machines.rebalance.runner import waited_for
from ringfence.native.wire import Code

SHOW_S: Final = 1.0
"""How long the leader may take to tell how far copies are; then the log's view must do."""
STEERS: Final = ("pause", "resume", "cancel")
RETRYING: Final = "RETRYING"
"""A state that is shown, not kept: the log has FAILED and the tries."""
CANCELLED: Final = "CANCELLED"
"""As above: the log has PENDING, and the run is over or ends."""
BUSIEST_SHOWN: Final = 5
"""Partitions of each node whose load is shown."""
MOVES_SHOWN: Final = 1_000
"""Moves in one answer: control answers are limited; the counts are of all of them."""


class Rebalances:
    """Handlers; they raise RequestRefused."""

    def __init__(
        self, proposer: RaftProposer, peer_client: PeerClient, coordinator: Coordinator, board: Board
    ) -> None:
        self._proposer, self._peer_client, self._coordinator = proposer, peer_client, coordinator
        self._board = board

    async def show(self) -> dict[str, Any]:
        """As the leader sees it, or else as this node's log has it."""
        leader = self._proposer.replica.leader
        if leader and leader != self._peer_client.here:
            try:
                reply = await self._peer_client.ask(NodeId(leader), messages.ShowRebalance(), SHOW_S)
            except RequestRefused:
                return self.here()
            if isinstance(reply, messages.Document):
                return reply.value
        return self.here()

    def here(self) -> dict[str, Any]:
        """As this node knows it."""
        state = self._proposer.state
        decision = self._coordinator.decision
        return {
            **self._shown_run(state),
            "waits": _shown_waits(state),
            "held": replicas_of(state, state.rebalance.node) if _leaves(state) else 0,
            "moves": [self._shown_move(move) for _, move in sorted(state.moves.items())[:MOVES_SHOWN]],
            "reverse_hold_s": limit(state, "reverse_hold_s"),
            "reversible": [_shown_kept(state, kept) for _, kept in sorted(state.kept.items())[:MOVES_SHOWN]],
            "loads": self._shown_loads(),
            "policy": None if decision is None else decision.why,
        }

    def history(self) -> dict[str, Any]:
        state = self._proposer.state
        return {"runs": [shown_run(state, run) for run in reversed(state.runs)]}

    async def steer(self, call: messages.SteerRebalance) -> dict[str, Any]:
        """What a verb gave."""
        if call.verb in {"preview", "start"}:
            chosen = [
                Chosen(PartitionId(partition), tuple(NodeId(node) for node in nodes))
                for partition, nodes in call.moves
            ] or [Chosen(PartitionId(partition), ()) for partition in call.partitions]
            action, node = _action(call.action), NodeId(call.node)
            if call.verb == "start" and action is Action.DRAIN:
                run = await joined_drain(self._proposer, node)
                if run is not None:
                    return {"run": run.run}
            plan = await self.plan(action, node, chosen)
            return shown_plan(plan) if call.verb == "preview" else await self.start(plan)
        if call.verb == "show":
            return await self.show()
        if call.verb == "history":
            return self.history()
        if call.verb not in STEERS:
            message = f"verb={call.verb!r}: preview, start, show, history, {', '.join(STEERS)}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        await self._proposer.propose(await self.command(call.verb))
        return await self.show()

    async def plan(self, action: Action, node: NodeId, chosen: list[Chosen]) -> Preview:
        """What would move now, on the newest state. RequestRefused when it could not be started."""
        await self._proposer.read_barrier()
        plan = preview(self._proposer.state, action, node, chosen)
        if plan.refusal is not None:
            raise RequestRefused(_code(self._proposer.state, plan), plan.refusal.message)
        return plan

    async def command(self, verb: str) -> RebalanceCommand:
        """Pause, resume or cancel the run that is under way."""
        await self._proposer.read_barrier()
        run = self._proposer.state.rebalance.run
        if verb == "pause":
            return PauseRebalance(run=run)
        return ResumeRebalance(run=run) if verb == "resume" else CancelRebalance(run=run)

    async def start(self, plan: Preview) -> dict[str, Any]:
        started = (await self._proposer.propose(plan.command)).result
        assert isinstance(started, RebalanceStarted), started
        return {"run": started.run, **shown_plan(plan)}

    def _shown_loads(self) -> list[dict[str, Any]]:
        """What owners told the leader last; a node that does not lead has nothing to tell."""
        return [
            {
                "node": node,
                "bytes_s": told.bytes_s,
                "requests_s": told.requests_s,
                "busiest": [msgspec.structs.asdict(load) for load in told.parts[:BUSIEST_SHOWN]],
            }
            for node, told in self._board.by_node(time.monotonic_ns() // 1_000_000).items()
            if node in self._proposer.state.nodes
        ]

    def _shown_run(self, state: MetadataState) -> dict[str, Any]:
        """The run under way or the last one, its moves counted by the states that are shown of them."""
        shown = shown_run(state, state.rebalance)
        copying = sum(self._copies(move) is not None for move in state.moves.values())
        if copying and state.rebalance.is_active:
            counts = Counter(shown["counts"])
            counts.subtract({MoveState.DUAL_WRITE: copying})
            counts[MoveState.COPYING] += copying
            shown["counts"] = {str(state): count for state, count in sorted((+counts).items())}
        run = state.rebalance
        if run.action in LEAVING and run.outcome is Outcome.DONE and not _leaves(state):
            shown["why"] = ""  # what it left on the node is not to be moved any more
        return shown

    def _copies(self, move: MoveRecord) -> list[tuple[NodeId, Synced]] | None:
        """How far its copies are, if it has come to them; known to the leader alone."""
        if move.state is not MoveState.DUAL_WRITE:
            return None
        seen = self._coordinator.progress(move.partition)
        return None if seen is None else [(target.node, sync) for target, sync in seen.syncs] or None

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
    """Whether the last run empties a node, and nobody has said meanwhile that it shall keep what it has.

    One that is given up takes its mark away by itself.
    """
    run = state.rebalance
    node = state.nodes.get(run.node)
    wanted = node is not None and (node.draining or run.outcome is Outcome.GIVEN_UP)
    return run.action in LEAVING and wanted


def shown_copy(move: MoveRecord, syncs: list[tuple[NodeId, Synced]]) -> dict[str, Any]:
    """How far copies are. What holds one up now is of more use than why an earlier try failed."""
    held_up = "; ".join(f"to node {node}: {sync.why}" for node, sync in syncs if sync.why)
    return {
        "state": str(MoveState.COPYING),
        "rows": sum(sync.rows for _, sync in syncs),
        "bytes": sum(sync.bytes for _, sync in syncs),
        "gap_records": sum(sync.gap for _, sync in syncs),
        "error": held_up or move.error,
    }


def shown_run(state: MetadataState, run: Run) -> dict[str, Any]:
    """A run as JSON has it; `eta_s` by the moves that are over, null while that tells nothing."""
    is_last = run.run == state.rebalance.run
    counts = (
        dict(sorted(Counter(_shown_state(state, move) for move in state.moves.values()).items()))
        if is_last and run.is_active
        else _ended(run.counts)
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
    """RETRYING: it FAILED, and this run tries again; who reads FAILED may take it for the end."""
    if state.rebalance.state in {RunState.RUNNING, RunState.PAUSED}:
        tries_on = move.state is MoveState.FAILED and move.may_start
        return RETRYING if tries_on else str(move.state)
    return CANCELLED if move.state is MoveState.PENDING else str(move.state)


def _ended(counts: Mapping[str, int]) -> dict[str, int]:
    """Of a run that is over: none of its moves is to begin any more."""
    return {CANCELLED if state == MoveState.PENDING else state: count for state, count in counts.items()}


def _code(state: MetadataState, plan: Preview) -> Code:
    """Of a refusal. Where nothing is kept to reverse there is nothing to wait for, either."""
    assert plan.refusal is not None
    is_conflict = plan.refusal.code is Code.ALREADY_EXISTS
    if is_conflict and plan.command.action is Action.REVERSE and not state.rebalance.is_active:
        return Code.INVALID_ARGUMENT
    return Code(plan.refusal.code)


def shown_plan(plan: Preview) -> dict[str, Any]:
    return {
        "action": str(plan.command.action),
        "node": plan.command.node,
        "moves": [_planned(move) for move in plan.command.moves[:MOVES_SHOWN]],
        "count": len(plan.command.moves),
        "stranded": list(plan.stranded[:MOVES_SHOWN]),
        "waits": list(plan.waits[:MOVES_SHOWN]),
    }


def _shown_waits(state: MetadataState) -> list[str]:
    """Whom moves wait for that cannot begin; what a run that empties a node waits for when all are over."""
    run = state.rebalance
    if run.state not in {RunState.RUNNING, RunState.PAUSED}:
        return []
    moves = [move for _, move in sorted(state.moves.items())]
    if not all(move.is_over for move in moves):
        waiting = [(move, node) for move in moves if move.may_start for node in down(state, move)]
        shown = [
            f"partition {move.partition} for node {node}, which is {state.nodes[node].life}"
            for move, node in waiting
        ]
        return shown[:MOVES_SHOWN]
    if run.action not in LEAVING:
        return []
    left = left_out(state)
    nodes = [f"node {node} is {state.nodes[node].life}" for node in left.nodes]
    return [*map(waited_for, left.changes), *nodes][:MOVES_SHOWN]


def _shown_kept(state: MetadataState, kept: Kept) -> dict[str, Any]:
    """A change that may be reversed: where the partition is, and where it would go."""
    assignment = state.topics[kept.topic].assignments[kept.partition]
    others = [place.node for place in assignment.replicas if place != assignment.owner]
    return {
        "partition": kept.partition,
        "topic": kept.topic,
        "run": kept.run,
        "since_ms": kept.since_ms,
        "from": [assignment.owner.node, *others],
        "to": [place.node for place in kept.before],
    }


def _planned(move: PlannedMove) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "from": list(move.before),
        "to": list(move.after),
    }


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError as error:
        message = f"action={text[:40]!r}: {', '.join(Action)}"
        raise RequestRefused(Code.INVALID_ARGUMENT, message) from error

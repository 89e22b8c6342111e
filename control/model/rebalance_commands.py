"""Commands of rebalances. Each names the run that it is about."""

from __future__ import annotations

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Index, NodeId, PartitionId
from ringfence.control.model.rebalances import Action, PlannedMove


class StartRebalance(CommandBase, frozen=True, kw_only=True, tag="start_rebalance"):
    """Begin a run with all of its moves. One at a time: a second start is refused as CONFLICT."""

    action: Action
    node: NodeId = NodeId(0)
    moves: tuple[PlannedMove, ...] = ()
    why: str = ""


class PauseRebalance(CommandBase, frozen=True, kw_only=True, tag="pause_rebalance"):
    """Moves that run end, none begins."""

    run: Index


class ResumeRebalance(CommandBase, frozen=True, kw_only=True, tag="resume_rebalance"):
    run: Index


class CancelRebalance(CommandBase, frozen=True, kw_only=True, tag="cancel_rebalance"):
    """Moves that run are aborted, or end if they are committed; those that are committed stay."""

    run: Index


class FailMove(CommandBase, frozen=True, kw_only=True, tag="fail_move"):
    """A try of a move could not even begin."""

    run: Index
    partition: PartitionId
    why: str


class AmendMoves(CommandBase, frozen=True, kw_only=True, tag="amend_moves"):
    """The plan follows what else has changed: `moves` of what a node that leaves still has and nobody had
    planned, or whose place takes nothing any more, and partitions whose moves are `done`, because another
    change left nothing of them to do.
    """

    run: Index
    moves: tuple[PlannedMove, ...] = ()
    done: tuple[PartitionId, ...] = ()


class FinishRebalance(CommandBase, frozen=True, kw_only=True, tag="finish_rebalance"):
    """Every move is over: the ring changes now, by this entry, or not at all. `why` tells what is left."""

    run: Index
    why: str = ""


RebalanceCommand = (
    StartRebalance
    | PauseRebalance
    | ResumeRebalance
    | CancelRebalance
    | FailMove
    | AmendMoves
    | FinishRebalance
)

"""Commands of rebalances. Each names its run."""

from __future__ import annotations

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Index, NodeId, PartitionId
from ringfence.control.model.rebalances import Action, PlannedMove


class StartRebalance(CommandBase, frozen=True, kw_only=True, tag="start_rebalance"):
    """Start a run with all of its moves. One at a time: a second start is refused as CONFLICT."""

    action: Action
    node: NodeId = NodeId(0)
    moves: tuple[PlannedMove, ...] = ()
    why: str = ""


class PauseRebalance(CommandBase, frozen=True, kw_only=True, tag="pause_rebalance"):
    """Open changes of the run continue, and no other move begins."""

    run: Index


class ResumeRebalance(CommandBase, frozen=True, kw_only=True, tag="resume_rebalance"):
    """Begin moves again."""

    run: Index


class CancelRebalance(CommandBase, frozen=True, kw_only=True, tag="cancel_rebalance"):
    """Abort open changes that are not committed; committed ones end and stay."""

    run: Index


class FailMove(CommandBase, frozen=True, kw_only=True, tag="fail_move"):
    """Count a try of a move that could not begin."""

    run: Index
    partition: PartitionId
    why: str


class AmendMoves(CommandBase, frozen=True, kw_only=True, tag="amend_moves"):
    """Adapt the plan to other changes.

    `moves` adds moves for partitions left on the node that is being emptied, and replaces those whose node
    takes no partitions any more. `done` are partitions whose move another change has made superfluous.
    """

    run: Index
    moves: tuple[PlannedMove, ...] = ()
    done: tuple[PartitionId, ...] = ()


class FinishRebalance(CommandBase, frozen=True, kw_only=True, tag="finish_rebalance"):
    """Every move is over: this entry changes the ring if that is due. `why` is the reason of partitions that
    are left.
    """

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

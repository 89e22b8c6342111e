"""Rebalances: runs of moves, as the log stores them.

    IDLE --start--> RUNNING <--pause, resume--> PAUSED
       RUNNING, PAUSED --cancel--> CANCELLING        RUNNING, CANCELLING --finish--> IDLE

The log is the checkpoint: it has every move's state and tries, so that any leader can continue.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index, NodeId, PartitionId, TopicId

# Tries of one move in a run; a fourth needs a new start, by an operator who has checked the errors.
MOVE_TRIES: Final = 3


class Action(StrEnum):
    ADD_NODE = "add_node"
    REMOVE_NODE = "remove_node"
    BALANCE = "balance"
    MOVE = "move"
    DRAIN = "drain"
    REVERSE = "reverse"


# Actions that empty a node: it is drained from the start on.
LEAVING: Final = frozenset({Action.REMOVE_NODE, Action.DRAIN})


class RunState(StrEnum):
    IDLE = "IDLE"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"


class Outcome(StrEnum):
    NONE = ""
    DONE = "DONE"
    # A move failed in all tries, or the ring could not change. Completed moves stay.
    GIVEN_UP = "GIVEN_UP"
    CANCELLED = "CANCELLED"


class MoveState(StrEnum):
    """The state of a move. COPYING is DUAL_WRITE as the leader with the copy's progress shows it; the log has
    the others.
    """

    PENDING = "PENDING"
    DUAL_WRITE = "DUAL_WRITE"
    COPYING = "COPYING"
    VERIFYING = "VERIFYING"
    COMMITTED = "COMMITTED"
    # Tried again while it has tries left.
    FAILED = "FAILED"


class PlannedMove(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a partition's replicas before and after, the owner first."""

    topic: TopicId
    partition: PartitionId
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]


class MoveRecord(msgspec.Struct, frozen=True):
    """One move of the run. `attempts` counts its tries, `error` is the reason of the last failure.

    `gap_us` is the time from the last acknowledgement of the old owner to the first of the new one. None:
    unknown, the owner stays, or no batch was written.
    """

    topic: TopicId
    partition: PartitionId
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    state: MoveState = MoveState.PENDING
    attempts: int = 0
    rows: int = 0
    bytes: int = 0
    error: str = ""
    gap_us: int | None = None

    @property
    def may_start(self) -> bool:
        return self.state is MoveState.PENDING or (
            self.state is MoveState.FAILED and self.attempts < MOVE_TRIES
        )

    @property
    def is_over(self) -> bool:
        return self.state is MoveState.COMMITTED or (
            self.state is MoveState.FAILED and self.attempts >= MOVE_TRIES
        )


class Run(msgspec.Struct, frozen=True):
    """The rebalance `run`, an index; 0 before the first. `counts` are numbers of an ended run's moves, by
    state.

    `gaps` are quantiles over its moves with a known gap: count, p50_us, p99_us, max_us (nearest rank).

    `drained`: its start began to drain the node, so its cancel ends that. `why` is the reason of the
    start, or of the end. Times are those of the proposers, Unix ms.
    """

    run: Index = Index(0)
    action: Action = Action.BALANCE
    node: NodeId = NodeId(0)
    state: RunState = RunState.IDLE
    outcome: Outcome = Outcome.NONE
    drained: bool = False
    why: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    counts: dict[str, int] = {}
    gaps: dict[str, int] = {}

    @property
    def is_active(self) -> bool:
        return self.state is not RunState.IDLE

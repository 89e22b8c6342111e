"""A rebalance: a run of moves, as the log keeps it.

    IDLE --start--> RUNNING <--pause, resume--> PAUSED
       RUNNING, PAUSED --cancel--> CANCELLING        RUNNING, CANCELLING --finish--> IDLE

The log is the checkpoint: every move's state and tries are in it, so that whoever leads goes on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index, NodeId, PartitionId, TopicId

MOVE_TRIES: Final = 3
"""Tries of one move in a run; a fourth needs a new start, by somebody who has looked why."""


class Action(StrEnum):
    ADD_NODE = "add_node"
    REMOVE_NODE = "remove_node"
    BALANCE = "balance"
    MOVE = "move"
    DRAIN = "drain"
    REVERSE = "reverse"


LEAVING: Final = frozenset({Action.REMOVE_NODE, Action.DRAIN})
"""What empties a node: it drains from the start on."""


class RunState(StrEnum):
    IDLE = "IDLE"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"


class Outcome(StrEnum):
    NONE = ""
    DONE = "DONE"
    GIVEN_UP = "GIVEN_UP"
    """A move failed for good, or the ring could not change. What was moved stays."""
    CANCELLED = "CANCELLED"


class MoveState(StrEnum):
    """COPYING is DUAL_WRITE in the eyes of the leader that copies; the log knows the others."""

    PENDING = "PENDING"
    DUAL_WRITE = "DUAL_WRITE"
    COPYING = "COPYING"
    VERIFYING = "VERIFYING"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    """Tried again while it has tries left."""


class PlannedMove(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a partition's replicas before and after, the owner first."""

    topic: TopicId
    partition: PartitionId
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]


class MoveRecord(msgspec.Struct, frozen=True):
    """One move of the run. `attempts` counts its tries, `error` says why the last one failed.

    `gap_us`: from the last acknowledgement of the old owner to the first of the new one; None while that is
    not known, where the owner stays, and where nobody wrote.
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
    """The rebalance `run`, an index; 0 before the first. `counts` are of an ended run's moves, by state.

    `gaps` are of its moves whose gap is known: count, p50_us, p99_us, max_us (nearest rank).

    `drained`: its start began to drain the node, so its cancel ends that. `why` says who asked, or how it
    ended. Times are those of the proposers, Unix ms.
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

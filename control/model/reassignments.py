"""Changes: steps of one partition from one owner or set of replicas to another, as the log keeps them.

    PREPARED --hold--> HELD --commit--> COMMITTED --opened--> OPENED --clean--> (gone)
        |                |
        +----- abort ----+--> (gone)          a FAILOVER goes from PREPARED to COMMITTED and is never aborted

A partition has at most one. Its number is the index of the entry that prepared it, and the fence of its HOLD.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec

from ringfence.control.model.ids import Epoch, Index, PartitionId, TopicId
from ringfence.control.model.topics import Replica

ChangeId = NewType("ChangeId", int)
"""The index of the PREPARE. One entry may prepare changes of many partitions: they share the number."""


class ChangeKind(StrEnum):
    MOVE = "MOVE"
    """Other replicas, and another owner."""
    REPLICAS = "REPLICAS"
    """Other replicas, the same owner."""
    HAND_OVER = "HAND_OVER"
    """The same replicas, another owner."""
    FAILOVER = "FAILOVER"
    """The owner failed or was restarted: its HOLD is a fence at a majority of the replicas."""


class ChangePhase(StrEnum):
    PREPARED = "PREPARED"
    """Targets sync; the owner serves. Of a FAILOVER: replicas are being fenced."""
    HELD = "HELD"
    """From now on the owner may be fenced at the change's number: its end is S."""
    COMMITTED = "COMMITTED"
    """Owner, replicas and epoch are those of the change; only forward."""
    OPENED = "OPENED"
    """The owner takes appends. Who left still has what it had."""


class LogEnd(msgspec.Struct, frozen=True, array_like=True):
    """Where a contiguous log ends: epoch of its last record, records, rows, and the chain there."""

    epoch: Epoch
    records: int
    offset: int
    chain: int


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """What one store said of its log, fenced at the change's number.

    `cut`: since it last had everything below an owner's mark it has cut a torn tail, or its log came back
    older; so it may lack what it acknowledged.
    """

    place: Replica
    end: LogEnd
    cut: bool = False


class Change(msgspec.Struct, frozen=True):
    """One open change. `epoch` is the assignment's when it was prepared: COMMIT and ABORT compare it.

    `owner` and `replicas` are those after COMMIT; of a FAILOVER the owner is found by COMMIT. `before` are
    the replicas before a planned change, the owner first; `leaves` those of them that are none after it.
    `run` is the rebalance that it belongs to, 0 for none; `attempt` is which try of its move it is.
    `stopped_us` is known since COMMIT: when the owner before gave its last acknowledgement, Unix us by its
    clock, 0 if it did not say.
    """

    change: ChangeId
    kind: ChangeKind
    topic: TopicId
    partition: PartitionId
    epoch: Epoch
    owner: Replica
    replicas: tuple[Replica, ...]
    adds: tuple[Replica, ...] = ()
    leaves: tuple[Replica, ...] = ()
    phase: ChangePhase = ChangePhase.PREPARED
    end: LogEnd | None = None
    run: Index = Index(0)
    attempt: int = 1
    before: tuple[Replica, ...] = ()
    stopped_us: int = 0

    @property
    def may_abort(self) -> bool:
        return self.kind is not ChangeKind.FAILOVER and not self.is_committed

    @property
    def has_gap(self) -> bool:
        """Whether another node acknowledges since its COMMIT, and the one before said when it stopped."""
        return self.stopped_us > 0 and bool(self.before) and self.owner != self.before[0]

    @property
    def is_committed(self) -> bool:
        return self.phase in {ChangePhase.COMMITTED, ChangePhase.OPENED}


class LeftoverKind(StrEnum):
    ADOPT = "ADOPT"
    """What it received for the change is its replica, since the COMMIT."""
    DISCARD = "DISCARD"
    """What it received for the change is nothing, since the ABORT."""
    RELEASE = "RELEASE"
    """It is no replica any more, since the CLEAN: it may give its rows back (I16)."""


class Leftover(msgspec.Struct, frozen=True, array_like=True):
    """What a change left for one store to do; listed until the store has confirmed it.

    A store that was down finds it when it starts, however long the change has been over.
    """

    topic: TopicId
    change: ChangeId
    attempt: int
    place: Replica
    kind: LeftoverKind


class Kept(msgspec.Struct, frozen=True):
    """How a partition stood before its last planned change, which may be reversed while this is kept.

    `before` are the replicas then, the owner first. `stores` are those of them that are replicas no more and
    keep their rows until the hold time is over: the way back copies only what has come since. Nothing of it
    counts for anything.
    """

    topic: TopicId
    partition: PartitionId
    change: ChangeId
    attempt: int
    run: Index
    before: tuple[Replica, ...]
    stores: tuple[Replica, ...]
    since_ms: int

"""Changes of one partition's owner or replicas, as the log stores them.

    PREPARED --hold--> HELD --commit--> COMMITTED --opened--> OPENED --clean--> (ended)
        |                |
        +----- abort ----+--> (ended)         a FAILOVER goes from PREPARED to COMMITTED and is never aborted

A partition has at most one open change. The change's number is the index of the entry that prepared it,
and the fence of its HOLD.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec

from ringfence.control.model.ids import Epoch, Index, PartitionId, TopicId
from ringfence.control.model.topics import Replica

# The index of the PREPARE. One entry may prepare changes of many partitions: they share the number.
ChangeId = NewType("ChangeId", int)


class ChangeKind(StrEnum):
    # Other replicas, and another owner.
    MOVE = "MOVE"
    # Other replicas, the same owner.
    REPLICAS = "REPLICAS"
    # The same replicas, another owner.
    HAND_OVER = "HAND_OVER"
    # The owner failed or was restarted: its HOLD is a fence at a majority of the replicas.
    FAILOVER = "FAILOVER"


class ChangePhase(StrEnum):
    # Targets copy; the owner serves. In a FAILOVER: the leader fences replicas.
    PREPARED = "PREPARED"
    # From now on the owner may be fenced at the change's number: its end is S.
    HELD = "HELD"
    # Owner, replicas and epoch are those of the change, which can only go forward.
    COMMITTED = "COMMITTED"
    # The owner takes appends. Stores that left still have their rows.
    OPENED = "OPENED"


class LogEnd(msgspec.Struct, frozen=True, array_like=True):
    """The end of a contiguous log: epoch of its last record, records, rows, and the chain there."""

    epoch: Epoch
    records: int
    offset: int
    chain: int


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """A store's statement about its log, fenced at the change's number.

    `cut`: the store has truncated a torn end, or its log came back older, since it last had everything
    below an owner's mark. So it may lack acknowledged records.
    """

    place: Replica
    end: LogEnd
    cut: bool = False


class Change(msgspec.Struct, frozen=True):
    """One open change. `epoch` is the assignment's at the PREPARE: COMMIT and ABORT compare it.

    `owner` and `replicas` are those after COMMIT; the COMMIT of a FAILOVER sets the owner. `before` are
    the replicas before a planned change, the owner first; `leaves` those of them that are no replicas
    after it. `run` is its rebalance, 0 for none; `attempt` is the number of the try within its move.
    `stopped_us` is set by COMMIT: the time of the former owner's last acknowledgement, Unix us by its
    clock, 0 if unknown.
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
        """Whether another node acknowledges since the COMMIT, and the former owner has measured when it
        stopped.
        """
        return self.stopped_us > 0 and bool(self.before) and self.owner != self.before[0]

    @property
    def is_committed(self) -> bool:
        return self.phase in {ChangePhase.COMMITTED, ChangePhase.OPENED}


class LeftoverKind(StrEnum):
    """The step that a change leaves for a store."""

    # The copy that the store received is its replica, since the COMMIT.
    ADOPT = "ADOPT"
    # The copy that the store received is dropped, since the ABORT.
    DISCARD = "DISCARD"
    # The store is no replica any more, since the CLEAN: it may free the space of its rows (I16).
    RELEASE = "RELEASE"


class Leftover(msgspec.Struct, frozen=True, array_like=True):
    """A step that a change leaves for one store, listed until the store has confirmed it.

    A store that was down finds it when it starts, even long after the end of the change.
    """

    topic: TopicId
    change: ChangeId
    attempt: int
    place: Replica
    kind: LeftoverKind


class Kept(msgspec.Struct, frozen=True):
    """The placement of a partition before its last planned change, which may be reversed while this is kept.

    `before` are the replicas then, the owner first. `stores` are those of them that are no replicas any
    more and keep their rows until the hold time is over: a reversal then copies only newer rows. These
    copies do not count as replicas.
    """

    topic: TopicId
    partition: PartitionId
    change: ChangeId
    attempt: int
    run: Index
    before: tuple[Replica, ...]
    stores: tuple[Replica, ...]
    since_ms: int

"""Cohorts (consumer groups), their members and progress, as the log stores them.

A cohort is a named subscription of a topic. A partition is read under a gate, which its owner keeps in the
partition's own log. The metadata has what all nodes must agree on: the cohort, its members, the slice of
each member, where the cohort begins, and which SEALED partitions it has drained.

    session      number of one life of a member: drawn from the entry that registered it
    instance     16 random bytes of one consumer object; the same instance is the same session
    incarnation  number of the cohort's present beginning: its id, then the id of the last seek
    drained      the cohort is through a SEALED partition in this incarnation
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple, NewType

import msgspec

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId

# The cluster's level from which on all nodes know cohorts. Nothing of them is proposed, applied or written
# below it.
COHORT_LEVEL: Final = 3
# Bytes of the name of a cohort or a member: names stand in metrics, paths and every plan.
LABEL_BYTES_MAX: Final = 64
INSTANCE_BYTES: Final = 16
# Instances that a member remembers to have replaced: two processes of one name fence each other once each.
REPLACED_MAX: Final = 4
# Notes about pruned parents that a child names by id. A reader is told of each; more are a number.
NOTES_MAX: Final = 64
# Bounds of the settings. A hand-over must outlast the leases of an owner (1 s) and of a holder (10 s).
HANDOVER_MS: Final = (11_000, 3_600_000)
LEASE_MS: Final = (1_000, 3_600_000)
DELIVERY_LIMIT: Final = (0, 100)

# Drawn ids: `model.ids.drawn`. A cohort's id is its first incarnation.
CohortId = NewType("CohortId", int)
Incarnation = NewType("Incarnation", int)
MemberSession = NewType("MemberSession", int)

# ASCII only: tables of Unicode differ between interpreters, and every node must judge a name alike.
_LABEL: Final = re.compile(f"[A-Za-z0-9_.-]{{1,{LABEL_BYTES_MAX}}}", re.ASCII)


def label_fault(label: str, subject: str) -> str | None:
    """The fault of a name of a cohort or a member; None if it is sound."""
    if _LABEL.fullmatch(label):
        return None
    return (
        f"{subject} {label[: 2 * LABEL_BYTES_MAX]!r}: 1 to {LABEL_BYTES_MAX} letters, digits, '_', '.' and "
        "'-', all ASCII"
    )


class CohortMode(StrEnum):
    # One holder a partition, in order; the log has its acknowledgements.
    STREAM = "STREAM"
    # One holder a partition, in order; the reader's own store has its positions.
    CHECKPOINT = "CHECKPOINT"
    # Ranges of rows are leased to any member, in no order.
    QUEUE = "QUEUE"

    @property
    def is_ordered(self) -> bool:
        """Whether partitions are planned, and children wait for their parents."""
        return self is not CohortMode.QUEUE


class CohortSettings(msgspec.Struct, frozen=True, array_like=True):
    """`handover_ms`: a holder that lost its partition has so long to acknowledge. QUEUE: `lease_ms` of a
    range of rows; after `limit` failed deliveries a row is parked, 0: never.
    """

    handover_ms: int = 60_000
    lease_ms: int = 30_000
    limit: int = 5


class StartKind(StrEnum):
    EARLIEST = "EARLIEST"
    LATEST = "LATEST"
    # At named positions: only a seek names it. Its entry resolves it for the partitions of the layout.
    POSITIONS = "POSITIONS"


class CohortPosition(NamedTuple):
    """A place in a partition: the next offset, and the owner epoch of the row below it; 0: not known."""

    partition: PartitionId
    offset: int
    epoch: Epoch


class CohortStart(msgspec.Struct, frozen=True, array_like=True):
    """Where an incarnation begins in the partitions that existed at its entry.

    A partition that is in neither `positions` nor `finished` begins as `kind` says, EARLIEST or LATEST.
    Both ascend. A partition in `finished` is not read in this incarnation.
    """

    kind: StartKind = StartKind.EARLIEST
    positions: tuple[CohortPosition, ...] = ()
    finished: tuple[PartitionId, ...] = ()


class Cohort(msgspec.Struct, frozen=True):
    """One cohort.

    `layout_version` is that of the topic at the entry of the incarnation. `generation` counts changes of
    members' slices. `resetting`: partitions, ascending, whose gate owners have not told yet that they began
    the incarnation. `idle_since_ms`: the cluster's time since when there are no members; 0 with members.
    `changed` is the index of the last change of the settings.
    """

    cohort: CohortId
    topic: TopicId
    name: str
    mode: CohortMode
    settings: CohortSettings
    start: CohortStart
    incarnation: Incarnation
    layout_version: int
    generation: int = 0
    resetting: tuple[PartitionId, ...] = ()
    idle_since_ms: int = 0
    changed: Index = Index(0)


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A registered member of a cohort.

    `slice`: the partitions that the plan gives it, ascending. `replaced`: instances that lost this name to
    a newer one, the oldest first. `home` is the node at which it joined last; nothing depends on it.
    """

    session: MemberSession
    instance: bytes
    home: NodeId
    since_ms: int
    slice: tuple[PartitionId, ...] = ()
    replaced: tuple[bytes, ...] = ()


class DrainedMark(NamedTuple):
    """A SEALED partition that the cohort is through; `read`: a member settled rows of it."""

    partition: PartitionId
    read: bool


class NoteKind(StrEnum):
    # The cohort had not drained the parent: rows may be missing.
    MISSED = "MISSED"
    # CHECKPOINT: the cohort had read the parent to its end. A reader's store must have that end.
    READ = "READ"


class PrunedNote(NamedTuple):
    """A pruned partition in front of a child, the offset at which it ended, and what the cohort had of it."""

    partition: PartitionId
    offset: int
    kind: NoteKind


class PrunedNotes(msgspec.Struct, frozen=True, array_like=True):
    """What was pruned in front of one partition: ascending notes, and the number of those above `NOTES_MAX`.

    `has_missed`: the cohort had not drained one of these partitions.
    """

    notes: tuple[PrunedNote, ...]
    more: int = 0
    has_missed: bool = False

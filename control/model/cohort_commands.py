"""Commands of cohorts. Items of a batch are taken or refused each on its own."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ringfence.control.model.base import CommandBase
from ringfence.control.model.cohorts import (
    CohortId,
    CohortMode,
    CohortPosition,
    CohortSettings,
    Incarnation,
    MemberSession,
    StartKind,
)
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId


class CreateCohort(CommandBase, frozen=True, kw_only=True, tag="create_cohort"):
    """Create a cohort, or find that it exists with this mode and these settings."""

    topic: TopicId
    name: str
    mode: CohortMode
    start: StartKind = StartKind.EARLIEST
    settings: CohortSettings = CohortSettings()


class ChangeCohort(CommandBase, frozen=True, kw_only=True, tag="change_cohort"):
    """Declare all settings of a cohort. Compare-and-set on `expected`, the index of their last change.

    Settings that are equal to the present ones are taken whatever is expected. The mode never changes.
    """

    cohort: CohortId
    mode: CohortMode
    settings: CohortSettings
    expected: Index


class DeleteCohort(CommandBase, frozen=True, kw_only=True, tag="delete_cohort"):
    """Delete a cohort with its members. The name is free immediately, for a cohort with another id."""

    topic: TopicId
    name: str
    cohort: CohortId


class Registration(NamedTuple):
    """A process that takes the name of a member. Compare-and-set on `after`, the session that it replaces;
    0: none has the name.
    """

    cohort: CohortId
    name: str
    instance: bytes
    after: MemberSession
    home: NodeId


class RegisterMembers(CommandBase, frozen=True, kw_only=True, tag="register_members"):
    """Register members. Item i gets the session that is drawn from the entry and i."""

    members: tuple[Registration, ...]


class RemovalReason(StrEnum):
    # It said so.
    LEFT = "LEFT"
    # No node heard it for a whole grace period.
    SILENT = "SILENT"
    # An operator removed it.
    EVICTED = "EVICTED"


class Removal(NamedTuple):
    """Compare-and-set on `session`: a member that has joined again stays."""

    cohort: CohortId
    name: str
    session: MemberSession
    why: RemovalReason


class RemoveMembers(CommandBase, frozen=True, kw_only=True, tag="remove_members"):
    members: tuple[Removal, ...]


class SliceChange(NamedTuple):
    """Partitions that a member's slice gets and loses."""

    member: str
    add: tuple[PartitionId, ...]
    remove: tuple[PartitionId, ...]


class PublishPlan(CommandBase, frozen=True, kw_only=True, tag="publish_plan"):
    """Change slices of members. Compare-and-set on `generation`, that of the present slices."""

    cohort: CohortId
    generation: int
    changes: tuple[SliceChange, ...]


class Drained(NamedTuple):
    """A cohort is through a SEALED partition; `read`: a member settled rows of it in this incarnation."""

    cohort: CohortId
    incarnation: Incarnation
    partition: PartitionId
    read: bool


class MarkDrained(CommandBase, frozen=True, kw_only=True, tag="mark_drained"):
    """Note drained partitions. An item that does not fit the state is left out without a word: its gate
    owner tells it again.
    """

    marks: tuple[Drained, ...]


class SeekCohort(CommandBase, frozen=True, kw_only=True, tag="seek_cohort"):
    """Begin a new incarnation. Compare-and-set on `incarnation`, the present one.

    `positions` are those of kind POSITIONS; partitions that have nothing to do with a named one begin at
    `rest`, without which they are refused.
    """

    cohort: CohortId
    incarnation: Incarnation
    to: StartKind
    positions: tuple[CohortPosition, ...] = ()
    rest: StartKind | None = None


class Begun(NamedTuple):
    """A partition's gate began the incarnation, as its owner of this epoch tells."""

    cohort: CohortId
    incarnation: Incarnation
    partition: PartitionId
    epoch: Epoch


class MarkBegun(CommandBase, frozen=True, kw_only=True, tag="mark_begun"):
    """Note partitions that have begun. Items that do not fit are left out, as in MarkDrained."""

    marks: tuple[Begun, ...]


CohortCommand = (
    CreateCohort
    | ChangeCohort
    | DeleteCohort
    | RegisterMembers
    | RemoveMembers
    | PublishPlan
    | MarkDrained
    | SeekCohort
    | MarkBegun
)

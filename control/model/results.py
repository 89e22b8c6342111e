"""The result of one entry. Results are part of the session table, so they are small and have a fixed form.

The exception is `Refused`: it is never stored there, because a refused entry leaves the state as it is
(I15).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from ringfence.control.model.cohorts import CohortId, Incarnation, MemberSession
from ringfence.control.model.ids import (
    Epoch,
    Index,
    NodeId,
    PartitionId,
    ProducerId,
    ScopeId,
    SessionId,
    TopicId,
)
from ringfence.native.wire import Code


class _Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="is"):
    """Base of all results."""


class Refused(_Result, frozen=True, kw_only=True, tag="refused"):
    """The command changed nothing (I15). `code` is the wire's, `message` names the values and the way out.

    The text is not part of the state, unless the reason of an ended rebalance quotes it: see
    `state_machines.metadata.refusals`.
    """

    code: Code
    message: str


class Done(_Result, frozen=True, kw_only=True, tag="done"):
    """The command was applied and has no values to return."""


class SessionOpened(_Result, frozen=True, kw_only=True, tag="session_opened"):
    """The number of the new session."""

    session: SessionId


class NodeRestarted(_Result, frozen=True, kw_only=True, tag="node_restarted"):
    """`partitions` of the store have `epoch` now; the session is the node's."""

    session: SessionId
    epoch: Epoch
    partitions: int


class NodeRegistered(_Result, frozen=True, kw_only=True, tag="node_registered"):
    node: NodeId


class RingChanged(_Result, frozen=True, kw_only=True, tag="ring_changed"):
    version: int


class ChangesPrepared(_Result, frozen=True, kw_only=True, tag="changes_prepared"):
    """`change` is the number of all of them; `partitions` is 0 if all necessary changes are already open."""

    change: int
    partitions: int


class RebalanceStarted(_Result, frozen=True, kw_only=True, tag="rebalance_started"):
    run: int


class TopicCreated(_Result, frozen=True, kw_only=True, tag="topic_created"):
    topic: TopicId


class SchemaAdded(_Result, frozen=True, kw_only=True, tag="schema_added"):
    schema_id: int


class ProducersOpened(_Result, frozen=True, kw_only=True, tag="producers_opened"):
    """Ids `producer` .. `producer + count - 1` with `epoch`; `previous_epoch` is 0 for the first open."""

    producer: ProducerId
    epoch: Epoch
    count: int = 1
    previous_epoch: Epoch = Epoch(0)


class ScopeBegun(_Result, frozen=True, kw_only=True, tag="scope_begun"):
    """Epochs up to `decided` are committed or expired; stages of epochs up to `committed` are not needed any
    more.
    """

    scope: ScopeId
    driver: Index
    committed: int
    decided: int


class ScopeDecided(_Result, frozen=True, kw_only=True, tag="scope_decided"):
    """`already`: the epoch was committed before."""

    already: bool


class CohortCreated(_Result, frozen=True, kw_only=True, tag="cohort_created"):
    """`already`: a cohort of this name, mode and settings was there before."""

    cohort: CohortId
    already: bool


class RegistrationOutcome(StrEnum):
    # The same instance is registered: its session stays.
    SAME = "SAME"
    # Another session has the name than the one that was to be replaced.
    CONFLICT = "CONFLICT"
    # The instance was replaced by a newer one of its name; it never joins again.
    FENCED = "FENCED"
    # The cohort, or the cluster, has as many members as it may.
    LIMIT = "LIMIT"
    # No such cohort.
    UNKNOWN = "UNKNOWN"


class NotRegistered(NamedTuple):
    """An item that got no new session; `session` is the registered one of its name, 0: none."""

    item: int
    why: RegistrationOutcome
    session: MemberSession


class MembersRegistered(_Result, frozen=True, kw_only=True, tag="members_registered"):
    """Items that are not in `others` got the session that is drawn from the entry and their place."""

    others: tuple[NotRegistered, ...]


class ItemsTaken(_Result, frozen=True, kw_only=True, tag="items_taken"):
    """The number of a batch's items that changed something."""

    count: int


class PlanPublished(_Result, frozen=True, kw_only=True, tag="plan_published"):
    generation: int


class CohortSought(_Result, frozen=True, kw_only=True, tag="cohort_sought"):
    incarnation: Incarnation


class MissedRows(NamedTuple):
    """A cohort that had not drained a partition when it was pruned."""

    cohort: CohortId
    partition: PartitionId


class PartitionsPruned(_Result, frozen=True, kw_only=True, tag="partitions_pruned"):
    """Cohorts that missed rows by the prune. One of a topic without such cohorts has the result `done`."""

    missed: tuple[MissedRows, ...]


class LayoutFinalized(_Result, frozen=True, kw_only=True, tag="layout_finalized"):
    """Registered readers that were not through the sources and waited for no longer; without: `done`."""

    overdue: tuple[str, ...]


# Results of commands of level 3, and of older ones at that level.
RESULTS_OF_LEVEL_3: Final = frozenset(
    {
        "CohortCreated",
        "MembersRegistered",
        "ItemsTaken",
        "PlanPublished",
        "CohortSought",
        "PartitionsPruned",
        "LayoutFinalized",
    }
)
Result = (
    Refused
    | Done
    | SessionOpened
    | NodeRestarted
    | NodeRegistered
    | RingChanged
    | ChangesPrepared
    | RebalanceStarted
    | TopicCreated
    | SchemaAdded
    | ProducersOpened
    | ScopeBegun
    | ScopeDecided
    | CohortCreated
    | MembersRegistered
    | ItemsTaken
    | PlanPublished
    | CohortSought
    | PartitionsPruned
    | LayoutFinalized
)

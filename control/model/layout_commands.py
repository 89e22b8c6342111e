"""Commands of layout changes. Each names its transition, or the version and epochs it was decided on."""

from __future__ import annotations

from typing import NamedTuple

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangeId


class PlannedChild(NamedTuple):
    """Slots `lo` to `hi` of a new partition, and its nodes, the owner first."""

    lo: int
    hi: int
    nodes: tuple[NodeId, ...]


class PrepareLayout(CommandBase, frozen=True, kw_only=True, tag="prepare_layout"):
    """Start a transition: the children shall replace the sources, whose assignments have these epochs.

    `version` is compared for a REPARTITION, which speaks of the whole topic; it is 0 for other kinds.
    """

    topic: TopicId
    kind: TransitionKind
    sources: tuple[tuple[PartitionId, Epoch], ...]
    children: tuple[PlannedChild, ...]
    version: int = 0
    why: str = ""


class HoldLayout(CommandBase, frozen=True, kw_only=True, tag="hold_layout"):
    """The children exist and have inherited most: the owners of the sources may be fenced."""

    change: ChangeId


class CommitLayout(CommandBase, frozen=True, kw_only=True, tag="commit_layout"):
    """The new layout takes effect at this entry.

    `ends` are the final ends of the sources; `created` are the ends of the children, which have inherited
    from the sources up to there. `stopped_us` as in `Transition`.
    """

    change: ChangeId
    ends: tuple[tuple[PartitionId, LogEnd], ...]
    created: tuple[tuple[PartitionId, LogEnd], ...]
    stopped_us: int = 0


class ConfirmLayout(CommandBase, frozen=True, kw_only=True, tag="confirm_layout"):
    """The children take rows, or are left to later changes of their own."""

    change: ChangeId


class AbortLayout(CommandBase, frozen=True, kw_only=True, tag="abort_layout"):
    """End the transition without effect. After a HOLD the sources open again, under this entry's index."""

    change: ChangeId
    why: str


class FinalizeLayout(CommandBase, frozen=True, kw_only=True, tag="finalize_layout"):
    """Forget the transition: its sources are drained, and clients have adopted the new layout.

    `timed_out`: not all clients have, and the leader waited no longer. `waited_ms` is the leader's time
    since the sources were drained. Both are for operators.
    """

    change: ChangeId
    timed_out: bool = False
    waited_ms: int = 0


class PrunePartitions(CommandBase, frozen=True, kw_only=True, tag="prune_partitions"):
    """Remove SEALED partitions without rows from the layout; their stores release them."""

    topic: TopicId
    partitions: tuple[PartitionId, ...]


class SetAutoLayout(CommandBase, frozen=True, kw_only=True, tag="set_auto_layout"):
    """Override limits of automatic splits and merges for a topic; None: the cluster's value holds again."""

    topic: TopicId
    values: dict[str, int | None]


LayoutCommand = (
    PrepareLayout
    | HoldLayout
    | CommitLayout
    | ConfirmLayout
    | AbortLayout
    | FinalizeLayout
    | PrunePartitions
    | SetAutoLayout
)

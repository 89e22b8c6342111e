"""Commands of changes. Each names the change it is about, or the epoch that it was decided on."""

from __future__ import annotations

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.reassignments import ChangeId, LogEnd, Proof


class PrepareChange(CommandBase, frozen=True, kw_only=True, tag="prepare_change"):
    """Intent: partition `partition`, whose assignment has `epoch`, shall have these nodes and this owner.

    Within a rebalance `run` it is the next try of that partition's move.
    """

    topic: TopicId
    partition: PartitionId
    epoch: Epoch
    owner: NodeId
    replicas: tuple[NodeId, ...]
    run: Index = Index(0)


class FailOver(CommandBase, frozen=True, kw_only=True, tag="fail_over"):
    """Every replicated partition that the failed node owns shall get an owner from its majority.

    Aborts what else was under way with them. `changed` is the entry that failed the node.
    """

    node: NodeId
    changed: Index


class HoldChange(CommandBase, frozen=True, kw_only=True, tag="hold_change"):
    """Everything is copied: the owner may be fenced."""

    partition: PartitionId
    change: ChangeId


class CommitChange(CommandBase, frozen=True, kw_only=True, tag="commit_change"):
    """The change holds from this entry on, whose index is the owner's new epoch.

    `end` is S: the end of the fenced owner's log, or of the most advanced replica. `proofs` are what stores
    said; the machine checks that they are enough. `rows` and `bytes` were copied, for people; `stopped_us` as
    in `Change`.
    """

    partition: PartitionId
    change: ChangeId
    epoch: Epoch
    owner: NodeId
    end: LogEnd
    proofs: tuple[Proof, ...]
    rows: int = 0
    bytes: int = 0
    stopped_us: int = 0


class ForceOwner(CommandBase, frozen=True, kw_only=True, tag="force_owner"):
    """An operator's choice of an owner without a majority; `accepts` says what may be lost by it.

    `replicas` are the nodes from then on, the owner among them: others take the place of those that are lost,
    for the owner serves only with a majority. Empty: the same as before. Who is none any more keeps what it
    has, nobody tells it to give that back: it may be all that is left of what was lost.
    """

    partition: PartitionId
    change: ChangeId
    owner: NodeId
    accepts: str
    replicas: tuple[NodeId, ...] = ()


class ConfirmOpened(CommandBase, frozen=True, kw_only=True, tag="confirm_opened"):
    """The owner takes appends under the assignment's epoch."""

    partition: PartitionId
    change: ChangeId
    epoch: Epoch


class CleanChange(CommandBase, frozen=True, kw_only=True, tag="clean_change"):
    """The change is over; stores that left keep their rows for the hold time, then they give them back.

    `gap_us` is from the last acknowledgement of the owner before to the first one of the new owner, None if
    nobody wrote, or a node did not say.
    """

    partition: PartitionId
    change: ChangeId
    gap_us: int | None = None


class ReleaseKept(CommandBase, frozen=True, kw_only=True, tag="release_kept"):
    """The hold time of these (partition, change) is over: they are not reversed any more."""

    kept: tuple[tuple[PartitionId, ChangeId], ...]


class AbortChange(CommandBase, frozen=True, kw_only=True, tag="abort_change"):
    """Not now: everything as before. After a HOLD the owner opens anew, under this entry's index."""

    partition: PartitionId
    change: ChangeId
    why: str


class ChangeSteps(CommandBase, frozen=True, kw_only=True, tag="change_steps"):
    """Steps of different partitions' changes in one entry: a node that failed may have owned thousands.

    Each step is judged by itself, and one that is refused holds no other up. From level 1 on.
    """

    steps: tuple[CommitChange | ConfirmOpened | CleanChange, ...]


class ConfirmLeft(CommandBase, frozen=True, kw_only=True, tag="confirm_left"):
    """A store has done what a change left for it to do."""

    partition: PartitionId
    change: ChangeId
    store: bytes


ChangeCommand = (
    PrepareChange
    | FailOver
    | HoldChange
    | CommitChange
    | ForceOwner
    | ConfirmOpened
    | CleanChange
    | ReleaseKept
    | AbortChange
    | ChangeSteps
    | ConfirmLeft
)

"""Commands of changes. Each names its change, or the epoch that it was decided on."""

from __future__ import annotations

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.reassignments import ChangeId, LogEnd, Proof


class PrepareChange(CommandBase, frozen=True, kw_only=True, tag="prepare_change"):
    """Start a change: partition `partition`, whose assignment has `epoch`, shall have these nodes and this
    owner.

    Within a rebalance `run` it is the next try of that partition's move.
    """

    topic: TopicId
    partition: PartitionId
    epoch: Epoch
    owner: NodeId
    replicas: tuple[NodeId, ...]
    run: Index = Index(0)


class FailOver(CommandBase, frozen=True, kw_only=True, tag="fail_over"):
    """Start a failover of every replicated partition that the failed node owns.

    It aborts open planned changes of these partitions. `changed` is the entry that failed the node.
    """

    node: NodeId
    changed: Index


class HoldChange(CommandBase, frozen=True, kw_only=True, tag="hold_change"):
    """The targets have all records: the owner may be fenced."""

    partition: PartitionId
    change: ChangeId


class CommitChange(CommandBase, frozen=True, kw_only=True, tag="commit_change"):
    """The change takes effect at this entry, whose index is the owner's new epoch.

    `end` is S: the end of the fenced owner's log, or of the most advanced replica. `proofs` are statements
    of stores about their logs; the machine checks that they suffice. `rows` and `bytes` count the copied
    data, for operators; `stopped_us` as in `Change`.
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
    """An operator's choice of an owner without a majority; `accepts` states the possible losses.

    `replicas` are the nodes from then on, the owner among them: others replace those that are lost, since
    the owner serves only with a majority. Empty: the same as before. Former replicas keep their rows and
    get no order to drop them: these may be the last copies of lost rows.
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
    """End the change; stores that left keep their rows for the hold time, then release them.

    `gap_us` is the time from the last acknowledgement of the former owner to the first one of the new
    owner. None: no batch was written, or a node did not measure it.
    """

    partition: PartitionId
    change: ChangeId
    gap_us: int | None = None


class ReleaseKept(CommandBase, frozen=True, kw_only=True, tag="release_kept"):
    """The hold time of these (partition, change) is over: they cannot be reversed any more."""

    kept: tuple[tuple[PartitionId, ChangeId], ...]


class AbortChange(CommandBase, frozen=True, kw_only=True, tag="abort_change"):
    """End the change without effect. After a HOLD the owner opens again, under this entry's index."""

    partition: PartitionId
    change: ChangeId
    why: str


class ChangeSteps(CommandBase, frozen=True, kw_only=True, tag="change_steps"):
    """Steps of different partitions' changes in one entry: a failed node may have owned thousands of
    partitions.

    Each step is checked by itself, and a refused one does not stop the others. From level 1 on.
    """

    steps: tuple[CommitChange | ConfirmOpened | CleanChange, ...]


class ConfirmLeft(CommandBase, frozen=True, kw_only=True, tag="confirm_left"):
    """A store has executed a leftover of a change."""

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

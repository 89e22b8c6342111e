"""Define the orders of a coordinator to nodes, their answers, and the conditions to execute an order.

Orders are values. Each may be lost, repeated or late. Orders carry the leader's term and the change's
number. A node executes an order only while the change is open in the order's phase by the node's own
log. It never executes an order of an older term than it has seen. So an order that arrives after the
end of its change has no effect, whichever node sent it.

Steps that follow from the log alone have no order here: adopt and open after a COMMIT, open after an
ABORT, drop the leftovers of a change (`state_machines.orders`, `state_machines.reassignment.cleanup`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica


class _Order(msgspec.Struct, frozen=True, kw_only=True, tag_field="order"):
    """Base of all orders. The store `to` executes the order. `change` is 0 in an order that only asks."""

    to: Replica
    topic: TopicId
    partition: PartitionId
    change: ChangeId
    attempt: int = 1


class Receive(_Order, frozen=True, kw_only=True, tag="receive"):
    """A target prepares to receive the copy of `owner`. The copy does not count before the COMMIT."""

    owner: Replica


class Sync(_Order, frozen=True, kw_only=True, tag="sync"):
    """The owner sends to `target` all new records, and older ones at `bytes_per_s` at most (0: no limit).

    A repeated order is answered with the progress of the copy, and may set another rate.
    """

    target: Replica
    bytes_per_s: int = 0


class Fence(_Order, frozen=True, kw_only=True, tag="fence"):
    """Refuse appends and orders below the change's number, durably, and answer with the end of the log."""


class Prove(_Order, frozen=True, kw_only=True, tag="prove"):
    """Answer with the end of the contiguous, durable log, once the log has `records` records."""

    records: int


class LookOpen(_Order, frozen=True, kw_only=True, tag="look_open"):
    """Ask whether the owner takes appends under `epoch`."""

    epoch: Epoch


ReassignmentOrder = Receive | Sync | Fence | Prove | LookOpen


class _Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer"):
    """Base of all answers."""


class OrderDone(_Answer, frozen=True, kw_only=True, tag="ready"):
    """The order is executed, now or before.

    `first_us` is set by a LookOpen: the time at which the first batch under its epoch was
    acknowledged, in Unix us by the node's wall clock. It is 0 before the first batch, and where the
    node does not measure it. After a 0 the leader asks again, for a second at most. The native node
    returns it for an open partition from `partitions()`, as `first_acknowledged_us`.
    """

    first_us: int = 0


class SyncState(StrEnum):
    COPYING = "COPYING"
    # The target has every record, except for those on their way.
    CONTIGUOUS = "CONTIGUOUS"
    FAILED = "FAILED"


class Synced(_Answer, frozen=True, kw_only=True, tag="synced"):
    """Progress of a copy. `gap` counts the records that the target lacks; `why` is the reason of a failed
    or slow copy.
    """

    state: SyncState
    rows: int = 0
    bytes: int = 0
    gap: int = 0
    why: str = ""


class Ended(_Answer, frozen=True, kw_only=True, tag="ended"):
    """The end of a log; `cut` as in `Proof`.

    `stopped_us` is set by the Fence of a planned change, in Unix us by the node's wall clock; 0 where
    the node does not measure it. It is the time of the owner's last acknowledgement, or of its first
    refusal if that is later: so an idle partition has no gap as long as its idle time. The native node
    returns it as `stopped_us` of the outcome of `hold`.

    `lacks`, of a replica in a failover: partitions that the partition came from, and whose last page the log
    does not have. As owner it inherits from them before it takes rows.
    """

    end: LogEnd
    cut: bool = False
    stopped_us: int = 0
    lacks: tuple[PartitionId, ...] | UnsetType = UNSET


class Failed(_Answer, frozen=True, kw_only=True, tag="failed"):
    """The node refuses the order, or cannot execute it: a repeat changes nothing."""

    why: str


ReassignmentAnswer = OrderDone | Synced | Ended | Failed


class OrderVerdict(StrEnum):
    """A node's verdict on an order, by its own log."""

    EXECUTE = "EXECUTE"
    # The node's log is older than the order: apply more entries first.
    LATER = "LATER"
    # The change is over or in another phase, or the order is for another store.
    NEVER = "NEVER"


def evaluate_order(
    state: MetadataState, applied: int, order: ReassignmentOrder, here: Replica
) -> OrderVerdict:
    """Whether the node at `here`, which has applied the entries up to `applied`, executes the order."""
    if order.to != here:
        return OrderVerdict.NEVER
    if isinstance(order, LookOpen):
        return OrderVerdict.EXECUTE
    change = state.changes.get(order.partition)
    if change is None or change.change < order.change:
        return OrderVerdict.LATER if applied < order.change else OrderVerdict.NEVER
    if change.change > order.change or change.is_committed or change.kind is ChangeKind.SEAL:
        return OrderVerdict.NEVER
    if not _is_addressee(state, change, order):
        return OrderVerdict.NEVER
    if isinstance(order, Fence | Prove) and change.kind is not ChangeKind.FAILOVER:
        return OrderVerdict.EXECUTE if change.phase is ChangePhase.HELD else OrderVerdict.LATER
    return OrderVerdict.EXECUTE


def _is_addressee(state: MetadataState, change: Change, order: ReassignmentOrder) -> bool:
    owner = state.topics[change.topic].assignments[change.partition].owner
    match order:
        case Receive(to=to):
            return to in change.adds
        case Sync(to=to, target=target):
            return to == owner and target in change.adds
        case Fence(to=to):
            return to in change.replicas if change.kind is ChangeKind.FAILOVER else to == owner
        case Prove(to=to):
            return to in change.replicas
        case LookOpen():
            return True

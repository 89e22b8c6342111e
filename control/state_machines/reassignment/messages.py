"""What a coordinator asks of nodes for a change, what they answer, and when a node does what it is asked.

Orders are values; each may be lost, repeated and late. They carry the leader's term and the change's number.
A node obeys one only while its own log has the change open in the phase that the order belongs to, and never
one of an older term than it has seen: so an order that outlived its change does nothing, whoever sent it.

What follows from the log alone nobody orders: adopt and open after a COMMIT, open after an ABORT, give back
what a change left (`machines.orders`, `machines.change_steps`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind, ChangePhase, LogEnd
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica


class _Order(msgspec.Struct, frozen=True, kw_only=True, tag_field="order"):
    """`to` obeys. `change` is 0 for what is only a question."""

    to: Replica
    topic: TopicId
    partition: PartitionId
    change: ChangeId
    attempt: int = 1


class Receive(_Order, frozen=True, kw_only=True, tag="receive"):
    """A target makes room for what `owner` will send; nothing of it counts before the COMMIT."""

    owner: Replica


class Sync(_Order, frozen=True, kw_only=True, tag="sync"):
    """The owner sends everything new to `target`, and what was before, at most `bytes_per_s` of it (0 = any).

    Asked again it tells how far that is, and takes a new rate.
    """

    target: Replica
    bytes_per_s: int = 0


class Fence(_Order, frozen=True, kw_only=True, tag="fence"):
    """Take no append and no order below the change's number, durably; tell where the log ends."""


class Prove(_Order, frozen=True, kw_only=True, tag="prove"):
    """Tell where the contiguous, durable log ends, once it has reached `records`."""

    records: int


class LookOpen(_Order, frozen=True, kw_only=True, tag="look_open"):
    """Does the owner take appends under `epoch`?"""

    epoch: Epoch


Order = Receive | Sync | Fence | Prove | LookOpen


class _Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer"):
    """Base of all answers."""


class Ready(_Answer, frozen=True, kw_only=True, tag="ready"):
    """Done, or so already.

    `first_us`, of a LookOpen: when the first batch under its epoch was acknowledged, Unix us by the wall
    clock of the node; 0 while there was none, or where the node does not measure it. With 0 the question is
    asked again, for a second at the most. Contract with the native node: `partitions()` tells it for an open
    partition as `first_acknowledged_us`.
    """

    first_us: int = 0


class SyncState(StrEnum):
    COPYING = "COPYING"
    CONTIGUOUS = "CONTIGUOUS"
    """The target has every record, but for those on their way."""
    FAILED = "FAILED"


class Synced(_Answer, frozen=True, kw_only=True, tag="synced"):
    """How far a target is. `gap` counts the records that it lacks."""

    state: SyncState
    rows: int = 0
    bytes: int = 0
    gap: int = 0
    why: str = ""


class Ended(_Answer, frozen=True, kw_only=True, tag="ended"):
    """Where a log ends; `cut` as in `Proof`.

    `stopped_us`, of the Fence of a planned change: when the owner gave its last acknowledgement, or began to
    refuse if that was later (an idle partition has no gap as long as its idleness); Unix us by the wall clock
    of the node, 0 where it does not measure it. Contract with the native node: the outcome of `hold` tells it
    as `stopped_us`.
    """

    end: LogEnd
    cut: bool = False
    stopped_us: int = 0


class Failed(_Answer, frozen=True, kw_only=True, tag="failed"):
    """The node will not, or cannot: asking again changes nothing."""

    why: str


Answer = Ready | Synced | Ended | Failed


class Standing(StrEnum):
    """What a node makes of an order, by its own log."""

    OBEY = "OBEY"
    LATER = "LATER"
    """Its log is behind the order: apply more first."""
    NEVER = "NEVER"
    """The change is over, in another phase, or not with this store."""


def standing(state: MetadataState, applied: int, order: Order, here: Replica) -> Standing:
    """Whether the node at `here`, which has applied the entries up to `applied`, obeys."""
    if order.to != here:
        return Standing.NEVER
    if isinstance(order, LookOpen):
        return Standing.OBEY
    change = state.changes.get(order.partition)
    if change is None or change.change < order.change:
        return Standing.LATER if applied < order.change else Standing.NEVER
    if change.change > order.change or change.is_committed:
        return Standing.NEVER
    if not _has_part(state, change, order):
        return Standing.NEVER
    if isinstance(order, Fence | Prove) and change.kind is not ChangeKind.FAILOVER:
        return Standing.OBEY if change.phase is ChangePhase.HELD else Standing.LATER
    return Standing.OBEY


def _has_part(state: MetadataState, change: Change, order: Order) -> bool:
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

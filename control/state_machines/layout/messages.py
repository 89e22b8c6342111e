"""Define the orders of a layout change, their answers, and the conditions to execute an order.

Orders are values. Each may be lost, repeated or late. One order goes to a node in each step, whatever the
number of partitions: the node's own log says which ones it has. A node answers when all are done, or soon
after the first, and gives what is done when it is asked again.

The node judges an order in the same turn of its loop in which it hands the work to its engine. A created
child is durable: an order that was judged before an ABORT and carried out after it would leave files that
nothing lists.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.layout_checks import waiting_scope
from ringfence.control.state_machines.reassignment.messages import Failed, OrderDone, OrderVerdict


class _Order(msgspec.Struct, frozen=True, kw_only=True, tag_field="order"):
    """Base of all orders. The store `to` executes the order."""

    to: Replica
    topic: TopicId
    change: ChangeId
    partition: PartitionId = PartitionId(0)
    attempt: int = 1


class CreateChild(_Order, frozen=True, kw_only=True, tag="create_child"):
    """Host the children that have a place here, under the transition's number, unseen by clients.

    Answered by `Created`, with the children that this store owns.
    """


class Inherit(_Order, frozen=True, kw_only=True, tag="inherit"):
    """Fetch the producer tables of the sources for the children that this store owns, and append them.

    `ends`: up to these ends of the fenced sources; None: what there is, while the sources take rows.
    """

    ends: tuple[tuple[PartitionId, LogEnd], ...] | None = None


class Seal(_Order, frozen=True, kw_only=True, tag="seal"):
    """Fence the sources that this store owns, durably, at the transition's number."""


class LookLayout(_Order, frozen=True, kw_only=True, tag="look_layout"):
    """Answer with OrderDone once this store's part is as the phase needs it; see `is_settled`."""

    is_committed: bool = False


LayoutOrder = CreateChild | Inherit | Seal | LookLayout


class _Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer"):
    """Base of all answers."""


class Created(_Answer, frozen=True, kw_only=True, tag="created"):
    """Children of this owner whose first record is on a quorum."""

    children: tuple[tuple[PartitionId, LogEnd], ...]


class Inherited(_Answer, frozen=True, kw_only=True, tag="inherited"):
    """Children of this owner that have inherited on a quorum.

    `reader_bytes` are the sizes of what readers' gates of a source would add to its heir, without `ends`.
    """

    children: tuple[tuple[PartitionId, LogEnd], ...]
    reader_bytes: tuple[tuple[PartitionId, int], ...] = ()


class SealedEnds(_Answer, frozen=True, kw_only=True, tag="sealed"):
    """Sources of this owner that are fenced: their ends, and the times of their last acknowledgements,
    Unix us.
    """

    sources: tuple[tuple[PartitionId, LogEnd, int], ...]


LayoutAnswer = Created | Inherited | SealedEnds | OrderDone | Failed


def evaluate_order(state: MetadataState, applied: int, order: LayoutOrder, here: Replica) -> OrderVerdict:
    """Whether the node at `here`, which has applied the entries up to `applied`, executes the order."""
    if order.to != here:
        return OrderVerdict.NEVER
    if isinstance(order, LookLayout):
        return OrderVerdict.EXECUTE
    transition = state.transitions.get(order.change)
    if transition is None:
        return OrderVerdict.LATER if applied < order.change else OrderVerdict.NEVER
    if not transition.may_abort or not _is_addressee(state, transition, order):
        return OrderVerdict.NEVER
    needs_hold = isinstance(order, Seal) or (isinstance(order, Inherit) and order.ends is not None)
    if needs_hold and transition.phase is not ChangePhase.HELD:
        return OrderVerdict.LATER
    if isinstance(order, Seal) and waiting_scope(state, own_sources(state, transition, here)) is not None:
        return OrderVerdict.LATER  # the owner publishes these rows first
    return OrderVerdict.EXECUTE


class LocalPartitions(Protocol):
    """What a node's engine knows of its partitions."""

    def has_stages(self, partition: PartitionId) -> bool:
        """Whether rows are staged in it, and not decided."""
        ...

    def is_open(self, partition: PartitionId, epoch: Epoch) -> bool:
        """Whether it takes rows under this owner epoch."""
        ...

    def is_quarantined(self, partition: PartitionId) -> bool: ...


def is_settled(state: MetadataState, order: LookLayout, here: Replica, local: LocalPartitions) -> bool:
    """Before the HOLD: no source that this store owns has open stages. After the COMMIT: each child that it
    owns takes rows, or never will by this change: it is sealed by a later one, pruned, or quarantined.

    A node that has not applied the COMMIT knows nothing of its children's owners.
    """
    transition = state.transitions.get(order.change)
    if transition is None or transition.may_abort == order.is_committed:
        return False
    if transition.may_abort:
        return not any(map(local.has_stages, own_sources(state, transition, here)))
    topic = state.topics[transition.topic]
    for child in transition.children:
        number, assignment = child.partition, topic.assignments.get(child.partition)
        if assignment is None or assignment.owner != here or topic.seal(number) is not None:
            continue
        if not local.is_quarantined(number) and not local.is_open(number, assignment.epoch):
            return False
    return True


def own_sources(state: MetadataState, transition: Transition, here: Replica) -> set[PartitionId]:
    """Sources of a transition before its COMMIT that this store owns."""
    assignments = state.topics[transition.topic].assignments
    return {source for source in transition.sources if assignments[source].owner == here}


def _is_addressee(state: MetadataState, transition: Transition, order: LayoutOrder) -> bool:
    match order:
        case CreateChild(to=to):
            return any(to in child.replicas for child in transition.children)
        case Inherit(to=to):
            return to in transition.owners
        case Seal(to=to):
            return bool(own_sources(state, transition, to))
        case LookLayout():
            return True

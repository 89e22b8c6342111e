"""Define changes of the configuration, and encode them in entries."""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec import Struct

from ringfence.control.consensus.errors import MalformedMessageError
from ringfence.control.consensus.messages import Entry, EntryType, Number

# Operations of one change, which names voters and learners of one cluster. Larger ones need several changes.
OPERATIONS_MAX: Final = 64


class Operation(enum.IntEnum):
    """An operation on one node."""

    # Add the node as a voter, or promote a learner.
    VOTER = 0
    REMOVE = 1
    # Change nothing here; the application may have a new address of the node.
    UPDATE = 2
    # Add the node as a learner, or demote a voter.
    LEARNER = 3


class Transition(enum.IntEnum):
    """The end of a change with joint consensus. A single operation needs no joint consensus."""

    # Joint only if there are several operations; left automatically.
    AUTO = 0
    # Joint, left automatically.
    JOINT_IMPLICIT = 1
    # Joint until an empty change is proposed.
    JOINT_EXPLICIT = 2


class NodeChange(Struct, frozen=True, array_like=True):
    """One operation on one node."""

    operation: Operation
    node: Number


class Change(Struct, frozen=True, array_like=True):
    """Operations of one change. No operation with an automatic transition: leave the joint configuration."""

    operations: tuple[NodeChange, ...] = ()
    transition: Transition = Transition.AUTO

    @property
    def leaves_joint(self) -> bool:
        return not self.operations and self.transition is Transition.AUTO

    @property
    def enters_joint(self) -> bool:
        return self.transition is not Transition.AUTO or len(self.operations) > 1

    @property
    def auto_leave(self) -> bool:
        return self.transition is not Transition.JOINT_EXPLICIT


LEAVE_JOINT: Final = Change()
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Change)


def to_entry(change: Change, *, version_1: bool = False) -> Entry:
    """The entry that proposes `change`. Version 1 has exactly one operation and no transition."""
    assert not version_1 or (len(change.operations) == 1 and change.transition is Transition.AUTO), change
    return Entry(type=EntryType.CHANGE_V1 if version_1 else EntryType.CHANGE, data=_ENCODER.encode(change))


def from_entry(entry: Entry) -> Change:
    """Decode the change in an entry.

    Raises:
        MalformedMessageError: the entry has no valid change.
    """
    assert entry.type is not EntryType.NORMAL, f"entry {entry.index} holds no change"
    try:
        change = _DECODER.decode(entry.data)
    except msgspec.MsgspecError as error:
        raise MalformedMessageError(f"entry {entry.index} holds no change: {error}") from error
    if len(change.operations) > OPERATIONS_MAX:
        raise MalformedMessageError(
            f"entry {entry.index} has {len(change.operations)} operations, {OPERATIONS_MAX} is the limit; "
            "make several changes"
        )
    return change

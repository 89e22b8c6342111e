"""What a change of the configuration says, and its bytes in an entry."""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec import Struct

from ringfence.control.consensus.errors import MalformedMessageError
from ringfence.control.consensus.messages import Entry, EntryType, Number

OPERATIONS_MAX: Final = 64
"""Of one change: it names voters and learners of one cluster; more are several changes."""


class Operation(enum.IntEnum):
    """What happens to one node."""

    VOTER = 0
    """It is added as a voter, or a learner becomes one."""
    REMOVE = 1
    UPDATE = 2
    """Nothing changes here; the application may have a new address for it."""
    LEARNER = 3
    """It is added as a learner, or a voter becomes one."""


class Transition(enum.IntEnum):
    """How a change with joint consensus ends. One operation alone needs none, unless it is asked for."""

    AUTO = 0
    """Joint only if there are several operations; left by itself."""
    JOINT_IMPLICIT = 1
    """Joint, left by itself."""
    JOINT_EXPLICIT = 2
    """Joint until an empty change is proposed."""


class NodeChange(Struct, frozen=True, array_like=True):
    """One operation on one node."""

    operation: Operation
    node: Number


class Change(Struct, frozen=True, array_like=True):
    """Some operations. None, and an automatic transition, means: leave the joint configuration."""

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
    """A proposal of `change`. Version 1 holds exactly one operation and no transition."""
    assert not version_1 or (len(change.operations) == 1 and change.transition is Transition.AUTO), change
    return Entry(type=EntryType.CHANGE_V1 if version_1 else EntryType.CHANGE, data=_ENCODER.encode(change))


def from_entry(entry: Entry) -> Change:
    """The change that an entry holds.

    Raises:
        MalformedMessageError: it holds none.
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

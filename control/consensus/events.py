"""What can happen to a node. Values, so that a driver can record them and run them again."""

from __future__ import annotations

from msgspec import Struct

from ringfence.control.consensus.changes import Change
from ringfence.control.consensus.messages import Message


class Tick(Struct, frozen=True, tag=True):
    """One unit of time has passed."""


class Received(Struct, frozen=True, tag=True):
    """A message came: from a node, or from a storage thread that has done its work."""

    message: Message


class Propose(Struct, frozen=True, tag=True):
    """Commit these data, each an entry, together: one message to each follower, one write."""

    data: tuple[bytes, ...]


class ProposeChange(Struct, frozen=True, tag=True):
    """Commit a change of the configuration. `version_1`: one operation, in the older kind of entry."""

    change: Change
    version_1: bool = False


class Read(Struct, frozen=True, tag=True):
    """From which index on does the state answer a read that is asked now? See `Ready.read_states`.

    `context` is handed back; it must be unique for this node. An answer may be lost with a message or a
    leader: ask again after a time-out.
    """

    context: bytes


class Transfer(Struct, frozen=True, tag=True):
    """Hand leadership over to a voter.

    If it does not take over within an election time-out nothing happens.
    """

    to: int


class Campaign(Struct, frozen=True, tag=True):
    """Try to become leader now."""


class StorageFull(Struct, frozen=True, tag=True):
    """Storage finds no space, or finds some again.

    Who cannot write does not campaign. A leader hands over to a voter that can, if the others are a majority
    without it; if nobody takes over within an election time-out, it steps down. Tell it again while it lasts:
    they may be a majority later.
    """

    full: bool


class ForgetLeader(Struct, frozen=True, tag=True):
    """The leader is known to be gone: vote for others without waiting for its lease."""


class Unreachable(Struct, frozen=True, tag=True):
    """Messages to `peer` did not arrive."""

    peer: int


class SnapshotSent(Struct, frozen=True, tag=True):
    """A snapshot message to `peer` has arrived, or failed."""

    peer: int
    ok: bool


Event = (
    Tick
    | Received
    | Propose
    | ProposeChange
    | Read
    | Transfer
    | Campaign
    | StorageFull
    | ForgetLeader
    | Unreachable
    | SnapshotSent
)

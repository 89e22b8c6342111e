"""Define the events of a node, as values, so that a driver can record and replay them."""

from __future__ import annotations

from msgspec import Struct

from ringfence.control.consensus.configuration_changes import Change
from ringfence.control.consensus.messages import Message


class Tick(Struct, frozen=True, tag=True):
    """One unit of time has passed."""


class Received(Struct, frozen=True, tag=True):
    """A message arrived: from a node, or from a storage thread that has done its work."""

    message: Message


class Propose(Struct, frozen=True, tag=True):
    """Commit these data, each an entry, together: one message to each follower, one write."""

    data: tuple[bytes, ...]


class ProposeChange(Struct, frozen=True, tag=True):
    """Commit a change of the configuration. `version_1`: one operation, in the older kind of entry."""

    change: Change
    version_1: bool = False


class Read(Struct, frozen=True, tag=True):
    """Request the index at which the state answers a read that starts now. See `Ready.read_states`.

    The answer returns `context`, which must be unique for this node. An answer may be lost with a message or
    a leader: ask again after a timeout.
    """

    context: bytes


class Transfer(Struct, frozen=True, tag=True):
    """Transfer leadership to a voter.

    If the voter does not take over within an election timeout, the leader stays.
    """

    to: int


class Campaign(Struct, frozen=True, tag=True):
    """Try to become leader now."""


class StorageFull(Struct, frozen=True, tag=True):
    """Storage has no space, or has space again.

    A node without space does not campaign. A leader without space transfers leadership to another voter, if
    the others are a majority without it; if no voter takes over within an election timeout, it steps down.
    The driver repeats the event while the disk is full: the others may become a majority later.
    """

    full: bool


class ForgetLeader(Struct, frozen=True, tag=True):
    """The leader is known to have failed: vote for others without waiting for its lease."""


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

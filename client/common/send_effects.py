"""What `inflight` asks for, and what it finds out. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError


class Identity(NamedTuple):
    """A producer as the nodes know it; sequences count per (identity, partition)."""

    producer_id: int
    producer_epoch: int


class Transmit(NamedTuple):
    """Send this batch now. Its answer comes back with `key` and `attempt`: one to an older try is left."""

    key: int
    attempt: int
    partition: int
    identity: Identity
    sequence: int
    deadline: float


class Done(NamedTuple):
    """The batch is stored once, on disk."""

    key: int
    first_offset: int


class Refused(NamedTuple):
    """The batch is not stored, and never will be."""

    key: int
    error: RingfenceError


class Unknown(NamedTuple):
    """The batch may be stored: an answer was lost, and the same sequence cannot be asked about any more."""

    key: int
    error: RingfenceError


class FetchTable(NamedTuple):
    """A node knows a newer layout or owner. Fetch the table, then call `table_arrived`."""

    generation: int


class OpenEpoch(NamedTuple):
    """Everything under the old identity has its outcome. Draw a new identity, then call `opened`."""


Outcome = Done | Refused | Unknown
Effect = Outcome | FetchTable | OpenEpoch

"""Effects and outcomes that `Inflight` returns. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError


class Identity(NamedTuple):
    """A producer's id and epoch at the nodes; sequences count per (identity, partition)."""

    producer_id: int
    producer_epoch: int


class Transmit(NamedTuple):
    """Send this batch now.

    Its answer is reported with `key` and `attempt`; answers to older tries are ignored.
    """

    key: int
    attempt: int
    partition: int
    identity: Identity
    sequence: int
    deadline: float


class BatchStored(NamedTuple):
    """The batch is stored once, on disk."""

    key: int
    first_offset: int


class BatchRefused(NamedTuple):
    """The batch is not stored, and never will be."""

    key: int
    error: RingfenceError


class BatchUnknown(NamedTuple):
    """The batch may be stored: an answer was lost, and the outcome can no longer be queried."""

    key: int
    error: RingfenceError


class FetchTable(NamedTuple):
    """A node has a newer layout or owner. Fetch the table, then call `table_arrived`."""

    generation: int


class OpenEpoch(NamedTuple):
    """All batches of the old identity have an outcome. Draw a new identity, then call `opened`."""


Outcome = BatchStored | BatchRefused | BatchUnknown
Effect = Outcome | FetchTable | OpenEpoch

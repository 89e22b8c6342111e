"""Effects and outcomes that `Inflight` returns. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError


class Identity(NamedTuple):
    """A producer's id and epoch at the nodes; sequences count per (identity, partition)."""

    producer_id: int
    producer_epoch: int


class StageToken(NamedTuple):
    """The token of one attempt of a transaction; sequences count per (token, partition)."""

    token: bytes


SequenceOwner = Identity | StageToken
"""Whose sequences a partition counts. Only the identity of an unnamed producer is ever replaced."""


class Sealed(NamedTuple):
    """What the owner of a sealed partition says about one identity; it is final.

    `stored` is how many sequences are stored there: those below it. None: nobody can tell any more.
    `answers`: (sequence, first offset) of the newest of them. `version`: the least version of a table that
    names the children.
    """

    stored: int | None
    answers: tuple[tuple[int, int], ...]
    version: int


class Piece(NamedTuple):
    """What a layout change makes of a batch, or of a part of it: a batch of a newer partition.

    `slot`: of its first row.
    """

    key: int
    partition: int
    slot: int


class Transmit(NamedTuple):
    """Send this batch now.

    Its answer is reported with `key` and `attempt`; answers to older tries are ignored.
    """

    key: int
    attempt: int
    partition: int
    identity: SequenceOwner
    sequence: int
    deadline: float

    @property
    def producer(self) -> Identity:
        """The identity of a producer; an attempt of a transaction has none."""
        assert isinstance(self.identity, Identity)
        return self.identity


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
    """A node has a newer layout or owner. Fetch the table, then call `table_arrived`.

    `version`: the least version of the layout that helps; 0: any newer table.
    """

    generation: int
    version: int = 0


class OpenEpoch(NamedTuple):
    """All batches of the old identity have an outcome. Draw a new identity, then call `opened`."""


class JoinBatches(NamedTuple):
    """Two batches of one send of a named producer wait in one partition; they must be one batch there.

    Join the rows, `first` before `second`, then call `joined`, or `not_joined`.
    """

    first: int
    second: int


Outcome = BatchStored | BatchRefused | BatchUnknown
Effect = Outcome | FetchTable | OpenEpoch | JoinBatches

"""What a member of a QUEUE asks nodes for, beside what `calls.py` has, and their replies. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple


class What(IntEnum):
    """What became of rows, as in the lines of an ACKNOWLEDGE."""

    DONE = 0
    FAILED = 1
    RELEASED = 2
    EXTENDED = 3
    PARKED = 4
    BEGUN = 5
    GONE = 6


# Said of rows that stay on lease: nothing is written, so such an ACKNOWLEDGE may go beside another one.
OF_LEASES = frozenset({What.EXTENDED, What.BEGUN})


class NotTakenBecause(IntEnum):
    """Why rows of an ACKNOWLEDGE were not taken; PARKED: they were, and are parked by it."""

    ON_LEASE = 1
    OTHER_COUNT = 2
    OTHER_ROWS = 3
    NO_ROOM = 4
    PARKED = 5


class QueueFetch(NamedTuple):
    """Rows of whatever partition a node has some of. `rows_max` 0: no limit but the bytes."""

    number: int
    node: int
    bytes_max: int
    rows_max: int
    poll_s: float


class Line(NamedTuple):
    """Rows `first` .. `end - 1` on lease; `epoch` of the last one, 0: not known.

    `failures`: deliveries that ended badly. `is_again`: the connection of who had them ended; they are given
    only after the owner has heard so.
    """

    first: int
    end: int
    epoch: int
    failures: int
    is_again: bool


@dataclass(frozen=True, slots=True)
class Leased:
    """Rows on lease to this member; no lines: none until the deadline.

    `start` .. `end - 1` are the rows of the records in `body`. `is_elsewhere`: the records are at the
    partition's own owner.
    """

    partition: int
    incarnation: int
    start: int
    end: int
    lines: tuple[Line, ...] = ()
    is_elsewhere: bool = False
    bytes: int = 0
    body: Any = None


class Told(NamedTuple):
    """What became of rows. `failures` is that of their lease."""

    first: int
    end: int
    epoch: int
    what: What
    failures: int = 0
    delay_ms: int = 0
    reason: bytes = b""

    def is_followed_by(self, other: Told) -> bool:
        """Rows that are done, and the next ones: both are one line."""
        are_done = self.what is other.what is What.DONE
        return (
            are_done
            and self.end == other.first
            and self.epoch == other.epoch
            and other.end - self.first < 2**32
        )


class QueueSettle(NamedTuple):
    """Tell the owner of a partition's gate what became of rows. The lines ascend, and share no row."""

    number: int
    node: int
    partition: int
    incarnation: int
    lines: tuple[Told, ...]

    @property
    def is_of_leases(self) -> bool:
        """Whether it may go beside another one."""
        return all(line.what in OF_LEASES for line in self.lines)


class RowsNotTaken(NamedTuple):
    first: int
    end: int
    why: NotTakenBecause


class QueueSettled(NamedTuple):
    """All lines were taken, but for these rows."""

    not_taken: tuple[RowsNotTaken, ...] = ()


class RowsParked(NamedTuple):
    """Rows `first` .. `end - 1` are parked by what this member said of them."""

    partition: int
    first: int
    end: int

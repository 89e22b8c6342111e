"""Places of rows, and what a consumer was configured with. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

FORM: Final = "1"  # of tokens
NUMBER_MAX: Final = 2**64 - 1
Mode = Literal["stream", "queue", "checkpoint"]


class Point(NamedTuple):
    """A place between two rows: the next offset, and the owner epoch of the row before it; 0: not known."""

    offset: int
    epoch: int


class ConsumerPlace(NamedTuple):
    """Rows `first_offset` .. `end_offset - 1` of a partition, stored under `epoch`.

    `fencing_token` is the number of the hold under which they were read. Numbers of a partition ascend, so a
    database that refuses a lower one than it has seen refuses a reader that lost the partition.
    """

    partition: int
    first_offset: int
    end_offset: int
    epoch: int
    fencing_token: int

    @property
    def rows(self) -> int:
        return self.end_offset - self.first_offset

    @property
    def end(self) -> Point:
        """The place after the last row."""
        return Point(self.end_offset, self.epoch)

    def token(self) -> str:
        """The place after the last row as a text to keep in a database; `parse` reads it."""
        numbers = (self.partition, self.end_offset, self.epoch, self.fencing_token)
        return ":".join((FORM, *map(str, numbers)))

    @classmethod
    def parse(cls, token: str) -> ConsumerPlace:
        """The place of a token, without rows: `first_offset` equals `end_offset`.

        Raises:
            InvalidArgumentError: the text is not a token.
        """
        given: object = token
        parts = given.split(":") if isinstance(given, str) else []
        is_sound = len(parts) == 5 and parts[0] == FORM
        if not is_sound or not all(_is_number(part) for part in parts[1:]):
            raise InvalidArgumentError(
                f"a position must be a text that ConsumerPlace.token() gave, such as '{FORM}:7:500:3:12'",
                token=repr(token),
            )
        partition, offset, epoch, fencing_token = map(int, parts[1:])
        return cls(partition, offset, offset, epoch, fencing_token)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= NUMBER_MAX


class TaskKind(Enum):
    """What the application is told, on the thread that iterates."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    DRAIN = "drain"
    # CHECKPOINT: the cohort is further than the application's store; it must say whether that is so.
    POSITION = "position"


class Task(NamedTuple):
    """A callback that is due. `number` tells tasks apart."""

    kind: TaskKind
    partitions: tuple[int, ...]
    number: int


class MemberOptions(NamedTuple):
    """What the state machine of a member needs to know.

    `tells`: callbacks that the application has. `is_checkpoint`: the application's store has the positions,
    so every partition waits for `opened`. `is_auto`: asking for the next batch acknowledges the ones before.
    `rows_max`: QUEUE, rows of one answer; 0: as many as fit.
    `is_named`: the application chose the name.
    """

    name: str
    instance: bytes
    is_checkpoint: bool = False
    is_auto: bool = True
    takeover: bool = False
    skips: bool = False
    bytes_max: int = 64 << 20
    interval_s: float = 0.2
    work_timeout_s: float | None = None
    tells: frozenset[TaskKind] = frozenset()
    rows_max: int = 0
    is_named: bool = False


def partitions_text(partitions: Iterable[int]) -> str:
    """Ids for a message: at most eight."""
    ids = sorted(partitions)
    return ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")

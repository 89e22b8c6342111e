"""What clients of a log saw: the history that `log_anomalies` judges.

A *value* is one row: (writer, number) as one integer, unique in a history. A writer's numbers ascend in the
order of its sends. Times are seconds of one monotonic clock of the machine; an event that began after another
one ended came later, and nothing else is known of their order.

The list of anomalies follows the Kafka workload of Jepsen (jepsen.tests.kafka, 2022) and its reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

NUMBER_BITS: Final = 40
"""Of a value: numbers are below 2^40, writers below 2^23."""
FINAL: Final = "final"
"""The reader that reads everything once more when all faults are over."""

Values = NDArray[np.int64]


def value_of(writer: int, number: int) -> int:
    return writer << NUMBER_BITS | number


def writers_of(values: Values) -> Values:
    return values >> NUMBER_BITS


def numbers_of(values: Values) -> Values:
    return values & ((1 << NUMBER_BITS) - 1)


def shown(value: int) -> str:
    return f"row {value & ((1 << NUMBER_BITS) - 1)} of writer {value >> NUMBER_BITS}"


class Outcome(Enum):
    """How a request ended for the client that made it."""

    DONE = "done"
    REFUSED = "refused"
    """Surely nothing was stored, and nothing will be."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """Rows of one key, `first` to `first + rows - 1` of `writer`, in one partition.

    `partition` and `offset` are -1 where no answer told them. `transaction` names the commit that decides.
    """

    writer: int
    key: int
    first: int
    rows: int
    begun: float
    ended: float
    outcome: Outcome
    partition: int = -1
    offset: int = -1
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; REFUSED: aborted, none of its rows may ever be read."""

    transaction: str
    begun: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Read:
    """Rows that a reader was given from `offset` on; a session is read without a seek."""

    reader: str
    session: int
    partition: int
    offset: int
    values: Values
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Ends:
    """Log start and mark of a partition, as a node answered them."""

    partition: int
    start: int
    end: int
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Truncate:
    """Rows below `before` were given up; DONE: no read that begins later may return one."""

    partition: int
    before: int
    begun: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Forced:
    """An operator accepted a loss (`force-owner`): what was acknowledged before `ended` may be gone."""

    partition: int
    begun: float
    ended: float


@dataclass(slots=True)
class History:
    """Everything that the clients of one topic saw."""

    sends: list[Send] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list)
    truncates: list[Truncate] = field(default_factory=list)
    forced: list[Forced] = field(default_factory=list)

    def extend(self, other: History) -> None:
        """Add what another client saw of the same topic."""
        for name in ("sends", "commits", "reads", "ends", "truncates", "forced"):
            getattr(self, name).extend(getattr(other, name))

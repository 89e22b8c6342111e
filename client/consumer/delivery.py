"""Rows that a member of a QUEUE has, and what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.common.arguments import seconds, whole
from ringfence.consumer.queue_calls import What
from ringfence.consumer.queue_rows import joined
from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from ringfence.consumer.any_core import Batch
    from ringfence.consumer.queue_core import QueueCore
    from ringfence.consumer.queue_rows import Range
    from ringfence.consumer.values import ConsumerPlace

DELAY_S_MAX: Final = 86_400.0


class Delivery:
    """Rows on lease to this consumer, until it says what became of them. Of each row the first word counts.

    What is said goes to the owner in the background; `consumer.ack(delivery.place, wait=True)` waits for it.
    Methods take `rows`, numbers within the batch from 0 on, in any order; without them all rows are meant.

    Attributes:
        batch: the rows.
        place: where they are.
        count: deliveries of them that ended badly before this one.
    """

    __slots__ = ("_core", "batch", "count", "place")

    def __init__(self, core: QueueCore, given: Batch) -> None:
        self._core = core
        self.place: ConsumerPlace = given.place
        self.batch: pa.RecordBatch = given.rows
        self.count = given.failures

    def __repr__(self) -> str:
        place = self.place
        return (
            f"<ringfence.Delivery of partition {place.partition}, rows {place.first_offset} to "
            f"{place.end_offset - 1}, {self.count} failures>"
        )

    @property
    def partition(self) -> int:
        return self.place.partition

    def ack(self, rows: Iterable[int] | None = None) -> None:
        """They are done, and do not come again."""
        self._core.settle(self.place, self._ranges(rows), What.DONE)

    def fail(self, rows: Iterable[int] | None = None, *, delay_s: float = 0.0, reason: str = "") -> None:
        """They could not be worked on: they come again, in two halves if they are several.

        A single row that fails `limit` times (a setting of the cohort) is parked.

        Args:
            rows: the ones that failed; name them if they are known, the others go on.
            delay_s: they come again that late, at most a day; an owner that is replaced forgets the delay.
            reason: kept with a row that is parked; at most 240 bytes of it.
        """
        delay_ms = 0 if delay_s == 0 else int(1000 * min(seconds("delay_s", delay_s), DELAY_S_MAX))
        self._core.settle(self.place, self._ranges(rows), What.FAILED, delay_ms=delay_ms, reason=reason)

    def release(self, rows: Iterable[int] | None = None) -> None:
        """Others may have them now. It does not count as a failure."""
        self._core.settle(self.place, self._ranges(rows), What.RELEASED)

    def park(self, rows: Iterable[int] | None = None, *, reason: str = "") -> None:
        """They cannot be worked on: they are put aside, and do not come again by themselves."""
        self._core.settle(self.place, self._ranges(rows), What.PARKED, reason=reason)

    def _ranges(self, rows: Iterable[int] | None) -> list[Range]:
        first, count = self.place.first_offset, self.place.rows
        if rows is None:
            return [(first, first + count)]
        if isinstance(rows, str | bytes):
            raise InvalidArgumentError("rows must be numbers of rows of the batch", rows=repr(rows))
        return joined(first + whole("rows", row, 0, count - 1) for row in rows)

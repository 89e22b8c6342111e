"""Rows that a member had in hand and lost before owners knew that they are done. Pure.

Who waits for an acknowledgement hears exactly of these: of the other rows it is true.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ringfence.consumer.queue_rows import joined_ranges, without
from ringfence.native.errors import LostRowsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringfence.consumer.queue_rows import Range

LISTED_MAX: Final = 8  # ranges in the text of an error; `lost` has all of them
# Of a partition that loses rows again and again while nothing waits for acknowledgements: above the bound the
# lowest ranges are one with what lies between. No row that is lost is left out.
RANGES_MAX: Final = 32_768


class LostRows:
    """By partition: rows that went to others since the application last waited for all that it was given."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[Range]] = {}

    def add(self, partition: int, ranges: Iterable[Range]) -> None:
        """They may come again to any member."""
        merged = joined_ranges([*self._ranges.get(partition, ()), *ranges])
        if len(merged) > RANGES_MAX:
            low = merged[: len(merged) - RANGES_MAX + 1]
            merged = [(low[0][0], low[-1][1]), *merged[len(low) :]]
        if merged:
            self._ranges[partition] = merged

    def given(self, partition: int, rows: Range) -> None:
        """They came again to this member: what is said of them from now on counts."""
        if partition not in self._ranges:
            return
        self._ranges[partition] = list(without(self._ranges[partition], [rows]))
        if not self._ranges[partition]:
            del self._ranges[partition]

    def take(self) -> dict[int, list[Range]]:
        """All of them; none is lost any more."""
        taken, self._ranges = self._ranges, {}
        return taken


class Outcomes:
    """Calls `then` once after all outcomes; with an error that has all lost rows, or the first other one.

    `why`: what may have become of rows that are lost.
    """

    def __init__(self, then: Callable[[Exception | None], None] | None, why: str) -> None:
        self.left, self._then, self._why = 0, then, why
        self._errors: list[Exception] = []

    def of(self, calls: Sequence[object]) -> None:
        """So many outcomes are to come."""
        self.left += len(calls)

    def lose(self, lost: Mapping[int, Sequence[Range]]) -> None:
        """These rows are lost already."""
        if any(lost.values()):
            self._errors.append(lost_error(lost, self._why))

    def begin(self) -> bool:
        """Whether there is any outcome to come."""
        return self.left > 0

    def __call__(self, error: Exception | None) -> None:
        self.left -= 1
        if error is not None:
            self._errors.append(error)
        if not self.left:
            self.end()

    def end(self) -> None:
        """There are no more outcomes."""
        if self._then is not None:
            self._then(merged(self._errors))


def lost_error(lost: Mapping[int, Sequence[Range]], why: str) -> LostRowsError:
    """What who waits for acknowledgements of these rows hears."""
    lost = {partition: joined_ranges(ranges) for partition, ranges in lost.items()}
    text = [
        f"{_listed(ranges)} of partition {partition}"
        for partition, ranges in islice(sorted(lost.items()), LISTED_MAX)
    ]
    if len(lost) > LISTED_MAX:
        text.append(f"rows of {len(lost) - LISTED_MAX} more partitions")
    return LostRowsError(
        f"{'; '.join(text)} are not acknowledged: {why}",
        lost=lost,
        why=why,
        partition=next(iter(lost)) if len(lost) == 1 else None,
    )


def merged(errors: Sequence[Exception]) -> Exception | None:
    """One error of several: the first that is not of lost rows, or one with the lost rows of all."""
    of_lost = [error for error in errors if isinstance(error, LostRowsError)]
    if len(of_lost) < len(errors):
        return next(error for error in errors if not isinstance(error, LostRowsError))
    if len(of_lost) < 2:
        return next(iter(of_lost), None)
    lost: dict[int, list[Range]] = {}
    for error in of_lost:
        for partition, ranges in error.lost.items():
            lost[partition] = joined_ranges([*lost.get(partition, ()), *ranges])
    return lost_error(lost, of_lost[0].why)


def _listed(ranges: Sequence[Range]) -> str:
    text = ", ".join(
        f"{first}" if end == first + 1 else f"{first} to {end - 1}" for first, end in ranges[:LISTED_MAX]
    )
    return f"rows {text}" + (" and more" if len(ranges) > LISTED_MAX else "")

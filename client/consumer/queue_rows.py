"""Rows of a QUEUE that a member has: fetched ones, and those in the hands of the application. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.consumer.queue_calls import Leased, Line

Range = tuple[int, int]  # first row, and the one after the last
# What is kept of rows that are done: ranges of each partition, and partitions; 5 MiB at most. Rows that are
# done in their order are one range.
KNOWN_RANGES_MAX: Final = 64
# Of a batch of the largest size each second row may be lost, and none of them may be taken for done.
LOST_RANGES_MAX: Final = 32_768
KNOWN_PARTITIONS_MAX: Final = 512


class StoredRows:
    """An answer whose rows the application has not got completely.

    Attributes:
        lines: on lease and not given, ascending.
        until: the lease is over then.
        extend_at: when an application that has rows of it extends their lease.
        is_asked, is_confirmed: of the first line, if its last reader's connection ended: the owner is told
            that it is begun, and has answered.
        batches: the decoder's, once it has begun.
        open_rows: rows in the application's hands that are neither done nor anything else.
    """

    __slots__ = (
        "batches",
        "body",
        "bytes",
        "end",
        "extend_at",
        "incarnation",
        "is_asked",
        "is_confirmed",
        "lines",
        "node",
        "open_rows",
        "partition",
        "start",
        "until",
    )

    def __init__(
        self, node: int, reply: Leased, lines: Iterable[Line], *, until: float, extend_at: float
    ) -> None:
        self.node, self.partition, self.incarnation = node, reply.partition, reply.incarnation
        self.lines = deque(lines)
        self.start, self.end = self.lines[0].first, self.lines[-1].end
        self.bytes, self.body = reply.bytes, reply.body
        self.until, self.extend_at = until, extend_at
        self.batches: Any = None
        self.open_rows = 0
        self.is_asked = self.is_confirmed = False

    def __repr__(self) -> str:
        return (
            f"<StoredRows of partition {self.partition}, {self.start} to {self.end}, {len(self.lines)} lines>"
        )

    @property
    def rows_left(self) -> int:
        """Rows that were not given, with those between that are on lease to others."""
        return self.lines[-1].end - self.lines[0].first if self.lines else 0

    def line_at(self, row: int) -> Line | None:
        """The first line that does not end before a row."""
        while self.lines and self.lines[0].end <= row:
            self.next_line()
        return self.lines[0] if self.lines else None

    def next_line(self) -> None:
        """The first line is given, or gone."""
        self.lines.popleft()
        self.is_asked = self.is_confirmed = False

    def leave_out(self, rows: Range) -> None:
        """Rows that are not to be given."""
        before = self.lines[0].first if self.lines else self.end
        self.lines = deque(lines_without(self.lines, rows))
        if not self.lines or self.lines[0].first != before:
            self.is_asked = self.is_confirmed = False

    @property
    def may_begin(self) -> bool:
        """Whether the owner need not answer first."""
        return not self.lines or not self.lines[0].is_again or self.is_confirmed


class RowsInHand:
    """A batch that the application has. `open`: the ranges that it has said nothing of, ascending."""

    __slots__ = ("end", "epoch", "extend_at", "failures", "first", "open", "stored", "until")

    def __init__(self, stored: StoredRows, first: int, end: int, epoch: int, failures: int) -> None:
        self.stored, self.first, self.end = stored, first, end
        self.epoch, self.failures = epoch, failures
        self.open: list[Range] = [(first, end)]
        self.until, self.extend_at = stored.until, stored.extend_at
        stored.open_rows += end - first

    @property
    def incarnation(self) -> int:
        return self.stored.incarnation

    def take(self, ranges: Iterable[Range]) -> list[Range]:
        """Rows of these ranges that are open; they are not any more."""
        taken = list(common(self.open, ranges))
        self.open = list(without(self.open, taken))
        self.stored.open_rows -= rows_in(taken)
        return taken


class KnownRows:
    """Rows of which it is known what became of them, so that who speaks of them again hears that.

    It is bounded: of what was long ago a repeat is answered as of rows whose lease is over.
    """

    def __init__(self, ranges_max: int = KNOWN_RANGES_MAX) -> None:
        self._ranges_max = ranges_max  # of a partition
        # By partition and incarnation, ascending; the partition that was added to last is the last one.
        self._ranges: dict[tuple[int, int], list[Range]] = {}

    def add(self, partition: int, incarnation: int, *rows: Range) -> None:
        """It became known. Neighbours become one range; above the bound the lowest rows go."""
        kept = joined_ranges([*self._ranges.pop((partition, incarnation), []), *rows])
        self._ranges[partition, incarnation] = kept[-self._ranges_max :]
        while len(self._ranges) > KNOWN_PARTITIONS_MAX:
            del self._ranges[next(iter(self._ranges))]

    def given(self, partition: int, incarnation: int, rows: Range) -> None:
        """The application has rows with these offsets: what was known says nothing of them."""
        key = partition, incarnation
        if key in self._ranges:
            self._ranges[key] = list(without(self._ranges[key], [rows]))

    def others(self, partition: int, incarnation: int, ranges: Iterable[Range]) -> list[Range]:
        """Of these rows, those that are not known."""
        return list(without(ranges, self._ranges.get((partition, incarnation), [])))

    def known(self, partition: int, incarnation: int, ranges: Iterable[Range]) -> list[Range]:
        """Of these rows, those that are known."""
        return list(common(ranges, self._ranges.get((partition, incarnation), [])))

    def __len__(self) -> int:
        return sum(map(len, self._ranges.values()))


def common(left: Iterable[Range], right: Iterable[Range]) -> Iterator[Range]:
    """What two ascending lists of ranges have in common, ascending."""
    others = iter(right)
    other = next(others, None)
    for first, end in left:
        while other is not None and other[1] <= first:
            other = next(others, None)
        while other is not None and other[0] < end:
            yield max(first, other[0]), min(end, other[1])
            if other[1] > end:
                break
            other = next(others, None)


def without(left: Iterable[Range], right: Iterable[Range]) -> Iterator[Range]:
    """The rows of an ascending list of ranges that are not in another one."""
    others = deque(right)
    for first, end in left:
        at = first
        while others and others[0][1] <= at:
            others.popleft()
        while others and others[0][0] < end:
            if others[0][0] > at:
                yield at, others[0][0]
            at = others[0][1]
            if at > end:
                break
            others.popleft()
        if at < end:
            yield at, end


def lines_without(lines: Iterable[Line], rows: Range) -> Iterator[Line]:
    """Ascending lines without some rows."""
    for line in lines:
        for first, end in without([(line.first, line.end)], [rows]):
            yield line._replace(first=first, end=end)


def joined(rows: Iterable[int]) -> list[Range]:
    """Rows in any order, perhaps twice, as ranges."""
    return joined_ranges((row, row + 1) for row in rows)


def joined_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in any order, which may overlap, as ascending ones with rows between them."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def rows_in(ranges: Iterable[Range]) -> int:
    """How many rows they have."""
    return sum(end - first for first, end in ranges)


def overlaps(first: int, end: int, ranges: Iterable[Range]) -> bool:
    """Whether a range has a row of others."""
    return any(first < other_end and other_first < end for other_first, other_end in ranges)

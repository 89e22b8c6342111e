"""What members of the log checker's cohorts said, as histories that `tests.checker.cohorts` judges. Pure.

Rows of a QUEUE may be on lease twice, or come again, for three reasons; `LeaseRecord` allows no others: the
owner of their gate changed, their member was frozen, or it is gone. Each is known with its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from tests.chaos.cohort_record import INCARNATION, LATE_S, LEASE_S, Part, with_holds
from tests.checker.cohort_history import (
    Done,
    Ended,
    Event,
    Given,
    Gone,
    History,
    Key,
    Leased,
    Made,
    Sealed,
    Spans,
    Taken,
    Told,
)
from tests.checker.log_history import NUMBER_BITS, Values, shown

UNKNOWN = -1


class Line(NamedTuple):
    """What a member said of rows `first` .. `end - 1`: "given", "told", "acked" or "refused"."""

    at: float
    what: str
    member: str
    partition: int
    first: int
    end: int
    token: int


class Absence(NamedTuple):
    """A member was frozen, or told to leave, or killed (`ends`: it did not come back)."""

    member: str
    begin: float
    end: float
    ends: bool


class Changes(Protocol):
    """Of owners of gates."""

    def may_lie_between(self, partition: int, begin: float, end: float) -> bool: ...


class TopicRows:
    """What stands at each offset: the final read, and what members were given before it was truncated."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        self.ends = ends
        self._values = {one: np.full(end, UNKNOWN, np.int64) for one, end in ends.items()}
        self._keys = {one: np.full(end, UNKNOWN, np.int64) for one, end in ends.items()}

    def note(self, partition: int, first: int, values: Values, keys: Values) -> str | None:
        """Rows that were read or given; a text if others stand there."""
        end = first + len(values)
        if end > self.ends.get(partition, 0):
            return f"rows {first} to {end - 1} of partition {partition}, which has no such rows in the end"
        known = self._values[partition][first:end]
        wrong = np.flatnonzero((known != values) & (known != UNKNOWN))
        if len(wrong):
            at = int(wrong[0])
            there = shown(int(known[at]))
            return f"{shown(int(values[at]))} at offset {first + at} of {partition}, where {there} stands"
        known[:], self._keys[partition][first:end] = values, keys
        return None

    def key_of(self, partition: int, offset: int) -> Key | None:
        """Numbers of one writer and key ascend."""
        value = int(self._values[partition][offset])
        if value == UNKNOWN:
            return None
        key = value >> NUMBER_BITS, int(self._keys[partition][offset])
        return Key(key, (value & ((1 << NUMBER_BITS) - 1), 0))

    def values(self) -> Values:
        """Of all rows that are known."""
        joined = np.concatenate([*self._values.values(), np.empty(0, np.int64)])
        known: Values = joined[joined != UNKNOWN]
        return known


# ---- STREAM ------------------------------------------------------------------------------------------------


def stream_history(
    lines: Iterable[Line],
    parts: Sequence[Part],
    key_of: Callable[[int, int], Key | None],
    ends: Mapping[int, int],
    gone: Iterable[tuple[float, Gone]] = (),
) -> History:
    """Of a cohort without seeks. `gone`: when rows may have been removed; the cohort skips them."""
    events: list[Event] = [Made(part.partition, part.parents) for part in parts]
    events += [Sealed(part.partition, part.end) for part in parts if part.end is not None]
    timed = sorted([*_said(lines), *((at, event) for at, event in gone)], key=lambda one: one[0])
    events += [event for _, event in timed]
    return History(with_holds(events), key_of, ends, tells_gone=True)


def _said(lines: Iterable[Line]) -> Iterator[tuple[float, Event]]:
    numbers: dict[tuple[str, int, int, int], list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        asked = numbers[line.member, line.partition, line.end, line.token]
        hold = (line.member, line.partition, INCARNATION, line.token)
        if line.what == "given":
            yield line.at, Given(*hold, line.first, line.end)
        elif line.what == "told":
            asked.append(number)
            yield line.at, Told(*hold, line.end, number)
        elif line.what == "acked":
            yield line.at, Taken(asked.pop())


def handovers(lines: Iterable[Line]) -> int:
    """How often a member was given rows of a partition that another one had before."""
    holders = dict[int, tuple[int, str]]()
    count = 0
    for line in lines:
        hold, holder = holders.get(line.partition, (0, line.member))
        if line.what == "given" and line.token > hold:
            count += line.member != holder
            holders[line.partition] = line.token, line.member
    return count


def unsaid(lines: Iterable[Line], ends: Mapping[int, int]) -> list[str]:
    """Partitions of a settled STREAM cohort whose end no member acknowledged."""
    through = dict.fromkeys(ends, 0)
    for line in lines:
        if line.what == "told":
            through[line.partition] = max(line.end, through[line.partition])
    return [
        f"partition {one} is settled to {end}, members acknowledged {through[one]}"
        for one, end in ends.items()
        if through[one] < end
    ]


def acknowledged(lines: Iterable[Line], *, is_cumulative: bool) -> int:
    """Rows that were given and that an owner told to be done: with all before them, or alone."""
    given, done = defaultdict[int, Spans](Spans), defaultdict[int, Spans](Spans)
    for line in lines:
        if line.what == "given":
            given[line.partition].add(line.first, line.end)
        elif line.what == "acked":
            done[line.partition].add(0 if is_cumulative else line.first, line.end)
    return sum(
        end - first - sum(right - left for left, right in missing(done[partition], first, end))
        for partition, spans in given.items()
        for first, end in spans.ranges
    )


# ---- QUEUE -------------------------------------------------------------------------------------------------


@dataclass
class _Lease:
    """`is_excused`: rows of it were on lease twice, for a reason that is known."""

    event: Leased
    is_excused: bool = False


@dataclass
class LeaseRecord:
    """Turns what members of a QUEUE said into a history.

    Attributes:
        repeated: rows that came twice for a known reason; the second time stands outside of the history.
    """

    owners: Changes
    away: Sequence[Absence]
    history: History = field(default_factory=History)
    repeated: int = 0
    _open: dict[int, _Lease] = field(default_factory=dict)
    _done: dict[int, Spans] = field(default_factory=lambda: defaultdict(Spans))
    _leases: dict[tuple[str, int, int, int], list[_Lease]] = field(default_factory=dict)
    _numbers: int = 0

    def take(self, lines: Sequence[Line]) -> History:
        last = {line.member: line.at for line in lines}
        gone = [(max(one.begin, last.get(one.member, 0.0)), one.member) for one in self.away if one.ends]
        timed: list[tuple[float, Line | str]] = [*((line.at, line) for line in lines), *gone]
        for _, one in sorted(timed, key=lambda one: one[0]):
            if isinstance(one, str):
                self._end([lease for lease in self._open.values() if lease.event.member == one])
            elif one.what == "given":
                self._given(one)
            elif one.what in ("acked", "refused"):
                self._settled(one, is_done=one.what == "acked")
        return self.history

    def _given(self, line: Line) -> None:
        parts = [(line.first, line.end)]
        done = self._done[line.partition]
        is_excused = False
        if done.within(line.first, line.end) is not None and self._may_repeat(line, line.at):
            parts, is_excused = [*missing(done, line.first, line.end)], True
        for lease in self._overlapping(line):
            if self._may_repeat(line, lease.event.at, lease.event.member):
                lease.is_excused = is_excused = True
                self.repeated += min(lease.event.end, line.end) - max(lease.event.first, line.first)
                self._end([lease])
        self.repeated += line.end - line.first - sum(end - first for first, end in parts)
        self._leases[line[2:6]] = [self._lease(line, *part, is_excused=is_excused) for part in parts]

    def _lease(self, line: Line, first: int, end: int, *, is_excused: bool) -> _Lease:
        self._numbers += 1
        until = line.at + LEASE_S
        event = Leased(line.member, line.partition, self._numbers, first, end, 1, line.at, until)
        self.history.events.append(event)
        self._open[self._numbers] = lease = _Lease(event, is_excused)
        return lease

    def _overlapping(self, line: Line) -> list[_Lease]:
        return [
            lease
            for lease in self._open.values()
            if lease.event.partition == line.partition
            and lease.event.first < line.end
            and line.first < lease.event.end
        ]

    def _may_repeat(self, line: Line, since: float, *members: str) -> bool:
        """Whether an owner changed since, or a member was away."""
        return self.owners.may_lie_between(line.partition, since, line.at) or any(
            one.member in (line.member, *members) and one.begin <= line.at and since <= one.end + LATE_S
            for one in self.away
        )

    def _settled(self, line: Line, *, is_done: bool) -> None:
        leases = self._leases.pop(line[2:6], [])
        done = self._done[line.partition]
        for lease in leases if is_done else ():
            first, end = lease.event.first, lease.event.end
            # Owners answer alike of what is done already.
            parts = missing(done, first, end) if lease.is_excused else [(first, end)]
            self.history.events += [Done(lease.event.lease, *part) for part in parts]
        if is_done:
            done.add(line.first, line.end)
        self._end(leases)

    def _end(self, leases: Iterable[_Lease]) -> None:
        for lease in leases:
            if self._open.pop(lease.event.lease, None) is not None:
                self.history.events.append(Ended(lease.event.lease))


def missing(spans: Spans, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of `first` .. `end - 1` that are not in the set."""
    while (span := spans.missing(first, end)) is not None:
        yield span
        first = span[1]


def not_worked_on(lines: Iterable[Line], ends: Mapping[int, int]) -> list[str]:
    """Rows of a settled QUEUE that no member was given, or of which none said that they are done."""
    spans = {what: defaultdict[int, Spans](Spans) for what in ("given", "told")}
    for line in lines:
        if line.what in spans:
            spans[line.what][line.partition].add(line.first, line.end)
    return [
        f"lost: rows {first} to {last - 1} of partition {partition} are settled, and no member {what}"
        for told, what in (("given", "was given them"), ("told", "said that they are done"))
        for partition, end in ends.items()
        for first, last in missing(spans[told][partition], 0, end)
    ]

"""What members of a STREAM cohort and of a QUEUE said, as histories that `tests.checker.cohorts` judges.

Pure. All processes stamp what they say by one clock, so the order of stamps is the order of events.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.checker.cohort_history import (
    Done,
    Ended,
    Event,
    Given,
    Held,
    History,
    Key,
    Leased,
    Made,
    Sealed,
    Spans,
    Taken,
    Told,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.harness.deliveries import Rows
    from tests.harness.member import Member
    from tests.harness.queue_member import QueueMember

INCARNATION: Final = 0
"""Of a cohort that is never sought."""
LEASE_S: Final = 30.0
LATE_S: Final = 3.0
"""So long after the loss of an owner rows of a queue may come twice (docs/consumers.md)."""


class Part(NamedTuple):
    """A partition of the topic in the end. `end`: of a sealed one, the offset after its last row."""

    partition: int
    parents: tuple[int, ...]
    end: int | None


class Loss(NamedTuple):
    """A node was killed at `begin`, or stood still from then to `end`."""

    begin: float
    end: float


def stream_history(members: Sequence[Member], stored: Mapping[int, Rows], parts: Sequence[Part]) -> History:
    """Of a cohort that nobody sought; `parts` is the whole lineage in the end."""
    events: list[Event] = [Made(part.partition, part.parents) for part in parts]
    events += [Sealed(part.partition, part.end) for part in parts if part.end is not None]
    events += [event for _, _, event in sorted(_said(members), key=lambda one: one[:2])]

    def key_of(partition: int, offset: int) -> Key:
        key, number = stored[partition][offset]
        return Key((0, key), (number, 0))

    return History(with_holds(events), key_of, {partition: len(rows) for partition, rows in stored.items()})


def _said(members: Sequence[Member]) -> Iterator[tuple[float, int, Event]]:
    """(time, rank among events of that time, event)."""
    numbers: dict[tuple[str, int, int, int], list[int]] = defaultdict(list)
    number = 0
    for member in members:
        for rows in member.given:
            given = Given(rows.member, rows.partition, INCARNATION, rows.token, rows.first, rows.end)
            yield rows.at, 0, given
        for told in member.told:
            number += 1
            numbers[told.member, told.partition, told.through, told.token].append(number)
            said = Told(told.member, told.partition, INCARNATION, told.token, told.through, number)
            yield told.at, 1, said
        for acked in member.acked:
            # The same was told before and not answered: the newest is the one that was.
            yield acked.at, 2, Taken(numbers[acked.member, acked.partition, acked.through, acked.token].pop())


def with_holds(events: list[Event]) -> list[Event]:
    """A member tells of a hold with its first rows."""
    known, found = set[tuple[int, int]](), list[Event]()
    for event in events:
        if isinstance(event, Given) and (event.partition, event.hold) not in known:
            known.add((event.partition, event.hold))
            found.append(Held(event.member, event.partition, INCARNATION, event.hold))
        found.append(event)
    return found


@dataclass
class QueueRecord:
    """Turns what members of a QUEUE said into a history.

    Attributes:
        repeated: rows that came twice because an owner was lost; these stand outside of the history.
    """

    losses: Sequence[Loss]
    history: History = field(default_factory=History)
    repeated: int = 0
    _open: dict[int, Leased] = field(default_factory=dict)
    _done: dict[int, Spans] = field(default_factory=lambda: defaultdict(Spans))
    _newest: dict[str, Leased] = field(default_factory=dict)
    _numbers: int = 0

    def take(self, members: Sequence[QueueMember], killed: Mapping[str, float]) -> History:
        """`killed`: when which member was."""
        said: list[tuple[float, int, str, tuple[int, int, int]]] = []
        for member in members:
            for rank, list_of in ((1, member.given), (2, member.acked)):
                said += [(one.at, rank, member.name, (one.partition, one.first, one.end)) for one in list_of]
            if member.name in killed:
                said.append((killed[member.name], 3, member.name, (0, 0, 0)))
        said += [(loss.end, 3, "", (0, 0, 0)) for loss in self.losses]
        for at, rank, name, rows in sorted(said):
            self._take(at, rank, name, rows)
        return self.history

    def _take(self, at: float, rank: int, name: str, rows: tuple[int, int, int]) -> None:
        if rank == 1:
            self._given(at, name, rows)
        elif rank == 2:
            self._acked(name, *rows)
        else:
            self._end(self._leases_of(name) if name else [*self._open])

    def _given(self, at: float, name: str, rows: tuple[int, int, int]) -> None:
        partition, first, end = rows
        self._end(self._leases_of(name))  # a member has one delivery at a time: the one before was refused
        is_late = any(loss.begin <= at <= loss.end + LATE_S for loss in self.losses)
        if is_late and self._is_had(partition, first, end):
            self.repeated += end - first
            self._newest.pop(name, None)
            return
        self._numbers += 1
        lease = Leased(name, partition, self._numbers, first, end, 1, at, at + LEASE_S)
        self._open[self._numbers] = self._newest[name] = lease
        self.history.events.append(lease)

    def _acked(self, name: str, partition: int, first: int, end: int) -> None:
        """All rows of a lease, or those that no other member has got."""
        lease = self._newest.get(name)
        if lease is not None and lease.partition == partition and lease.first <= first and end <= lease.end:
            self.history.events.append(Done(lease.lease, first, end))
            self._done[partition].add(first, end)
            self._end([lease.lease] if end == lease.end else [])

    def _is_had(self, partition: int, first: int, end: int) -> bool:
        return self._done[partition].within(first, end) is not None or any(
            lease.partition == partition and lease.first < end and first < lease.end
            for lease in self._open.values()
        )

    def _leases_of(self, member: str) -> list[int]:
        return [number for number, lease in self._open.items() if lease.member == member]

    def _end(self, leases: Iterable[int]) -> None:
        for lease in leases:
            self._open.pop(lease, None)
            self.history.events.append(Ended(lease))


def other_rows(members: Sequence[Member | QueueMember], stored: Mapping[int, Rows]) -> list[str]:
    """Batches that are not what the topic has at their place."""
    return [
        f"{member.name} was given other rows than stored: {one}"
        for member in members
        for one in member.given
        if list(one.rows) != stored[one.partition][one.first : one.end]
    ]


def last_deliveries(members: Sequence[QueueMember], killed: Iterable[str]) -> Iterator[tuple[int, int]]:
    """(partition, offset) of rows that killed members had in hand: owners may have them as done."""
    for member in members:
        if member.name in set(killed) and member.given:
            last = member.given[-1]
            yield from ((last.partition, row) for row in range(last.first, last.end))


def rows_again(members: Sequence[Member | QueueMember]) -> int:
    """Rows that were given more than once, counted as often as they were given again."""
    seen, again = defaultdict[int, Spans](Spans), 0
    for one in sorted((one for member in members for one in member.given), key=lambda one: one.at):
        spans = seen[one.partition]
        again += sum(spans.within(row, row + 1) is not None for row in range(one.first, one.end))
        spans.add(one.first, one.end)
    return again

"""Judge what members of a cohort were given and acknowledged. Pure: a history in, a list of anomalies out.

| anomaly | what it is |
|---|---|
| again | an acknowledged row was given once more, without a seek |
| lost | the cohort passed a row that no member was given, or did not come to it in peace |
| skipped | a row was given, and one before it in its partition was given to no member and was not gone |
| two holds | a row was given under two holds, and the first one acknowledged it after that |
| fenced hold | an acknowledgement was taken that left after another member had a newer hold |
| older hold | rows were given under a hold after rows under a newer one |
| twice | a row was given twice under one hold, and no transaction returned it |
| order | rows of one key were not given in the order of their sends, over splits and merges |
| early | a row was given before all rows of the ancestors of its partition were acknowledged |
| behind a seek | a row of an older incarnation came after one of a newer, also of a relative |
| back | a position was told below one that was told, or acknowledged, before |
| acknowledged twice, over the limit, two leases | QUEUE: of a row |

`again`, `order` and `early` are of one incarnation. Rows that are gone, as the cohort was told, are not lost.
One pass over the events; memory grows with ranges, and with rows for their order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.cohort_history import (
    Event,
    Given,
    Gone,
    Held,
    History,
    Made,
    Position,
    Returned,
    Sealed,
    Sought,
    Spans,
    Taken,
    Told,
)
from tests.checker.cohort_queue import QueueJudge


class Anomaly(NamedTuple):
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def anomalies(history: History) -> list[Anomaly]:
    """All that is wrong with a history, in the order in which it shows."""
    judge = CohortJudge(history)
    for event in history.events:
        judge.take(event)
    judge.end()
    return judge.found


@dataclass
class _Gate:
    """One partition in one incarnation."""

    given: Spans = field(default_factory=Spans)
    under: dict[int, Spans] = field(default_factory=lambda: defaultdict(Spans))
    """Rows by the hold under which they were given."""
    newest: int = 0
    """The greatest hold under which rows were given."""
    told: int = 0
    """The greatest acknowledgement that left a member: it may have been taken."""
    taken: int = 0
    """The greatest of which a member heard that it was taken."""
    position: int = 0
    """The greatest that an owner told."""


class CohortJudge:
    """Takes events one by one; `found` has what is wrong so far."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.found: list[Anomaly] = []
        self._gates = defaultdict[tuple[int, int], _Gate](_Gate)  # by incarnation and partition
        self._holder: dict[int, tuple[int, str]] = {}  # by partition: the greatest hold that was heard of
        self._asked: dict[int, tuple[Told, bool, bool]] = {}
        self._begins: dict[int, dict[int, int]] = {}  # by incarnation
        self._gone: dict[int, int] = {}
        self._parents: dict[int, tuple[int, ...]] = {}
        self._ends: dict[int, int] = {}
        self._firsts: dict[tuple[int, tuple[int, int]], tuple[tuple[int, int], tuple[int, int]]] = {}
        self._newest = 0  # incarnation
        self._behind_drained = set[tuple[int, int]]()
        """(incarnation, partition): all ancestors were drained, which none ever undoes."""
        self._given_in: dict[int, int] = {}  # by partition: the newest incarnation that gave rows
        self._newest_given = 0  # of all partitions
        self._queue = QueueJudge(history.deliveries_max, self._find)

    def take(self, event: Event) -> None:
        """The next event."""
        match event:
            case Held():
                self._held(event)
            case Given():
                self._given(event)
            case Returned(partition, incarnation, hold, first):
                self._gates[incarnation, partition].under[hold].cut(first)
            case Told():
                self._told(event)
            case Taken(number):
                self._taken(number)
            case Position():
                self._position(event)
            case Sought(incarnation, begins):
                self._newest = max(self._newest, incarnation)
                self._begins[incarnation] = dict(begins)
            case Made(partition, parents):
                self._parents[partition] = parents
            case Sealed(partition, end):
                self._ends[partition] = end
            case Gone(partition, below):
                self._gone[partition] = max(below, self._gone.get(partition, 0))
            case _:
                self._queue.take(event)

    def _find(self, kind: str, text: str) -> None:
        self.found.append(Anomaly(kind, text))

    def _begin(self, incarnation: int, partition: int) -> int:
        begin = self._begins.get(incarnation, {}).get(partition, 0)
        return max(begin, self._gone.get(partition, 0))

    # ---- holds and rows ----

    def _held(self, event: Held) -> None:
        gate = self._gates[event.incarnation, event.partition]
        newest = self._holder.get(event.partition, (0, ""))
        self._holder[event.partition] = max(newest, (event.hold, event.member))
        known = max(gate.taken, gate.position)
        if event.position is not None and event.position < known and not self.history.repeats:
            self._find("back", f"{event} stands below {known}, which was acknowledged or told before")

    def _given(self, event: Given) -> None:
        gate = self._gates[event.incarnation, event.partition]
        if event.hold < gate.newest:
            self._find("older hold", f"{event}, and hold {gate.newest} gave rows before")
        gate.newest = max(gate.newest, event.hold)
        if event.first < gate.taken and not self.history.repeats:
            self._find("again", f"{event}, and all rows before {gate.taken} were acknowledged")
        if (span := gate.under[event.hold].within(event.first, event.end)) is not None:
            self._find("twice", f"{event}, and rows {span} were given under this hold before")
        if self.history.tells_gone:
            self._check_skipped(event, gate)
        self._check_ancestors(event)
        self._check_incarnation(event)
        self._check_order(event, gate)
        gate.under[event.hold].add(event.first, event.end)
        gate.given.add(event.first, event.end)

    def _ancestors(self, partition: int) -> set[int]:
        found, waiting = set[int](), [*self._parents.get(partition, ())]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self._parents.get(one, ())
        return found

    def _check_incarnation(self, event: Given) -> None:
        if event.incarnation >= self._newest_given:
            self._newest_given = self._given_in[event.partition] = event.incarnation
            return
        ancestors = self._ancestors(event.partition)
        for partition, incarnation in self._given_in.items():
            is_related = (
                partition == event.partition
                or partition in ancestors
                or event.partition in self._ancestors(partition)
            )
            if incarnation > event.incarnation and is_related:
                self._find("behind a seek", f"{event}, and {partition} gave rows of {incarnation} before")
                break
        newest = max(event.incarnation, self._given_in.get(event.partition, 0))
        self._given_in[event.partition] = newest

    def _check_skipped(self, event: Given, gate: _Gate) -> None:
        begin = self._begin(event.incarnation, event.partition)
        if (span := gate.given.missing(begin, event.first)) is not None:
            self._find("skipped", f"{event}, and rows {span} were given to no member before")

    def _check_ancestors(self, event: Given) -> None:
        place = event.incarnation, event.partition
        if place in self._behind_drained:
            return
        ancestors = sorted(self._ancestors(event.partition))
        for partition in ancestors:
            gate = self._gates[event.incarnation, partition]
            reached = max(gate.told, gate.position, self._begin(event.incarnation, partition))
            end = self._ends.get(partition)
            if end is not None and reached < end:
                self._find("early", f"{event}, and its ancestor {partition} is at {reached} of {end}")
                return
        if all(one in self._ends for one in ancestors):
            self._behind_drained.add(place)

    def _check_order(self, event: Given, gate: _Gate) -> None:
        """Of rows that are given for the first time in this incarnation."""
        for offset in range(event.first, event.end):
            if gate.given.within(offset, offset + 1) is not None:
                continue
            key = self.history.key_of(event.partition, offset)
            if key is None:
                continue
            at = event.incarnation, key.key
            before = self._firsts.get(at)
            if before is not None and key.place < before[0]:
                what = f"row {offset} is {key.place} of key {key.key}"
                self._find("order", f"{event}: {what}, {before[0]} was given before from {before[1]}")
                return
            self._firsts[at] = key.place, (event.partition, offset)

    # ---- acknowledgements ----

    def _told(self, event: Told) -> None:
        gate = self._gates[event.incarnation, event.partition]
        gate.told = max(gate.told, event.through)
        hold, holder = self._holder.get(event.partition, (0, ""))
        is_fenced = hold > event.hold and holder != event.member
        is_double = any(
            other > event.hold
            and any(
                first < event.through and own.within(first, min(end, event.through)) is not None
                for first, end in rows.ranges
            )
            for own in [gate.under[event.hold]]
            for other, rows in gate.under.items()
        )
        self._asked[event.number] = event, is_fenced, is_double

    def _taken(self, number: int) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        event, is_fenced, is_double = asked
        gate = self._gates[event.incarnation, event.partition]
        gate.taken = max(gate.taken, event.through)
        if is_double:
            self._find("two holds", f"{event} was taken, and a newer hold had given some of its rows")
        elif is_fenced:
            self._find("fenced hold", f"{event} was taken, and {self._holder[event.partition]} held before")

    def _position(self, event: Position) -> None:
        gate = self._gates[event.incarnation, event.partition]
        known = max(gate.position, gate.taken)
        if event.offset < known:
            self._find("back", f"{event} is below {known}, which was told or acknowledged before")
        gate.position = max(gate.position, event.offset)

    # ---- the end ----

    def end(self) -> None:
        """Nothing comes any more."""
        for (incarnation, partition), gate in list(self._gates.items()):
            begin = self._begin(incarnation, partition)
            passed = max(gate.taken, gate.position)
            if (span := gate.given.missing(begin, passed)) is not None:
                what = (
                    f"partition {partition}, incarnation {incarnation}: rows {span} were given to no member"
                )
                self._find("lost", f"{what}, and the cohort is at {passed}")
        for partition, end in self.history.ends.items():
            gate = self._gates[self._newest, partition]
            begin = self._begin(self._newest, partition)
            if (span := gate.given.missing(max(begin, gate.position, gate.taken), end)) is not None:
                self._find("lost", f"partition {partition}: rows {span} of {end} were never given")


__all__ = ["Anomaly", "CohortJudge", "anomalies"]

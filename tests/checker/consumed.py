"""Judge an exactly-once copy whose positions COMMITs settle. Pure: values in, a list of anomalies out.

CH11, of the rows in the end (`copied`): within one incarnation the output of a key is what went in, in order.

| anomaly | what it is |
|---|---|
| twice | a row of the input was committed more than once |
| invented | a row of the output is not of the input |
| order | rows of a key do not come out in the order in which they went in |
| gap | a row is in the output, and one before it of its key is not |
| missing | a row is not in the output of the newest incarnation |

CH12, of what members did (`ClaimJudge`): a range that a COMMIT settled belongs to that COMMIT alone.

| anomaly | what it is |
|---|---|
| given after | a row was given under a later hold, or after its COMMIT was decided |
| let in | a later hold began below what the COMMIT settled |
| not from the position | the ranges of two COMMITs overlap, or rows between them were settled by none |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.cohort_history import Given, Held
from tests.checker.cohorts import Anomaly

Rows = Mapping[int, Sequence[int]]
"""By key: rows in their order."""


class Decided(NamedTuple):
    """A COMMIT settled rows `first` .. `through - 1`, which were given under `hold`."""

    partition: int
    incarnation: int
    hold: int
    first: int
    through: int


# ---- CH11 ----


def copied(source: Rows, output: Mapping[int, Rows], newest: int) -> list[Anomaly]:
    """`output` is by incarnation; of `newest` all rows must be there, of those before it a part may be."""
    found: list[Anomaly] = []
    for incarnation in sorted({*output, newest}):
        out = output.get(incarnation, {})
        for key in sorted({*source, *out}):
            name = f"incarnation {incarnation}, key {key}"
            is_whole = incarnation == newest
            found += _of_key(name, source.get(key, ()), out.get(key, ()), is_whole=is_whole)
    return found


def _of_key(name: str, source: Sequence[int], out: Sequence[int], *, is_whole: bool) -> Iterator[Anomaly]:
    place = {row: at for at, row in enumerate(source)}
    seen: set[int] = set()
    last = -1
    for row in out:
        if row not in place:
            yield Anomaly("invented", f"{name}: row {row} is not of the input")
            return
        if row in seen:
            yield Anomaly("twice", f"{name}: row {row} is there more than once")
            return
        if place[row] < last:
            yield Anomaly("order", f"{name}: row {row} comes after row {source[last]}")
            return
        last = place[row]
        seen.add(row)
    missing = [row for row in source if row not in seen]
    if missing and place[missing[0]] < last:
        yield Anomaly("gap", f"{name}: row {missing[0]} is not there, and row {source[last]} is")
    elif missing and is_whole:
        yield Anomaly("missing", f"{name}: {len(missing)} of {len(source)} rows, the first is {missing[0]}")


# ---- CH12 ----


@dataclass
class _Gate:
    """One partition in one incarnation."""

    given: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By hold: rows."""
    held: dict[int, int] = field(default_factory=dict)
    """By hold: where it began."""
    decided: list[Decided] = field(default_factory=list)

    @property
    def settled(self) -> int | None:
        return self.decided[-1].through if self.decided else None


class ClaimJudge:
    """Takes events one by one; `found` has what is wrong so far."""

    def __init__(self) -> None:
        self.found: list[Anomaly] = []
        self._gates = defaultdict[tuple[int, int], _Gate](_Gate)

    def take(self, event: Held | Given | Decided) -> None:
        """The next event, in the order of time."""
        gate = self._gates[event.incarnation, event.partition]
        match event:
            case Held():
                self._held(event, gate)
            case Given():
                self._given(event, gate)
            case Decided():
                self._decided(event, gate)

    def _find(self, kind: str, text: str) -> None:
        self.found.append(Anomaly(kind, text))

    def _held(self, event: Held, gate: _Gate) -> None:
        if event.position is None:
            return
        gate.held.setdefault(event.hold, event.position)
        for one in gate.decided:
            if event.hold > one.hold and event.position < one.through:
                self._find("let in", f"{event}, and {one} was decided before")
                return

    def _given(self, event: Given, gate: _Gate) -> None:
        gate.given[event.hold].append((event.first, event.end))
        if gate.settled is not None and event.first < gate.settled:
            self._find("given after", f"{event}, and {gate.decided[-1]} was decided before")

    def _decided(self, event: Decided, gate: _Gate) -> None:
        if gate.settled is not None and event.first != gate.settled:
            self._find("not from the position", f"{event} comes after {gate.decided[-1]}")
        for hold, position in gate.held.items():
            if hold > event.hold and position < event.through:
                self._find("let in", f"{event}, and hold {hold} had begun at {position}")
                break
        for hold, ranges in gate.given.items():
            if hold > event.hold and any(first < event.through for first, _ in ranges):
                self._find("given after", f"{event}, and hold {hold} had given rows {ranges[0]}")
                break
        gate.decided.append(event)


__all__ = ["Anomaly", "ClaimJudge", "Decided", "copied"]

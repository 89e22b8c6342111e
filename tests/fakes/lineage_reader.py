"""A reader of a modelled topic that drives the real `Lineage`: late tables, rows in memory, positions kept.

It judges what it returns: rows of a slot come without gaps, once, in order (R1), and an error is raised only
where rows were really missed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ringfence.common.lineage import Admit, Begin, Effect, FetchTable, Finish, Lineage, Lost, View, restore
from tests.fakes.lineage_topic import LineageTopic, Row

AHEAD_MAX = 3


@dataclass
class ModelCursor:
    """`returned`: offset of the next row to return; `rows`: fetched after it; `ended`: by the owner."""

    returned: int
    rows: list[Row] = field(default_factory=list)
    ended: bool = False
    admitted: bool = False

    @property
    def fetched(self) -> int:
        return self.returned + len(self.rows)


class ModelReader:
    """One reader. `got`: number of the last returned row by slot; `wrong`: the first fault of it."""

    def __init__(self, topic: LineageTopic, draw: random.Random, *, skips: bool = False) -> None:
        """`skips`: it goes on after rows that are lost, and returns the others in order."""
        self.topic, self._draw, self._skips = topic, draw, skips
        self._views: list[View] = []
        self.got = dict.fromkeys(topic.appended, 0)
        self.wrong: str | None = None
        self.broken = False
        for log in topic.pruned.values():  # a new reader begins with what there is
            for slot, number in log.rows:
                self.got[slot] = max(self.got[slot], number)
        self._begin({})
        self.saved = (self.positions(), dict(self.got))

    def view(self) -> View:
        """The newest table, or rarely one that a node gave before: nodes lag."""
        if self._views and self._draw.random() < 0.1:
            return self._draw.choice(self._views)
        self._views.append(self.topic.view())
        return self._views[-1]

    def _begin(self, positions: dict[int, int]) -> None:
        view = self.topic.view()
        restored = restore(view, positions)
        if restored.unknown:
            self.wrong = f"R3: {restored.unknown} are taken for partitions of another topic"
        self.cursors = {one: ModelCursor(positions.get(one, 0)) for one in restored.open}
        self.lineage = self.make(view, restored)
        self._carry_out(self.lineage.begin(positions))
        if self._skips:  # what was lost held all others
            self._carry_out(self.lineage.begin(positions))

    def make(self, view: View, restored: object) -> Lineage:
        return Lineage(view, restored, grows=True)  # type: ignore[arg-type]

    # ---- steps

    def step(self) -> None:
        """Something that a reader does at its own time."""
        if self.broken:
            return
        kind = self._draw.random()
        if kind < 0.08:
            self.hold_table()
        elif self.cursors:
            at = self._draw.choice(sorted(self.cursors))
            if kind < 0.5:
                self.fetch(at)
            else:
                self.take(at)
        for fault in self.lineage.faults():
            self.wrong = self.wrong or f"invariant: {fault}"

    def hold_table(self, *, newest: bool = False) -> None:
        self._carry_out(self.lineage.table(self.topic.view() if newest else self.view()))

    def fetch(self, at: int) -> None:
        """An answer of the owner arrives: some rows, and whether nothing comes after them."""
        cursor, log = self.cursors[at], self.topic.logs.get(at)
        if not cursor.admitted or cursor.ended or len(cursor.rows) >= AHEAD_MAX:
            return
        if log is None:
            self.hold_table(newest=True)
            if not cursor.rows and at in self.cursors:
                self._carry_out(self.lineage.missing(at, cursor.returned))
            return
        rows = log.rows[cursor.fetched :][: self._draw.randint(1, AHEAD_MAX)]
        cursor.rows += rows
        cursor.ended = log.sealed > 0 and cursor.fetched == len(log.rows)

    def take(self, at: int) -> None:
        """The application takes the next row, or sees that there is none."""
        cursor = self.cursors[at]
        if cursor.rows:
            slot, number = cursor.rows.pop(0)
            cursor.returned += 1
            is_next = number > self.got[slot] if self._skips else number == self.got[slot] + 1
            if not is_next and self.wrong is None:
                self.wrong = f"R1: slot {slot}: row {number} comes after row {self.got[slot]}"
            self.got[slot] = number
        elif cursor.ended:
            self._carry_out(self.lineage.ended(at))

    # ---- positions

    def positions(self) -> dict[int, int]:
        return {at: cursor.returned for at, cursor in self.cursors.items()}

    def save(self) -> None:
        if not self.broken:
            self.saved = (self.positions(), dict(self.got))

    def restart(self) -> None:
        """Another process goes on at the positions that were kept last."""
        positions, got = self.saved
        self.got, self.broken = dict(got), False
        self._begin(positions)

    # ---- ends

    def finish(self) -> None:
        """Read everything that is there, with the newest table."""
        for _ in range(10_000):
            before = (self.positions(), self.lineage.view.generation, len(self.cursors))
            self.hold_table(newest=True)
            for at in sorted(self.cursors):
                for _ in range(AHEAD_MAX + 2):
                    if at in self.cursors and not self.broken:
                        self.fetch(at)
                    if at in self.cursors and not self.broken:
                        self.take(at)
            if self.broken or self.wrong:
                return
            if before == (self.positions(), self.lineage.view.generation, len(self.cursors)):
                break
        behind = {slot: (got, self.topic.appended[slot]) for slot, got in self.got.items()}
        pruned = {row for log in self.topic.pruned.values() for row in log.rows} if self._skips else set()
        missing = {
            slot: both
            for slot, both in behind.items()
            if both[0] != both[1] and (slot, both[1]) not in pruned
        }
        if missing:
            self.wrong = f"R2: rows are never read: {missing}"
        active = {log.partition for log in self.topic.active}
        if self.wrong is None and self.cursors.keys() != active:
            self.wrong = f"R2: open at the end: {sorted(self.cursors)}, active: {sorted(active)}"

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Begin(partition):
                    self.cursors[partition] = ModelCursor(0)
                case Admit(partition):
                    self.cursors[partition].admitted = True
                case Finish(partition):
                    if self.cursors.pop(partition).rows:
                        self.wrong = "a cursor with rows in memory is closed"
                case FetchTable():
                    pass  # `hold_table` comes by itself, at any later time
                case Lost(partition, offset, end):
                    self.broken = not self._skips
                    if self._skips:
                        self._carry_out(self.lineage.skip(partition))
                    if end is not None and not self._has_missed_rows():  # None: no table tells any more
                        self.wrong = f"R3: rows of {partition} from {offset} to {end} are told as lost"

    def _has_missed_rows(self) -> bool:
        """Whether a pruned partition has a row that was not returned."""
        return any(number > self.got[slot] for log in self.topic.pruned.values() for slot, number in log.rows)

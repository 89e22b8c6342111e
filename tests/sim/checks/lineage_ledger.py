"""The ledger of rows with keys whose partitions split and merge: each row's place in its key's order.

A key's order is that of its slot over the lineage: ancestors come before descendants, and in a partition the
log's order counts. Rows are told apart by their ids, so that a body may be taken apart, and joined, on its
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.sim.checks.ledger import Forced, Ledger, Partition, Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.keyed import ids_of, key_of, slot_of

ANYWHERE = 0
"""As the partition of a row: a resume point said that it is stored."""


@dataclass(slots=True)
class Row:
    """`outcome` is "", "done", "refused" or "unknown"; with the first and the last it may be stored."""

    producer: int
    send: int
    outcome: str = ""
    partition: int = ANYWHERE
    offset: int = -1
    epochs: tuple[int, int] = (0, 0)
    """Lowest and highest owner epoch that may have acknowledged it."""


class LineageLedger(Ledger):
    """Rows by their ids, partitions by their numbers."""

    def __init__(self, *, has_key: bool = True) -> None:
        """`has_key`: of the topic. Without one, a name may give its sends slots: see `slots_of_sends`."""
        super().__init__([])
        self._has_key = has_key
        self.slots_of_sends: dict[int, Callable[[int], int]] = {}
        """By producer: the slot of a send, by its number."""
        self.rows: dict[int, Row] = {}
        self.slots: dict[int, tuple[int, int]] = {}
        """Of each partition that a COMMIT, or the topic's creation, made."""
        self.ends: dict[int, tuple[int, int]] = {}
        """By SEALED partition: the offset after its last row, and its records."""
        self._lowered: dict[int, int] = {}
        """By SEALED partition: the entry by which an operator accepted this end, if one did."""
        self.passed_over: set[int] = set()
        """Rows of owners whom an operator passed over: they may be gone, or be sent and read again."""
        self._placed: dict[
            int, list[tuple[int, int]]
        ] = {}  # by partition: id and offset, as it was read last

    def slot(self, number: int) -> int | None:
        """The slot of a row; None: any partition may have it."""
        if self._has_key:
            return slot_of(number)
        row = self.rows[number]
        of_send = self.slots_of_sends.get(row.producer)
        return None if of_send is None else of_send(row.send)

    def order(self, number: int) -> tuple[int, int] | None:
        """Rows with this value are in the order of their sends; None: no order is promised."""
        row, slot = self.rows[number], self.slot(number)
        if slot is None:
            return None
        return row.producer, key_of(number) if self._has_key else slot

    # ---- what happens ----

    def draw(self, producer: int, send: int, count: int) -> tuple[int, ...]:
        """Ids of new rows of a send."""
        ids = tuple(range(self._next, self._next + count))
        self._next += count
        for number in ids:
            self.rows[number] = Row(producer, send)
        return ids

    def stored(
        self, ids: Sequence[int], partition: int, first_offset: int, epochs: tuple[int, int] = (0, 0)
    ) -> None:
        """A batch was acknowledged with this offset, by an owner of one of these epochs."""
        self.acknowledged += 1
        for place, number in enumerate(ids):
            self._end(number, "done", partition, first_offset + place)
            self.rows[number].epochs = epochs
        part, end = self.partitions[partition], first_offset + len(ids)
        if part.may_lack(epochs, end):
            self.passed_over.update(ids)
            return
        part.end = max(part.end, end)
        self._check_end(partition, end)

    def forced(self, partition: int, forced: Forced) -> None:
        """As of `Ledger`; rows above the chosen log's end may be gone."""
        part = self.partitions[partition]
        before = {**part.seen}
        super().forced(partition, forced)
        for offset in before.keys() - part.seen.keys():
            self.passed_over.update(ids_of(before[offset].body))
        for number, row in self.rows.items():
            if row.partition == partition and part.may_lack(row.epochs, row.offset + 1):
                self.passed_over.add(number)

    def sent_again(self, ids: Iterable[int]) -> None:
        """A successor of their producer learned that rows which were given up are not stored."""
        for number in ids:
            row, slot = self.rows[number], self.slot(number)
            is_untold = row.outcome == "done" and row.partition == ANYWHERE
            if (
                is_untold
                and slot is not None
                and any(self.partitions[part].forced for part in self._with_slot(slot))
            ):
                self.passed_over.add(number)
            if number in self.passed_over:
                row.outcome, row.partition = "", ANYWHERE

    def known(self, number: int) -> None:
        """A resume point says that the row is stored."""
        self._end(number, "done", ANYWHERE, -1)

    def not_stored(self, ids: Iterable[int], outcome: str) -> None:
        """Refused rows are not stored; unknown ones may be."""
        for number in ids:
            self._end(number, outcome, ANYWHERE, -1)

    def undecided(self, ids: Iterable[int]) -> None:
        """A successor of their producer will learn what became of the rows, or send them again."""
        for number in ids:
            assert self.rows[number].outcome != "done", f"row {number} is stored"
            self.rows[number].outcome = ""

    def _end(self, number: int, outcome: str, partition: int, offset: int) -> None:
        row = self.rows[number]
        assert not row.outcome, f"row {number} ended before: {row}"
        row.outcome, row.partition, row.offset = outcome, partition, offset

    # ---- the layout ----

    def has_layout(self, topic: Any) -> None:
        """The metadata has this layout. ViolationError: a sealed end changed, or is below what was told."""
        for part in topic.layout.partitions:
            number = int(part.partition)
            slots = self.slots.setdefault(number, (part.slots.lo, part.slots.hi))
            if slots != (part.slots.lo, part.slots.hi):
                raise ViolationError("I2", f"partition {number} had slots {slots}, it has {part.slots} now")
            seal = topic.seal(part.partition)
            if seal is None:
                continue
            end = seal.end.offset, seal.end.records
            if seal.lowered > self._lowered.get(number, 0):
                self._lowered[number], self.ends[number] = int(seal.lowered), end
            if self.ends.setdefault(number, end) != end:
                raise ViolationError(
                    "I3", f"sealed partition {number} ended at {self.ends[number]}, now {end}"
                )
            self._check_end(number, self.partitions[number].end)
            self._check_end(number, self.partitions[number].mark)

    def _check_end(self, partition: int, offset: int) -> None:
        end = self.ends.get(partition)
        if end is not None and offset > end[0]:
            what = f"partition {partition} was sealed at {end[0]}, rows below {offset} are known to be stored"
            raise ViolationError("I3", what)

    # ---- what must hold ----

    def read(self, partition: int, record: Any) -> None:
        end = record.offset + record.rows
        if self.partitions[partition].may_lack((record.epoch, record.epoch), end):
            if isinstance(record, Stored):
                self.passed_over.update(ids_of(record.body))
        else:
            self._check_end(partition, end)
        super().read(partition, record)

    def _check_sent(self, part: Partition, record: Stored) -> None:
        name = f"partition {part.number}: what stands at {record.offset}"
        try:
            ids = ids_of(record.body)
        except ValueError as error:
            raise ViolationError("I5", f"{name}: {error}") from error
        lo, hi = self.slots.get(part.number, (0, 65_535))
        for number in ids:
            if number not in self.rows:
                raise ViolationError("I5", f"{name} was never sent: row {number}")
            slot = self.slot(number)
            if slot is not None and not lo <= slot <= hi:
                what = f"{name} is row {number} of slot {slot}, which is none of {lo} to {hi}"
                raise ViolationError("L2", what)

    def _check_batches(self, part: Partition, by_first: dict[int, Stored]) -> None:
        self._placed[part.number] = [
            (number, record.offset + place)
            for record in sorted(by_first.values(), key=lambda one: one.offset)
            for place, number in enumerate(ids_of(record.body))
        ]

    def check_lineage(self, layout: Any) -> None:
        """All partitions of the layout were read: each row stands at most once, in the order of its key."""
        found: dict[int, tuple[int, int]] = {}
        last: dict[tuple[int, int], tuple[int, int]] = {}
        for part in sorted(layout.partitions, key=lambda one: (one.created_version, one.partition)):
            for number, offset in self._placed.get(int(part.partition), ()):
                here = int(part.partition), offset
                if number in found:
                    raise ViolationError("I6", f"row {number} stands at {found[number]} and at {here}")
                found[number] = here
                row, key = self.rows[number], self.order(number)
                if row.outcome != "done" or key is None or number in self.passed_over:
                    continue
                place = row.send, number
                if place < last.get(key, (0, 0)):
                    what = f"row {number} of send {row.send} stands at {here}, after one of {last[key]}"
                    raise ViolationError("I7", f"producer {row.producer}, key {key[1]}: {what}")
                last[key] = place
        for number, row in self.rows.items():
            self._check_row(number, row, found.get(number))

    def _check_row(self, number: int, row: Row, place: tuple[int, int] | None) -> None:
        name = f"row {number} of send {row.send} of producer {row.producer}"
        if row.outcome == "refused" and place is not None:
            raise ViolationError("I15", f"{name} was refused and stands at {place}")
        if row.outcome != "done":
            return
        if number in self.passed_over:
            return
        if place is None:
            if not self._may_be_truncated(number, row):
                raise ViolationError(
                    "I5", f"{name} was acknowledged in {row.partition, row.offset} and is gone"
                )
        elif row.partition != ANYWHERE and place != (row.partition, row.offset):
            raise ViolationError(
                "I5", f"{name} was acknowledged at {row.partition, row.offset}, is at {place}"
            )

    def may_be_lost(self, number: int) -> bool:
        """Whether the row was truncated, or may have been."""
        return number in self.passed_over or self._may_be_truncated(number, self.rows[number])

    def _may_be_truncated(self, number: int, row: Row) -> bool:
        if row.partition != ANYWHERE:
            return row.offset < self.partitions[row.partition].start
        known = (self.partitions[part] for part in self._with_slot(self.slot(number)))
        return any(part.start > 0 or part.forced for part in known)

    def _with_slot(self, slot: int | None) -> Iterator[int]:
        """Partitions of the lineage that have it; None: all of them."""
        return (part for part, (lo, hi) in self.slots.items() if slot is None or lo <= slot <= hi)

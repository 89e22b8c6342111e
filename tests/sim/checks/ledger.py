"""What was sent, answered and read, and what must be true of it: the rows' side of the invariants.

It knows nothing of how a node works: only what clients saw, which rows were given up, which bytes rotted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringfence.staged_reader import StagedPlace
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.content import body_of


@dataclass(slots=True)
class Batch:
    """One batch that a producer sent. `offset` when it was acknowledged."""

    producer: int
    partition: int
    first: int
    rows: int
    outcome: str = ""  # "", "done", "refused", "unknown"
    offset: int = -1
    epochs: tuple[int, int] = (0, 0)
    """Lowest and highest owner epoch that may have acknowledged it."""


@dataclass(slots=True)
class Stored:
    """One record as it was read."""

    offset: int
    rows: int
    first: int
    epoch: int
    body: bytes


@dataclass(slots=True)
class Published:
    """A publish record as it was read: rows that were staged have offsets from `offset` on."""

    offset: int
    rows: int
    epoch: int
    body: bytes
    scope: int
    number: int
    """The scope's epoch; `epoch` is the owner's."""
    places: tuple[StagedPlace, ...]
    staged: list[Stored] = field(default_factory=list)


Record = Stored | Published


class Forced(NamedTuple):
    """An operator's choice of an owner: its log ended at row `end`, in a record of `last_epoch`."""

    epoch: int
    """Of the owner from then on."""
    last_epoch: int
    end: int

    def gives_up(self, epochs: tuple[int, int], end: int) -> bool:
        """True if rows below `end`, which an owner of one of these epochs acknowledged, may be gone.

        A log whose last record is of an epoch is a part of that epoch's log from its beginning on.
        """
        lowest, highest = epochs
        return lowest < self.epoch and (highest > self.last_epoch or end > self.end)


@dataclass(slots=True)
class Truncation:
    """A truncate that an operator asked for."""

    partition: int
    before: int
    forced: int
    """Choices of an owner until then."""
    ended: bool = False
    """It was answered as done, or refused."""


@dataclass(slots=True)
class Partition:
    number: int
    start: int = 0  # rows below were given up by an order
    gone: int = 0  # rows below were given up, and it was answered so
    mark: int = 0  # greatest mark that was ever told
    end: int = 0  # behind the last acknowledged row
    forced: list[Forced] = field(default_factory=list)
    truncates: list[Truncation] = field(default_factory=list)
    taken: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By offset and epoch of a record that a reader was given first: its position, (offset, epoch before)."""
    seen: dict[int, Stored] = field(default_factory=dict)  # by offset
    published: dict[int, Published] = field(default_factory=dict)  # by offset
    fenced: int = 0  # greatest epoch whose opening was told to be durable
    lost_below: int = 0  # its mark when it was quarantined because bytes rotted: rows below may be gone

    def may_lack(self, epochs: tuple[int, int], end: int) -> bool:
        """True if an operator gave up rows below `end` that an owner of one of these epochs acknowledged."""
        return any(one.gives_up(epochs, end) for one in self.forced)

    @property
    def truncatable(self) -> int:
        """Rows below it are known to be durable."""
        return max(self.mark, self.end)


class Partitions(dict[int, Partition]):
    """By number; one that was not heard of before begins empty."""

    def __missing__(self, number: int) -> Partition:
        made = self[number] = Partition(number)
        return made


class Ledger:
    """Batches by their first id, which no two share."""

    def __init__(self, partitions: list[int]) -> None:
        self.partitions = Partitions({number: Partition(number) for number in partitions})
        self.batches: dict[int, Batch] = {}
        self.acknowledged = 0
        self.rots: list[tuple[str, int, int]] = []
        self._next = 1
        self._sequences: dict[tuple[int, int, int], dict[int, int]] = {}

    def add(self, partition: int) -> None:
        """A partition that came about."""
        _ = self.partitions[partition]

    # ---- what happens ----

    def sent(self, producer: int, partition: int, rows: int) -> Batch:
        batch = Batch(producer, partition, self._next, rows)
        self.batches[batch.first] = batch
        self._next += rows
        return batch

    def ended(self, batch: Batch, outcome: str, offset: int = -1) -> None:
        assert not batch.outcome, f"{batch} ended before"
        batch.outcome, batch.offset = outcome, offset
        self.acknowledged += outcome == "done"
        part, end = self.partitions[batch.partition], offset + batch.rows
        if outcome == "done" and not part.may_lack(batch.epochs, end):
            part.end = max(part.end, end)

    def may_lack(self, batch: Batch) -> bool:
        """True if an operator gave an acknowledged batch up."""
        return self.partitions[batch.partition].may_lack(batch.epochs, batch.offset + batch.rows)

    def truncated(self, partition: int, before: int) -> Truncation:
        part = self.partitions[partition]
        part.start = max(part.start, before)
        asked = Truncation(partition, before, len(part.forced))
        part.truncates.append(asked)
        return asked

    def given_up(self, asked: Truncation) -> None:
        """A truncate was answered as done: these rows never come back, if they are not of a later history."""
        part = self.partitions[asked.partition]
        asked.ended = True
        if asked.forced == len(part.forced):
            part.gone = max(part.gone, asked.before)

    def applied(self, partition: int, start: int) -> None:
        """The metadata has this log start: the truncate that asked for it is about the history until now."""
        for asked in self.partitions[partition].truncates:
            asked.ended = asked.ended or asked.before == start

    def forced(self, partition: int, forced: Forced) -> None:
        """An operator chose an owner that may lack rows; offsets from its end on are of other rows since."""
        part = self.partitions[partition]
        part.forced.append(forced)
        under_way = [asked.before for asked in part.truncates if not asked.ended]
        part.start = max(min(part.start, forced.end), *under_way, 0)
        part.gone, part.mark = min(part.gone, forced.end), min(part.mark, forced.end)
        part.end = min(part.end, forced.end)
        for known in (part.seen, part.published):
            for record in [*known.values()]:
                if part.may_lack((record.epoch, record.epoch), record.offset + record.rows):
                    del known[record.offset]
        for key in [key for key in self._sequences if key[0] == partition]:
            del self._sequences[key]

    def opened(self, partition: int, epoch: int) -> None:
        self.add(partition)
        part = self.partitions[partition]
        part.fenced = max(part.fenced, epoch)

    def admitted(self, partition: int, epoch: int, fenced: int) -> None:
        """A batch routed under `epoch` was appended, which came when `fenced` was durable."""
        part = self.partitions[partition]
        if any(epoch < one.epoch <= fenced for one in part.forced):
            return  # replicas that were silent at the choice of an owner have not been fenced
        if epoch < fenced:
            what = f"partition {partition}: appended under epoch {epoch} when {fenced} was open"
            raise ViolationError("I4", what)

    def answered(
        self, partition: int, identity: tuple[int, int], sequence: int, epoch: int = 0, opened: int = 0
    ) -> None:
        """An owner that opened as `opened` acknowledged this sequence, which was sent under `epoch`."""
        if any(epoch < one.epoch for one in self.partitions[partition].forced):
            return  # the row may be given up
        known = self._sequences.setdefault((partition, *identity), {})
        known[opened] = max(known.get(opened, -1), sequence)

    def expected(self, partition: int, identity: tuple[int, int], sequence: int, opened: int = 0) -> None:
        """An owner says that it waits for this sequence: not for one that it or one before acknowledged.

        An answer of an earlier owner may come late. It has nothing of what a later one acknowledged.
        """
        known = self._sequences.get((partition, *identity), {})
        last = max((sequence for owner, sequence in known.items() if owner <= opened), default=-1)
        if sequence <= last and not self.partitions[partition].lost_below:
            what = f"partition {partition}: sequence {sequence} of producer {identity} is asked for"
            raise ViolationError("I6", f"{what}, {last} was acknowledged")

    def released(self, partition: int) -> None:
        """An operator gave up what is damaged."""
        part = self.partitions[partition]
        part.mark = 0
        part.seen.clear()
        part.published.clear()

    # ---- what must hold ----

    def told(self, statuses: list[dict[str, Any]]) -> None:
        """What a node says of its partitions, at any time and behind every start."""
        for status in statuses:
            part = self.partitions[status["partition"]]
            if status["quarantined"] is not None:
                if not self.rots:
                    what = f"partition {part.number} is quarantined, no byte rotted: {status['quarantined']}"
                    raise ViolationError("I5", what)
                part.lost_below = max(part.lost_below, part.mark, status["end_offset"])
                continue
            if status["end_offset"] < part.mark:
                what = f"partition {part.number}: the mark went from {part.mark} to {status['end_offset']}"
                raise ViolationError("I14", what)
            part.mark = max(part.mark, status["end_offset"])

    def begins(self, partition: int, start: int, epoch: int) -> None:
        """An owner's log begins at this row, and ends in a record of this epoch."""
        part = self.partitions[partition]
        is_of_the_choice = not part.forced or epoch >= part.forced[-1].epoch
        if is_of_the_choice and start > part.start:
            what = f"the log of epoch {epoch} begins at {start}, rows below {part.start} were given up"
            raise ViolationError("I14", f"partition {partition}: {what}")

    def read(self, partition: int, record: Record) -> None:
        """A row range that a reader was given."""
        part = self.partitions[partition]
        if isinstance(record, Published):
            known = part.published.setdefault(record.offset, record)
            if known.body != record.body:
                what = f"partition {partition}: the publish at {record.offset} was read with another content"
                raise ViolationError("I14", what)
            return
        if part.may_lack((record.epoch, record.epoch), record.offset + record.rows):
            self._check_sent(part, record)  # by a former owner that has not heard of the choice
            return
        before = part.seen.get(record.offset)
        if before is not None and (before.rows, before.body) != (record.rows, record.body):
            name = f"partition {partition}: offset {record.offset}"
            what = f"{name} was read as {before.first}, now as {record.first}"
            raise ViolationError("I14", what)
        if before is not None:
            return
        part.seen[record.offset] = record
        self._check_sent(part, record)

    def _check_sent(self, part: Partition, record: Stored) -> None:
        batch = self.batches.get(record.first)
        if batch is None or batch.partition != part.number or body_of(batch.first, batch.rows) != record.body:
            what = f"partition {part.number}: what stands at {record.offset} was never sent there"
            raise ViolationError("I5", what)

    def took(self, partition: int, position: tuple[int, int], record: Record) -> None:
        """A reader named a position, the epoch of the row before with it, and was given this record first."""
        if position[1]:
            self.partitions[partition].taken[record.offset, record.epoch] = position

    def check(self, partition: int, records: Sequence[Record]) -> None:
        """The whole log of a partition from its start, in order, against everything known of it.

        Behind each publish stand the rows that it gives offsets to.
        """
        part = self.partitions[partition]
        by_first: dict[int, Stored] = {}
        end, epoch = -1, 0
        whole = range(0)
        for record in records:
            self.read(partition, record)
            if isinstance(record, Published) and record.offset < part.gone:
                # A record is shown whole: a reader skips what of it lies below the log start.
                whole = range(record.offset, record.offset + record.rows)
            if record.offset + record.rows <= part.gone and (
                record.offset not in whole or part.gone >= whole.stop
            ):
                what = f"rows at {record.offset} are back, a truncate to {part.gone} was answered as done"
                raise ViolationError("I14", f"partition {partition}: {what}")
            if isinstance(record, Published):
                continue
            if record.first in by_first:
                other = by_first[record.first].offset
                what = f"partition {partition}: batch {record.first} stands at {other} and at {record.offset}"
                raise ViolationError("I6", what)
            by_first[record.first] = record
            if end >= part.lost_below and end not in (-1, record.offset):
                raise ViolationError(
                    "I5", f"partition {partition}: rows {end} to {record.offset} are missing"
                )
            if record.epoch < epoch:
                what = f"partition {partition}: epoch {record.epoch} stands behind {epoch}"
                raise ViolationError("I4", what)
            self._check_taken(part, record, epoch)
            end, epoch = record.offset + record.rows, record.epoch
        for offset, seen in part.seen.items():
            if offset >= part.start and seen.first not in by_first:
                raise ViolationError("I14", f"partition {partition}: rows at {offset} were read and are gone")
        here = {record.offset for record in records if isinstance(record, Published)}
        if gone := [offset for offset in part.published if offset >= part.start and offset not in here]:
            what = f"partition {partition}: publishes at {gone} were read and are gone"
            raise ViolationError("I14", what)
        self._check_batches(part, by_first)

    def _check_taken(self, part: Partition, record: Stored, epoch: int) -> None:
        """A position whose row before is of another history is refused, so a reader skips nothing.

        Logs with an equal record at an equal place are equal up to it, so this log can be asked afterwards.
        """
        offset, named = part.taken.get((record.offset, record.epoch), (0, 0)) if part.forced else (0, 0)
        own = record.epoch if offset > record.offset else epoch
        if named and own and named != own:
            what = f"the row before {offset} is of epoch {own}, a reader named {named} and was answered"
            raise ViolationError("I14", f"partition {part.number}: {what}")

    def _check_batches(self, part: Partition, by_first: dict[int, Stored]) -> None:
        last: dict[int, int] = {}
        for batch in self.batches.values():
            if batch.partition != part.number:
                continue
            found = by_first.get(batch.first)
            name = f"partition {part.number}: batch {batch.first} of producer {batch.producer}"
            if batch.outcome == "refused" and found is not None:
                raise ViolationError("I15", f"{name} was refused and stands at {found.offset}")
            if batch.outcome != "done":
                continue
            if found is None and self.may_lack(batch):
                continue
            if found is None and batch.offset >= max(part.lost_below, part.start):
                raise ViolationError("I5", f"{name} was acknowledged at {batch.offset} and is gone")
            if found is not None and found.offset != batch.offset:
                raise ViolationError(
                    "I5", f"{name} was acknowledged at {batch.offset}, stands at {found.offset}"
                )
            if batch.offset < last.get(batch.producer, -1):
                raise ViolationError("I7", f"{name} stands before one that was sent earlier")
            last[batch.producer] = batch.offset

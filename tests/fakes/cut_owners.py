"""Owners of a topic's partitions over splits, merges and repartitions: what they store and answer. Pure.

A topic has SLOTS slots here. A batch has a row for each of its slots; a row is (send, slot).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ringfence.common.routes import Routes, Slots, overlap
from ringfence.common.send_effects import Identity, Sealed
from ringfence.native.errors import RerouteError, RingfenceError, refusal
from ringfence.native.wire import DEDUPE_WINDOW, Code, RedirectReason

SLOTS = 8
Row = tuple[int, int]  # send, slot
NAMED_ID = 1


class Batch(NamedTuple):
    """What one request carries, and what one record has."""

    rows: tuple[Row, ...]
    send: int


class Record(NamedTuple):
    identity: Identity
    sequence: int
    batch: Batch


Answer = tuple[str, int] | Sealed | RingfenceError
"""("stored", first offset), the word of a sealed partition, or a refusal or redirect."""


@dataclass
class Part:
    """One partition at its owner. `producers`: by id, the epoch and the next sequence."""

    partition: int
    slots: Slots
    parents: tuple[int, ...] = ()
    created: int = 1
    is_held: bool = False
    sealed: int = 0  # the version that sealed it
    is_given_back: bool = False  # its producer table was dropped
    is_pruned: bool = False
    records: list[Record] = field(default_factory=list)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    points: dict[int, int] = field(default_factory=dict)  # of the named producer: slot -> greatest send

    def decide(self, identity: Identity, sequence: int) -> tuple[str, int]:
        """new, again, gap or fenced; and how many sequences of this epoch are stored."""
        epoch, stored = self.producers.get(identity.producer_id, (0, 0))
        if identity.producer_epoch < epoch:
            return "fenced", stored
        stored = stored if identity.producer_epoch == epoch else 0
        if sequence < stored:
            return "again", stored
        return ("new" if sequence == stored else "gap"), stored

    def offset_of(self, identity: Identity, sequence: int) -> int:
        offset = 0
        for record in self.records:
            if (record.identity, record.sequence) == (identity, sequence):
                return offset
            offset += len(record.batch.rows)
        raise AssertionError(f"{identity}, {sequence} is not in {self.records}")

    def batch_of(self, identity: Identity, sequence: int) -> Batch:
        return next(
            record.batch
            for record in self.records
            if (record.identity, record.sequence) == (identity, sequence)
        )

    def append(self, identity: Identity, sequence: int, batch: Batch) -> int:
        offset = sum(len(record.batch.rows) for record in self.records)
        self.records.append(Record(identity, sequence, batch))
        self.producers[identity.producer_id] = identity.producer_epoch, sequence + 1
        if identity.producer_id == NAMED_ID:  # as in the engine: the last batch counts for all slots
            lo, hi = self.slots
            for slot in range(lo, hi + 1):
                self.points[slot] = max(self.points.get(slot, 0), batch.send)
        return offset


class Topic:
    """All partitions that ever were, and the table of every version."""

    def __init__(self, *bounds: int) -> None:
        edges = [0, *bounds, SLOTS]
        self.parts = {
            number: Part(number, (lo, hi - 1)) for number, (lo, hi) in enumerate(itertools.pairwise(edges))
        }
        self.version = 1
        self.checks_slots = True  # of topics with key
        self.tables = {1: self._table()}
        self._next = len(self.parts)

    def active(self) -> list[Part]:
        return sorted((part for part in self.parts.values() if not part.sealed), key=lambda part: part.slots)

    def _table(self) -> Routes:
        sealed = {
            part.partition: part.slots for part in self.parts.values() if part.sealed and not part.is_pruned
        }
        return Routes(self.version, {part.partition: part.slots for part in self.active()}, sealed)

    # ---- layout changes -----------------------------------------------------------------------------

    def hold(self, sources: Iterable[Part]) -> None:
        for part in sources:
            part.is_held = True

    def abort(self) -> None:
        for part in self.active():
            part.is_held = False

    def commit(self, sources: list[Part], edges: list[int]) -> None:
        """Seal adjacent partitions; children begin at `edges`, the first at the sources' first slot."""
        self.version += 1
        end = max(part.slots[1] for part in sources) + 1
        for part in sources:
            part.sealed, part.is_held = self.version, False
        for lo, after in zip(edges, [*edges[1:], end], strict=True):
            child = Part(self._next, (lo, after - 1), created=self.version)
            self._next += 1
            parents = [part for part in sources if overlap(part.slots, child.slots)]
            child.parents = tuple(part.partition for part in parents)
            for parent in parents:
                for number, (epoch, _) in parent.producers.items():
                    child.producers[number] = max(epoch, child.producers.get(number, (0, 0))[0]), 0
                for slot, send in parent.points.items():
                    if lo <= slot < after:
                        child.points[slot] = send
            self.parts[child.partition] = child
        self.tables[self.version] = self._table()

    def prune(self, part: Part) -> None:
        part.is_pruned = True
        self.tables[self.version] = self._table()

    # ---- requests -----------------------------------------------------------------------------------

    def serve(self, partition: int, identity: Identity, sequence: int, batch: Batch, version: int) -> Answer:
        part = self.parts[partition]
        if part.is_pruned:
            return refusal(Code.UNKNOWN_PARTITION, "pruned", partition=partition)
        verdict, stored = part.decide(identity, sequence)
        if part.sealed:
            if verdict == "again" and not part.is_given_back:
                return self._repeated(part, identity, sequence, batch)
            if part.is_given_back:
                return Sealed(None, (), part.sealed)
            if verdict == "fenced":
                return refusal(Code.FENCED_PRODUCER, "newer", partition=partition)
            first = max(0, stored - DEDUPE_WINDOW)
            answers = [(one, part.offset_of(identity, one)) for one in range(first, stored)]
            return Sealed(stored, tuple(answers), part.sealed)
        if version < self.version:
            return RerouteError(
                "newer", reason=RedirectReason.STALE_VERSION, partition=partition, layout_version=self.version
            )
        if part.is_held:
            return refusal(Code.HELD, "on hold", partition=partition)
        if verdict == "fenced":
            return refusal(Code.FENCED_PRODUCER, "newer", partition=partition)
        if verdict == "gap":
            return refusal(Code.SEQUENCE_GAP, "gap", partition=partition, expected=stored)
        if verdict == "again":
            return self._repeated(part, identity, sequence, batch)
        wrong = [slot for _, slot in batch.rows if not part.slots[0] <= slot <= part.slots[1]]
        assert not (wrong and self.checks_slots), f"rows of slots {wrong} are sent to {part.slots}"
        return "stored", part.append(identity, sequence, batch)

    def _repeated(self, part: Part, identity: Identity, sequence: int, batch: Batch) -> Answer:
        known = part.batch_of(identity, sequence)
        assert known == batch, f"I6: sequence {sequence} of {part.partition} has {known}, sent as {batch}"
        return "stored", part.offset_of(identity, sequence)

    # ---- named producers ----------------------------------------------------------------------------

    def raise_epoch(self, part: Part, epoch: int) -> bool:
        """Write a name's epoch; whether that succeeded."""
        if part.sealed or part.is_held:
            return False
        part.producers[NAMED_ID] = epoch, 0
        return True

    # ---- what is stored -----------------------------------------------------------------------------

    def lineage(self, slot: int) -> list[int]:
        """The sends of the rows of a slot, ancestors first."""
        parts = [part for part in self.parts.values() if part.slots[0] <= slot <= part.slots[1]]
        return [
            send
            for part in sorted(parts, key=lambda part: part.created)
            for record in part.records
            for send, own in record.batch.rows
            if own == slot
        ]

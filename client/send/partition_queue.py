"""One producer's batches to one partition, in order. Pure; `inflight` holds a lane for each partition.

    submit --> waiting --(sequence drawn, at most `window` in flight)--> flight --> an outcome
                  ^                                                        |
                  `------ requeued: surely not stored, new identity -------'

Invariants:
    L1  `flight` is ordered by sequence; a sequence belongs to one batch for ever (I6).
    L2  after a failed try nothing is sent until every try has its answer or is given up; then all of `flight`
        goes again, lowest sequence first. So a retry never makes gaps of its own.
    L3  a batch goes back to `waiting` only if no try of it can be stored: each was answered "not stored", or
        a lower sequence surely never will be stored (the node takes no gaps).
    L4  while the owner is not ready one batch at a time asks for it: a window of large ones would only be
        thrown away there, and keep it from becoming ready.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.common.failure_detector import FORMER_S

UNANSWERED_S = 3.0  # as SILENT_S of failure_detector.py: of an owner that answers others, but not this

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError


@dataclass(slots=True, eq=False)
class Entry:
    """One batch on its way."""

    key: int
    number: int  # order of submission
    partition: int
    deadline: float
    sequence: int = -1
    attempt: int = 0  # the try under way, or the last one
    awaiting: bool = False  # the last try has no answer yet
    lost: int = 0  # tries that will never be answered: the batch may be stored
    failures: int = 0  # retriable refusals, for the back-off
    redirects: int = 0
    reopened: int = 0  # times that it went on under a new identity
    owner: int = 0  # the lane's `owner` when the last try was sent

    @property
    def maybe_stored(self) -> bool:
        return self.awaiting or self.lost > 0


@dataclass(slots=True, eq=False)
class Lane:
    partition: int
    window: int
    waiting: deque[Entry] = field(default_factory=deque)
    flight: dict[int, Entry] = field(default_factory=dict)
    again: deque[Entry] = field(default_factory=deque)  # of flight: to be sent again, once quiet
    next_sequence: int = 0
    awaiting: int = 0
    dirty: bool = False  # a try failed: L2
    hole: bool = (
        False  # a sequence ended without being stored for sure: higher ones may be refused as a gap for ever
    )
    stale: bool = False  # wait for a newer table
    pause_until: float = 0.0
    owner: int = 0  # counts the owners that tables named
    former_until: float = 0.0  # tries at former owners are waited for until then; 0: there are none
    early: int = 0  # tries in a row that came before the owner was ready: L4
    said: RingfenceError | None = None  # why the node took nothing, since it last took something
    oldest: tuple[int, int] | None = None  # the try that was waited for at the last look, and since when
    oldest_at: float = 0.0

    def next(self, now: float, *, fresh: bool) -> Entry | None:
        """The batch to send now, marked as under way; None if there is none.

        Args:
            now: seconds.
            fresh: whether batches without a sequence may get one (not while the producer drains).
        """
        if self.stale or now < self.pause_until or (self.early and self.awaiting):
            return None
        if self.dirty:
            if self.awaiting:
                return None
            self.again = deque(self.flight.values())
            self.dirty = False
        if self.again:
            entry = self.again.popleft()
        elif fresh and self.waiting and len(self.flight) < self.window:
            entry = self.waiting.popleft()
            entry.sequence = self.next_sequence
            self.flight[entry.sequence] = entry
            self.next_sequence += 1
        else:
            return None
        entry.attempt += 1
        entry.awaiting, entry.owner = True, self.owner
        self.awaiting += 1
        return entry

    def holds(self, now: float) -> bool:
        """Whether a further batch would wait behind those that the owner does not take."""
        if not self.flight and not self.waiting:
            return False
        if self.said is not None or self.dirty or self.again or self.stale or now < self.pause_until:
            return True
        first = self.first_in_flight()
        oldest = (first.key, first.attempt) if first is not None and first.awaiting else None
        if oldest != self.oldest:
            self.oldest, self.oldest_at = oldest, now
        return oldest is not None and now - self.oldest_at >= UNANSWERED_S

    def moved(self, now: float) -> None:
        """Another owner takes the batches from here on: the pause was for the former one."""
        self.former_until = now + FORMER_S if self.awaiting else 0.0
        self.owner += 1
        self.pause_until, self.early = 0.0, 0

    def overdue(self, now: float) -> list[tuple[int, int]]:
        """(key, attempt) of the tries that a former owner has not answered in its time; told once."""
        if not self.former_until or now < self.former_until:
            return []
        self.former_until = 0.0
        former = [one for one in self.flight.values() if one.awaiting and one.owner != self.owner]
        return [(one.key, one.attempt) for one in former]

    def answered(self, entry: Entry) -> None:
        if entry.awaiting:
            entry.awaiting = False
            self.awaiting -= 1

    def remove(self, entry: Entry) -> None:
        """The entry has its outcome."""
        self.answered(entry)
        del self.flight[entry.sequence]
        if self.again and entry in self.again:
            self.again.remove(entry)

    def retry(self, entry: Entry, at: float) -> None:
        """A try failed: send all of the flight again, not before `at`."""
        self.answered(entry)
        self.dirty = True
        self.again.clear()
        self.pause_until = max(self.pause_until, at)

    def requeue(self, entries: list[Entry]) -> None:
        """Back to `waiting`, in the order of submission, without a sequence (L3)."""
        for entry in entries:
            self.remove(entry)
            entry.sequence, entry.lost = -1, 0
            entry.reopened += 1
            entry.attempt += 1  # an answer still under way is for the try before
        # Others may have come back before these: all that were ever in flight are ahead of those that never
        # were.
        self.waiting = deque(sorted([*entries, *self.waiting], key=lambda entry: entry.number))

    def first_in_flight(self) -> Entry | None:
        return next(iter(self.flight.values()), None)

    def first_waiting(self) -> Entry | None:
        return self.waiting[0] if self.waiting else None

    def above(self, sequence: int) -> list[Entry]:
        return [entry for entry in self.flight.values() if entry.sequence > sequence]

    def restart(self) -> None:
        """Begin anew under a fresh identity."""
        assert not self.flight, (
            f"L1: partition {self.partition} restarts with {len(self.flight)} batches in flight"
        )
        self.next_sequence, self.hole, self.dirty, self.pause_until = 0, False, False, 0.0
        self.again.clear()

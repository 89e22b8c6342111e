"""One producer's batches to one partition, in order. Pure; `Inflight` has one queue for each partition.

    submit --> waiting --(sequence drawn, at most `window` in flight)--> flight --> an outcome
                  ^                                                        |
                  `----- requeued: certainly not stored, new identity -----'

Invariants:
    L1  `flight` is ordered by sequence; a sequence belongs to one batch forever (I6).
    L2  after a failed try nothing is sent until every try is answered or lost. Then all of `flight` is sent
        again, lowest sequence first. So a retry never causes gaps.
    L3  a batch returns to `waiting` only if no try of it can be stored: each was answered "not stored", or a
        lower sequence certainly never will be stored (a node accepts no gaps).
    L4  while the owner is not ready, one batch at a time is sent. A window of large batches would be
        discarded there and delay the owner.
    L5  a queue whose partition is not ACTIVE draws no sequence. It only asks its partition, one batch at a
        time, what became of tries that were not answered.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.common.failure_detector import FORMER_S
from ringfence.common.routes import ALL_SLOTS, Slots

# Like SILENT_S in failure_detector.py, for an owner that answers other requests but not this one.
UNANSWERED_S = 3.0

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError

# Order of sending in a partition: number, slot and key of a batch.
Place = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class SendEntry:
    """One batch that has no outcome yet."""

    key: int
    number: int  # order of submission; what a layout change makes of a batch keeps it
    partition: int
    deadline: float
    send: int = 0  # of the header: a named producer has one batch of a send in a partition
    slot: int = 0  # of the first row, if the batch was routed again: orders batches with one `number`
    sequence: int = -1
    attempt: int = 0  # number of the current or last try
    awaiting: bool = False  # the current try has no answer yet
    lost: int = 0  # tries without an answer; if above 0 the batch may be stored
    failures: int = 0  # retriable refusals; the backoff grows with them
    redirects: int = 0
    reopened: int = 0  # identities that it has used before the current one
    owner: int = 0  # `PartitionQueue.owner` when the current try was sent
    version: int = 0  # of the routing table when the current try was sent

    @property
    def place(self) -> Place:
        """Order of sending in a partition."""
        return self.number, self.slot, self.key

    @property
    def maybe_stored(self) -> bool:
        return self.awaiting or self.lost > 0


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, and what delays them."""

    partition: int
    window: int
    slots: Slots = ALL_SLOTS
    waiting: deque[SendEntry] = field(default_factory=deque)
    # Batches of former partitions that were routed again: a heap by `place`, sent before later ones.
    returned: list[tuple[tuple[int, int, int], SendEntry]] = field(default_factory=list)
    returned_sends: dict[int, SendEntry] = field(default_factory=dict)  # of named producers, by `send`
    flight: dict[int, SendEntry] = field(default_factory=dict)
    to_resend: deque[SendEntry] = field(default_factory=deque)  # part of `flight` that L2 sends again
    next_sequence: int = 0
    awaiting: int = 0
    dirty: bool = False  # a try failed; L2 delays all sends
    # A sequence ended and may not be stored: the owner may refuse all higher ones as gaps.
    hole: bool = False
    stale: bool = False  # nothing is sent until a newer table arrives
    is_active: bool = True  # False: sealed, by its owner's word or by the table
    needs_version: int = 0  # the least version of a table that names the children; by the owner's word
    cannot_tell: bool = False  # no node knows any more what is stored in the sealed partition
    pause_until: float = 0.0  # nothing is sent before this time
    owner: int = 0  # number of owner changes in the tables
    former_until: float | None = None  # deadline of unanswered tries at former owners; None: no such tries
    early: int = 0  # tries in a row before the owner was ready: L4
    last_refusal: RingfenceError | None = None  # of the owner, since it last stored a batch
    oldest: tuple[int, int] | None = None  # the first unanswered try at the last look, since `oldest_at`
    oldest_at: float = 0.0

    def next(self, now: float, *, fresh: bool) -> SendEntry | None:
        """The batch to send now, marked as sent; None if there is none.

        Args:
            now: seconds.
            fresh: whether batches may draw a new sequence (not while the producer drains).
        """
        if self.stale or now < self.pause_until or (self.early and self.awaiting):
            return None
        if self.dirty and self.is_active:
            if self.awaiting:
                return None
            self.to_resend = deque(self.flight.values())
            self.dirty = False
        if not self.is_active:
            entry = self._question()
            if entry is None:
                return None
        elif self.to_resend:
            entry = self.to_resend.popleft()
        elif fresh and len(self.flight) < self.window and (self.waiting or self.returned):
            entry = self.take_waiting() if self.returned else self.waiting.popleft()
            entry.sequence = self.next_sequence
            self.flight[entry.sequence] = entry
            self.next_sequence += 1
        else:
            return None
        entry.attempt += 1
        entry.awaiting, entry.owner = True, self.owner
        self.awaiting += 1
        return entry

    def _question(self) -> SendEntry | None:
        """L5: the lowest batch that may be stored, sent again. One answer may settle all of them."""
        self.dirty = False
        self.to_resend.clear()
        if self.awaiting:
            return None
        return next((one for one in self.flight.values() if one.lost), None)

    # ---- batches without a sequence -------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no batch of the partition lacks its outcome."""
        return not (self.flight or self.waiting or self.returned)

    @property
    def first_place(self) -> Place | None:
        """Of the earliest batch without an outcome; None: there is no batch."""
        firsts = (self.first_in_flight(), self.first_waiting())
        return min((one.place for one in firsts if one is not None), default=None)

    def first_waiting(self) -> SendEntry | None:
        """The next batch that draws a sequence."""
        if self.returned and not (self.waiting and self.waiting[0].place < self.returned[0][0]):
            return self.returned[0][1]
        return self.waiting[0] if self.waiting else None

    def take_waiting(self) -> SendEntry:
        """Remove and return `first_waiting`."""
        if self.returned and not (self.waiting and self.waiting[0].place < self.returned[0][0]):
            entry = heapq.heappop(self.returned)[1]
            self.returned_sends.pop(entry.send, None)
            return entry
        return self.waiting.popleft()

    def take_all_waiting(self) -> list[SendEntry]:
        """Remove all batches without a sequence; in their order."""
        taken = sorted([*self.waiting, *(entry for _, entry in self.returned)], key=lambda one: one.place)
        self.waiting.clear()
        self.returned.clear()
        self.returned_sends.clear()
        return taken

    def put_returned(self, entry: SendEntry) -> None:
        """Add a batch that was routed again, at its place among the others."""
        heapq.heappush(self.returned, (entry.place, entry))

    def drop_returned(self, *entries: SendEntry) -> None:
        """Remove batches that were routed again."""
        self.returned = [one for one in self.returned if one[1] not in entries]
        heapq.heapify(self.returned)
        for entry in entries:
            self.returned_sends.pop(entry.send, None)

    def drop_waiting(self, entry: SendEntry) -> None:
        """Remove a batch without a sequence."""
        if self.first_waiting() is entry:
            self.take_waiting()
        elif entry in self.waiting:
            self.waiting.remove(entry)
        else:
            self.drop_returned(entry)

    # ---- owner, tries ---------------------------------------------------------------------------------

    def holds(self, now: float) -> bool:
        """Whether the owner does not store the batches that it has, so that another one would wait."""
        if self.is_empty:
            return False
        if (
            self.last_refusal is not None
            or self.dirty
            or self.to_resend
            or self.stale
            or now < self.pause_until
        ):
            return True
        first = self.first_in_flight()
        oldest = (first.key, first.attempt) if first is not None and first.awaiting else None
        if oldest != self.oldest:
            self.oldest, self.oldest_at = oldest, now
        return oldest is not None and now - self.oldest_at >= UNANSWERED_S

    def moved(self, now: float) -> None:
        """Send to a new owner from now on; the pause concerned the former owner."""
        self.former_until = now + FORMER_S if self.awaiting else None
        self.owner += 1
        self.pause_until, self.early = 0.0, 0

    def overdue(self, now: float) -> list[tuple[int, int]]:
        """(key, attempt) of tries that a former owner did not answer within FORMER_S; returned once."""
        if self.former_until is None or now < self.former_until:
            return []
        self.former_until = None
        former = [one for one in self.flight.values() if one.awaiting and one.owner != self.owner]
        return [(one.key, one.attempt) for one in former]

    def answered(self, entry: SendEntry) -> None:
        if entry.awaiting:
            entry.awaiting = False
            self.awaiting -= 1

    def remove(self, entry: SendEntry) -> None:
        """The entry has its outcome."""
        self.answered(entry)
        del self.flight[entry.sequence]
        if self.to_resend and entry in self.to_resend:
            self.to_resend.remove(entry)

    def retry(self, entry: SendEntry, at: float) -> None:
        """A try failed: send all of `flight` again, not before `at`."""
        self.answered(entry)
        self.dirty = True
        self.to_resend.clear()
        self.pause_until = max(self.pause_until, at)

    def requeue(self, entries: list[SendEntry], *, reopens: bool = True) -> None:
        """Return entries to `waiting` without a sequence, in the order of submission (L3).

        `reopens`: they will be sent under another identity.
        """
        for entry in entries:
            self.remove(entry)
            entry.sequence, entry.lost = -1, 0
            entry.reopened += reopens
            entry.attempt += 1  # ignores late answers to the previous try
        # Other entries may have returned earlier, so all are sorted by their order of submission.
        self.waiting = deque(sorted([*entries, *self.waiting], key=lambda entry: entry.place))

    def first_in_flight(self) -> SendEntry | None:
        return next(iter(self.flight.values()), None)

    def above(self, sequence: int) -> list[SendEntry]:
        return [entry for entry in self.flight.values() if entry.sequence > sequence]

    def restart(self) -> None:
        """Start again with sequence 0 under a new identity."""
        assert not self.flight, (
            f"L1: partition {self.partition} restarts with {len(self.flight)} batches in flight"
        )
        self.next_sequence, self.hole, self.dirty, self.pause_until = 0, False, False, 0.0
        self.to_resend.clear()

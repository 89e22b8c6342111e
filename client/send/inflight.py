"""Exactly-once sending of one producer, over all partitions. Pure: values in, values out.

START HERE for the rules; `partition_queue.py` has the order within a partition.

    OPEN --(a sequence ends, not surely stored)--> DRAINING --(no flight left)--> OPENING --opened--> OPEN
      `------------(fenced: a newer holder of the name)------------> DEAD

A batch ends in exactly one outcome:
    Done     the node answered OK, at this try or at an earlier one.
    Refused  not stored: a final refusal, or a deadline before any try could have stored it.
    Unknown  some try was never answered, and the same sequence cannot be asked about any more.

After an outcome other than Done the sequence stays empty, and is never used for other content (I6): the
producer stops handing out sequences, waits until every batch in flight has its outcome (DRAINING), and goes
on under a new identity. Batches behind the hole that surely were not stored are sent again under that
identity, in order. Not so those of a *named* producer: its successor takes the greatest stored `send` of a
partition for "everything up to here", so behind a hole nothing more of it is stored there. As no sequence of
that partition is handed out again, it keeps its identity, and the other partitions go on.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ringfence.common.retry import Backoff
from ringfence.common.send_effects import (
    Done,
    Effect,
    FetchTable,
    Identity,
    OpenEpoch,
    Outcome,
    Refused,
    Transmit,
    Unknown,
)
from ringfence.native.errors import FencedError, RerouteError, RingfenceError
from ringfence.native.wire import DEDUPE_WINDOW, Code
from ringfence.send.failures import deadline_error, hole_error, unknown_error
from ringfence.send.partition_queue import Entry, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ringfence.send.wait_reasons import Wait

REDIRECTS_MAX = (
    16  # of one batch: enough for a rolling change of every owner, and an end for owners that disagree (F3)
)
EARLY = Backoff(first_s=0.002, cap_s=0.008)  # an OPEN takes 2 to 5 ms behind its entry, with replicas 5 to 25
EARLY_MAX = 16  # a tenth of a second: then the owner is asked as any node that refuses
EARLY_LANES_MAX = 32  # planned changes come in ones; behind a failure of many each would ask for nothing
REOPENED_MAX = 16  # identities that one batch may see; each costs a commit in the metadata log
# Verdicts on the bytes alone: an earlier try of the same bytes was refused as well, so nothing is stored.
VERDICTS_ON_CONTENT = frozenset(
    {
        Code.BAD_HEADER,
        Code.TOO_LARGE,
        Code.BAD_BODY,
        Code.UNSUPPORTED_TYPE,
        Code.WRONG_SLOT,
        Code.ZERO_ROWS,
    }
)
# Of a node whose disk failed: what it appended may be stored or not, it takes nothing more. Replicas choose
# another owner, which knows the sequence if it has the batch; without any, the deadline ends it.
NOT_BY_THIS_OWNER = frozenset({Code.UNKNOWN_OUTCOME, Code.STORAGE_FAILED})
# The sequence is taken: the ones behind it are not blocked.
SEQUENCE_TAKEN = frozenset({Code.CONFLICT, Code.TOO_OLD})


class Phase(Enum):
    OPEN = "open"
    DRAINING = "draining"
    OPENING = "opening"
    DEAD = "dead"


class Inflight:
    """All batches of one producer that have no outcome yet. Times are seconds on the caller's clock.

    `ready` holds the partitions whose lane may have something to send, in the order they became so;
    `transmit` takes a partition out when it has not.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        topic: str | None = None,
        named: bool = False,
        window: int = DEDUPE_WINDOW,
        redirects_max: int = REDIRECTS_MAX,
        backoff: Backoff | None = None,
    ) -> None:
        self.identity = identity
        self.phase = Phase.OPEN
        self.ready: dict[int, None] = {}
        self._lanes: dict[int, Lane] = {}
        self._early: set[int] = set()  # partitions whose owner is about to be ready
        self._entries: dict[int, Entry] = {}
        self._topic, self._named = topic, named
        self._window, self._redirects_max = window, redirects_max
        self._backoff = backoff or Backoff()
        self._death: RingfenceError | None = None
        self._holes: dict[int, RingfenceError] = {}  # of a named producer: partitions that take no more of it
        self._hole_everywhere: RingfenceError | None = None  # a send that is in none of them
        self._submitted = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def lanes(self) -> int:
        """Partitions that had batches under this identity; what one `expire` costs."""
        return len(self._lanes)

    @property
    def waits_for_table(self) -> bool:
        return any(lane.stale for lane in self._lanes.values())

    # ---- what goes out ------------------------------------------------------------------------------

    def submit(self, key: int, partition: int, deadline: float) -> list[Effect]:
        """One more batch; `key` is the caller's, never used twice."""
        if self._death is not None:
            return [Refused(key, self._death)]
        if (hole := self._holes.get(partition, self._hole_everywhere)) is not None:
            return [Refused(key, hole)]
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition, self._window)
        self._submitted += 1
        entry = self._entries[key] = Entry(key, self._submitted, partition, deadline)
        lane.waiting.append(entry)
        self.ready[partition] = None
        return []

    def refuse_later(self, error: RingfenceError) -> None:
        """Of a named producer: what is submitted from here on would come behind a hole, in any partition."""
        self._hole_everywhere = self._hole_everywhere or error

    def awaits(self, partition: int) -> bool:
        """Whether a try of the partition has no answer yet."""
        lane = self._lanes.get(partition)
        return lane is not None and lane.awaiting > 0

    def said(self, partition: int) -> RingfenceError | None:
        """Why the node took nothing of the partition, since it last took something."""
        lane = self._lanes.get(partition)
        return None if lane is None else lane.said

    def paused_until(self, partition: int) -> float:
        """When the partition's next batch may go; a time that is over if nothing holds it back."""
        lane = self._lanes.get(partition)
        return 0.0 if lane is None else lane.pause_until

    def held(self, now: float) -> Iterator[int]:
        """Partitions where a further batch would wait behind others that are not taken."""
        return (lane.partition for lane in self._lanes.values() if lane.holds(now))

    def transmit(self, partition: int, now: float) -> Transmit | None:
        """The next batch for the partition, if one may go now. Once returned it counts as sent."""
        lane = self._lanes.get(partition)
        entry = None if lane is None else lane.next(now, fresh=self.phase is Phase.OPEN)
        if entry is None:
            self.ready.pop(partition, None)
            return None
        return Transmit(entry.key, entry.attempt, partition, self.identity, entry.sequence, entry.deadline)

    # ---- answers ------------------------------------------------------------------------------------

    def done(self, key: int, attempt: int, first_offset: int) -> list[Effect]:
        entry = self._current(key, attempt)
        if entry is None:
            return []
        lane = self._lanes[entry.partition]
        lane.early, lane.said = 0, None
        self._early.discard(entry.partition)
        return self._end(entry, Done(key, first_offset))

    def refused(
        self,
        key: int,
        attempt: int,
        error: RingfenceError,
        now: float,
        jitter: float = 0.0,
        *,
        early: bool = False,
    ) -> list[Effect]:
        """An answer REFUSED. Retriable ones are tried again until the deadline; `jitter` spreads them.

        `early`: an owner that is about to open the partition; it is asked again soon, EARLY_MAX times.
        """
        entry = self._current(key, attempt)
        if entry is None:
            return []
        lane = self._lanes[entry.partition]
        if error.code is Code.SEQUENCE_GAP:
            return self._gap(lane, entry, error, now, jitter)
        if error.code in NOT_BY_THIS_OWNER:
            entry.lost += 1
        elif not error.retriable:
            return self._final(lane, entry, error)
        if self._at_once(lane, entry) or (early and self._soon(lane, entry, now, jitter)):
            return []
        lane.said = error
        entry.failures += 1
        self._retry(
            lane,
            entry,
            now + self._backoff.delay_s(entry.failures, jitter, getattr(error, "retry_after_s", 0.0)),
        )
        return []

    def redirected(
        self,
        key: int,
        attempt: int,
        error: RerouteError,
        generation: int,
        now: float,
        jitter: float = 0.0,
        *,
        early: bool = False,
    ) -> list[Effect]:
        """An answer REDIRECT that a newer table resolves: nothing was stored by this try.

        `early`: by an owner of our table that does not know it yet; asked again soon, EARLY_MAX times.
        """
        entry = self._current(key, attempt)
        if entry is None:
            return []
        lane = self._lanes[entry.partition]
        if self._at_once(lane, entry) or (early and self._soon(lane, entry, now, jitter)):
            return []
        entry.redirects += 1
        if entry.redirects > self._redirects_max:
            lane.answered(entry)
            return self._fail(entry, error, definite=not entry.maybe_stored)
        # The first redirect is the normal way to learn of a change; more of them mean that nodes disagree for
        # now.
        delay = self._backoff.delay_s(entry.redirects - 1, jitter) if entry.redirects > 1 else 0.0
        self._retry(lane, entry, now + delay)
        asked = self.waits_for_table
        lane.stale = True
        return [] if asked else [FetchTable(generation)]

    def lost(self, tries: Iterable[tuple[int, int]]) -> list[Effect]:
        """These (key, attempt) will never be answered.

        The connection is gone, or the time for an answer is over.
        """
        for key, attempt in tries:
            entry = self._current(key, attempt)
            if entry is not None:
                entry.lost += 1
                self._retry(self._lanes[entry.partition], entry, 0.0)
        return []

    # ---- the world around ---------------------------------------------------------------------------

    def table_arrived(
        self, active: Iterable[int], moved: Iterable[int] = (), *, now: float = 0.0
    ) -> list[Effect]:
        """A table was fetched or pushed. Batches of partitions that are not ACTIVE any more are refused.

        Partitions that `moved` have another owner, or owner epoch, than the table before had: their batches
        go there at once. What pauses them was an answer of the former owner, and one such table ends one
        pause: a node that refuses again is waited for as any other. What the former owner does not answer
        within FORMER_S from `now` counts as lost (`expire`): it may be stored, and keeps its sequence.
        """
        known, effects = set(active), list[Effect]()
        for partition in moved:
            if partition in self._lanes:
                self._lanes[partition].moved(now)
                self._early.discard(partition)
        for lane in self._lanes.values():
            lane.stale = False
            self.ready[lane.partition] = None
            if lane.partition not in known:
                error = RerouteError(
                    "the partition was split or merged while this batch was under way; send it again",
                    topic=self._topic,
                    partition=lane.partition,
                )
                for entry in [*lane.flight.values(), *lane.waiting]:
                    if not entry.awaiting and entry.key in self._entries:
                        effects += self._fail(entry, error, definite=not entry.maybe_stored)
        return effects

    def told(self, partition: int, error: RingfenceError) -> None:
        """Why nothing of the partition goes out: what a deadline will tell."""
        lane = self._lanes.get(partition)
        if lane is not None:
            lane.said = error

    def expire(self, now: float, why: Callable[[int], Wait] | None = None) -> list[Effect]:
        """The clock: outcomes of batches whose deadline is over, tries at owners that fell silent.

        Every lane with batches is looked at again. `why` tells for the error what a partition waits for.
        """
        effects: list[Effect] = []
        for lane in self._lanes.values():
            effects += self.lost(lane.overdue(now))
            for first in (lane.first_in_flight, lane.first_waiting):
                while (entry := first()) is not None and entry.deadline <= now:
                    wait = None if why is None else why(entry.partition)
                    error = deadline_error(self._topic, entry.partition, lane.said, wait)
                    effects += self._fail(entry, error, definite=not entry.maybe_stored)
            if lane.flight or lane.waiting:
                self.ready[lane.partition] = None
        return effects

    def opened(self, identity: Identity) -> list[Effect]:
        """A new identity was drawn after OpenEpoch."""
        assert self.phase is Phase.OPENING, f"opened in {self.phase}"
        self.identity, self.phase = identity, Phase.OPEN
        for lane in self._lanes.values():
            lane.restart()
            self.ready[lane.partition] = None
        return []

    def die(self, error: RingfenceError) -> list[Effect]:
        """Nothing can be sent any more: every batch ends now, and every later one at once."""
        self.phase, self._death = Phase.DEAD, error
        entries = list(self._entries.values())
        self._entries.clear()
        self._lanes.clear()
        self._early.clear()
        self.ready.clear()
        return [self._outcome(entry, error, definite=not entry.maybe_stored) for entry in entries]

    # ---- inside -------------------------------------------------------------------------------------

    def _current(self, key: int, attempt: int) -> Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.attempt == attempt and entry.awaiting else None

    def _at_once(self, lane: Lane, entry: Entry) -> bool:
        """What a former owner said holds nobody back: a newer table names another one."""
        if entry.owner == lane.owner:
            return False
        self._retry(lane, entry, 0.0)
        return True

    def _soon(self, lane: Lane, entry: Entry, now: float, jitter: float) -> bool:
        """The owner is about to be ready; False once it has been for too long.

        A whole window that came too early is one try.
        """
        if lane.partition not in self._early and len(self._early) >= EARLY_LANES_MAX:
            return False
        self._early.add(lane.partition)
        if not lane.dirty or not lane.early:
            lane.early += 1
        if lane.early > EARLY_MAX:
            return False
        self._retry(lane, entry, max(lane.pause_until, now + EARLY.delay_s(lane.early, jitter)))
        return True

    def _retry(self, lane: Lane, entry: Entry, at: float) -> None:
        lane.retry(entry, at)
        self.ready[lane.partition] = None

    def _outcome(self, entry: Entry, error: RingfenceError, *, definite: bool) -> Outcome:
        if definite:
            return Refused(entry.key, error)
        return Unknown(entry.key, unknown_error(self._topic, entry.partition, entry.sequence, error))

    def _end(self, entry: Entry, outcome: Outcome) -> list[Effect]:
        lane = self._lanes[entry.partition]
        if entry.sequence >= 0:
            lane.remove(entry)
        else:
            lane.waiting.remove(entry)
        del self._entries[entry.key]
        self.ready[lane.partition] = None
        return [outcome] if self.phase is Phase.OPEN else [outcome, *self._drained()]

    def _final(self, lane: Lane, entry: Entry, error: RingfenceError) -> list[Effect]:
        lane.answered(entry)
        # A topic's name may be another one's by now, which would give this producer an epoch.
        if isinstance(error, FencedError) or error.code is Code.UNKNOWN_TOPIC:
            return self._ended_by(entry, error)
        if (
            error.code is Code.FORGOTTEN
            and not self._named
            and not entry.lost
            and entry.reopened < REOPENED_MAX
        ):
            # Idle for so long that the node dropped it. This batch was never stored, so neither was one
            # behind it.
            self._make_hole(lane)
            self._requeue(lane, [entry, *lane.above(entry.sequence)])
            return self._drained()
        definite = not entry.lost or error.code in VERDICTS_ON_CONTENT
        return self._fail(entry, error, definite=definite and error.code is not Code.TOO_OLD)

    def _fail(self, entry: Entry, error: RingfenceError, *, definite: bool) -> list[Effect]:
        """The entry ends without being stored for sure (definite: surely not stored)."""
        lane = self._lanes[entry.partition]
        outcome = self._outcome(entry, error, definite=definite)
        effects: list[Effect] = []
        if self._named:
            self._holes.setdefault(lane.partition, hole_error(self._topic, lane.partition))
        if entry.sequence >= 0:
            self._make_hole(lane)
            if definite and error.code not in SEQUENCE_TAKEN:
                effects = self._requeue(lane, lane.above(entry.sequence))
        effects += self._end(entry, outcome)
        if self._named:
            effects += self._refuse_waiting(lane, self._holes[lane.partition])
        return effects

    def _make_hole(self, lane: Lane) -> None:
        lane.hole = True
        if self.phase is Phase.OPEN and not self._named:
            self.phase = Phase.DRAINING

    def _requeue(self, lane: Lane, entries: list[Entry]) -> list[Effect]:
        """Surely not stored: sent again under the next identity, if there will be one."""
        lane.requeue(entries)
        end = self._death or self._holes.get(lane.partition)
        return [] if end is None else self._refuse_waiting(lane, end)

    def _refuse_waiting(self, lane: Lane, error: RingfenceError) -> list[Effect]:
        refused = list(lane.waiting)
        lane.waiting.clear()
        for entry in refused:
            del self._entries[entry.key]
        return [Refused(entry.key, error) for entry in refused]

    def _ended_by(self, entry: Entry, error: RingfenceError) -> list[Effect]:
        """A newer holder is at work, or the topic is gone. What waits is refused.

        What is in flight hears of it by its own answer.
        """
        self.phase, self._death = Phase.DEAD, error
        effects = self._end(entry, self._outcome(entry, error, definite=not entry.lost))
        for lane in self._lanes.values():
            effects += self._refuse_waiting(lane, error)
        return effects

    def _gap(
        self, lane: Lane, entry: Entry, error: RingfenceError, now: float, jitter: float
    ) -> list[Effect]:
        lane.answered(entry)
        first = next(iter(lane.flight))
        expected = error.details.get("expected")
        if lane.hole and entry.sequence == first:
            # Nothing below is in flight any more, so the gap stays. Not stored, unless a lost try is still on
            # its way.
            if entry.lost or entry.reopened >= REOPENED_MAX:
                return self._fail(entry, error, definite=not entry.lost)
            return [*self._requeue(lane, [entry]), *self._drained()]
        if not lane.hole and isinstance(expected, int) and expected < first:
            # The node asks for a batch that it has acknowledged: it lost rows. Asking on would never end.
            return self._fail(entry, error, definite=not entry.lost)
        if (
            entry.sequence != first
        ):  # behind another failed try: no failure of its own, and L2 orders the retry
            self._retry(lane, entry, 0.0)
            return []
        entry.failures += 1
        self._retry(lane, entry, now + self._backoff.delay_s(entry.failures, jitter))
        return []

    def _drained(self) -> list[Effect]:
        if self.phase is Phase.DRAINING and not any(lane.flight for lane in self._lanes.values()):
            self.phase = Phase.OPENING
            return [OpenEpoch()]
        return []

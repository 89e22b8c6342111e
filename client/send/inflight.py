"""Exactly-once sending of one producer, over all partitions. Pure: values in, values out.

START HERE for the rules; `partition_queue.py` has the order within a partition, `reroute.py` what a split or
merge does to batches on their way.

    OPEN --(a sequence ends, maybe not stored)--> DRAINING --(no flight left)--> OPENING --opened--> OPEN
      `------------(fenced: a newer holder of the name)------------> DEAD

A batch ends in exactly one outcome:
    BatchStored   the node answered OK, to this try or to an earlier one.
    BatchRefused  not stored: a final refusal, or a deadline before any try could have stored it.
    BatchUnknown  a try was never answered, and the outcome of its sequence can no longer be queried.

After any outcome except BatchStored the sequence stays empty and is never used for other content (I6). An
unnamed producer stops assigning sequences, waits until every batch in flight has its outcome (DRAINING), and
continues under a new identity. Batches after the hole that are certainly not stored are sent again under that
identity, in order.

A *named* producer keeps its identity. Its successor reads the greatest stored `send` of a partition as
"everything up to here", so nothing after a hole may be stored in that partition. No sequence of that
partition is assigned again, and the other partitions continue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.common.retry import Backoff
from ringfence.common.send_effects import (
    BatchStored,
    Effect,
    FetchTable,
    Identity,
    Sealed,
    SequenceOwner,
    Transmit,
)
from ringfence.native.errors import FencedError, RerouteError, RingfenceError
from ringfence.native.wire import DEDUPE_WINDOW, Code, RedirectReason
from ringfence.send.failures import deadline_error
from ringfence.send.reroute import Phase, Reroute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ringfence.common.routes import Routes
    from ringfence.send.partition_queue import PartitionQueue, SendEntry
    from ringfence.send.wait_reasons import WaitReason

# Redirects of one batch: enough for a rolling change of every owner, and an end if owners disagree (F3).
REDIRECTS_MAX = 16
# An owner opens a partition 2 to 5 ms after the metadata entry, with replicas after 5 to 25 ms.
EARLY = Backoff(first_s=0.002, cap_s=0.008)
# About 0.1 s. After that the owner is treated like any node that refuses.
EARLY_MAX = 16
# Planned changes move single partitions. After a failure that moves many, early retries would be wasted.
EARLY_PARTITIONS_MAX = 32
# Identities that one batch may use; each costs a commit in the metadata log.
REOPENED_MAX = 16
# Refusals that depend on the bytes alone: an earlier try of the same bytes was refused too, nothing is
# stored.
VERDICTS_ON_CONTENT = frozenset(
    {Code.BAD_HEADER, Code.TOO_LARGE, Code.BAD_BODY, Code.UNSUPPORTED_TYPE, Code.WRONG_SLOT, Code.ZERO_ROWS}
)
# The disk of the owner failed: the batch may be stored, and this owner accepts nothing more. Replicas elect
# another owner, which knows the sequence if it has the batch. Without replicas the deadline ends the batch.
NOT_BY_THIS_OWNER = frozenset({Code.UNKNOWN_OUTCOME, Code.STORAGE_FAILED})


class Inflight(Reroute):
    """All batches of one producer that have no outcome yet. Times are seconds on the caller's clock.

    `transmit` removes a partition that has nothing to send from `ready`.
    """

    def __init__(
        self,
        identity: SequenceOwner,
        *,
        topic: str | None = None,
        named: bool = False,
        window: int = DEDUPE_WINDOW,
        redirects_max: int = REDIRECTS_MAX,
        backoff: Backoff | None = None,
        routes: Routes | None = None,
    ) -> None:
        """`named`: the identity is never replaced; also of an attempt of a transaction.

        `routes`: of the table that partitions are chosen by; None: all partitions count as ACTIVE.
        """
        joins = named and isinstance(identity, Identity)
        super().__init__(topic=topic, named=named, joins=joins, window=window, routes=routes)
        self.identity = identity
        self._early: set[int] = set()  # partitions whose owner is about to open them
        self._redirects_max = redirects_max
        self._backoff = backoff or Backoff()

    @property
    def partitions(self) -> int:
        """Number of partitions with batches under this identity: the cost of one `expire`."""
        return len(self._queues)

    @property
    def waits_for_table(self) -> bool:
        return any(queue.stale for queue in self._queues.values()) or self.needed_version > 0

    @property
    def needed_version(self) -> int:
        """The least version of a table that helps every sealed partition; 0: the held table does."""
        needed = max((queue.needs_version for queue in self._cut.values()), default=0)
        return needed if needed > self._version else 0

    # ---- sending ------------------------------------------------------------------------------------

    def refuse_later(self, error: RingfenceError) -> None:
        """Refuse all later batches of a named producer: in every partition they would follow a hole."""
        self._hole_everywhere = self._hole_everywhere or error

    def awaits(self, partition: int) -> bool:
        """Whether a try of the partition has no answer yet."""
        queue = self._queues.get(partition)
        return queue is not None and queue.awaiting > 0

    def last_refusal(self, partition: int) -> RingfenceError | None:
        """The owner's last refusal for the partition; None after it has stored a batch."""
        queue = self._queues.get(partition)
        return None if queue is None else queue.last_refusal

    def paused_until(self, partition: int) -> float:
        """Earliest time for the next batch of the partition; a past time if there is no pause."""
        queue = self._queues.get(partition)
        return 0.0 if queue is None else queue.pause_until

    def held(self, now: float) -> Iterator[int]:
        """Partitions whose owner does not store the batches that it has, so that another one would wait."""
        return (queue.partition for queue in self._queues.values() if queue.holds(now))

    def transmit(self, partition: int, now: float) -> Transmit | None:
        """The next batch for the partition, if one may be sent now. A returned batch counts as sent."""
        queue = self._queues.get(partition)
        entry = None
        if queue is not None:
            fresh = self.phase is Phase.OPEN and not (self._cut and self._is_blocked(queue))
            entry = queue.next(now, fresh=fresh)
        if entry is None:
            self.ready.pop(partition, None)
            return None
        entry.version = self._version
        return Transmit(entry.key, entry.attempt, partition, self.identity, entry.sequence, entry.deadline)

    # ---- answers ------------------------------------------------------------------------------------

    def done(self, key: int, attempt: int, first_offset: int) -> list[Effect]:
        entry = self._current(key, attempt)
        if entry is None:
            return []
        effects = self._stored(entry, first_offset)
        return effects + self._settle(self._queues[entry.partition]) if self._cut else effects

    def _stored(self, entry: SendEntry, first_offset: int) -> list[Effect]:
        queue = self._queues[entry.partition]
        queue.early, queue.last_refusal = 0, None
        self._early.discard(entry.partition)
        return self._end(entry, BatchStored(entry.key, first_offset))

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
        """Handle REFUSED. Retriable refusals are retried until the deadline; `jitter` spreads the retries.

        `early`: the owner is about to open the partition, so it is retried soon, up to EARLY_MAX times.
        """
        entry = self._current(key, attempt)
        if entry is None:
            return []
        queue = self._queues[entry.partition]
        if error.code is Code.UNKNOWN_PARTITION and self.routes is not None:  # it was pruned
            effects = self._redirect(queue, entry, error, FetchTable(0), now, jitter)
        else:
            effects = self._refused(queue, entry, error, now, jitter, early=early)
        return effects + self._settle(queue)

    def _refused(
        self,
        queue: PartitionQueue,
        entry: SendEntry,
        error: RingfenceError,
        now: float,
        jitter: float,
        *,
        early: bool,
    ) -> list[Effect]:
        if error.code is Code.SEQUENCE_GAP:
            return self._gap(queue, entry, error, now, jitter)
        if error.code in NOT_BY_THIS_OWNER:
            entry.lost += 1
        elif not error.retriable:
            return self._final(queue, entry, error)
        if self._retry_at_new_owner(queue, entry) or (early and self._retry_soon(queue, entry, now, jitter)):
            return []
        queue.last_refusal = error
        entry.failures += 1
        self._retry(
            queue,
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
        """Handle REDIRECT: this try stored nothing, and a newer table names the owner.

        `early`: the owner according to our table does not know that yet, so it is retried soon, up to
        EARLY_MAX times.
        """
        entry = self._current(key, attempt)
        if entry is None:
            return []
        queue = self._queues[entry.partition]
        version = error.details.get("layout_version", 0)
        if error.reason is RedirectReason.STALE_VERSION and self._is_routed_since(entry, version):
            self._retry(queue, entry, 0.0)
        elif not self._retry_at_new_owner(queue, entry) and not (
            early and self._retry_soon(queue, entry, now, jitter)
        ):
            needed = version if error.reason is RedirectReason.STALE_VERSION else 0
            fetch = FetchTable(generation, needed)
            return self._redirect(queue, entry, error, fetch, now, jitter) + self._settle(queue)
        return self._settle(queue)

    def _is_routed_since(self, entry: SendEntry, version: int) -> bool:
        """Whether the try is older than the held table, which is as new as the node's."""
        return entry.version < self._version and version <= self._version

    def _redirect(
        self,
        queue: PartitionQueue,
        entry: SendEntry,
        error: RingfenceError,
        fetch: FetchTable,
        now: float,
        jitter: float,
    ) -> list[Effect]:
        entry.redirects += 1
        if entry.redirects > self._redirects_max:
            queue.answered(entry)
            return self._fail(entry, error, definite=not entry.maybe_stored)
        # The first redirect is the normal way to learn of a change. Further ones mean that nodes disagree for
        # a while.
        delay = self._backoff.delay_s(entry.redirects - 1, jitter) if entry.redirects > 1 else 0.0
        self._retry(queue, entry, now + delay)
        asked = self.waits_for_table
        queue.stale = True
        return [] if asked else [fetch]

    def sealed(self, key: int, attempt: int, word: Sealed, generation: int) -> list[Effect]:
        """Handle REDIRECT(sealed): this try stored nothing, and `word` settles the other batches."""
        entry = self._current(key, attempt)
        if entry is None:
            return []
        queue = self._queues[entry.partition]
        queue.answered(entry)
        asked = self.waits_for_table
        effects = self._take_word(queue, word)
        needed = self.needed_version
        return effects if asked or not needed else [*effects, FetchTable(generation, needed)]

    def lost(self, tries: Iterable[tuple[int, int]]) -> list[Effect]:
        """These tries (key, attempt) will never be answered: the connection ended or the time is over."""
        effects: list[Effect] = []
        for key, attempt in tries:
            entry = self._current(key, attempt)
            if entry is not None:
                queue = self._queues[entry.partition]
                entry.lost += 1
                self._retry(queue, entry, 0.0)
                effects += self._settle(queue)
        return effects

    # ---- tables, clock, identity --------------------------------------------------------------------

    def table_arrived(self, routes: Routes, moved: Iterable[int] = (), *, now: float = 0.0) -> list[Effect]:
        """Use a fetched or pushed table. Batches of partitions that are no longer ACTIVE are routed again.

        `moved` partitions have a new owner or owner epoch. Their batches go to it immediately: the former
        owner caused their pause, and one such table ends one pause. A try that the former owner does not
        answer within FORMER_S from `now` counts as lost (`expire`). It may be stored and keeps its sequence.
        """
        for partition in moved:
            if partition in self._queues:
                self._queues[partition].moved(now)
                self._early.discard(partition)
        for queue in self._queues.values():
            queue.stale = False
            self.ready[queue.partition] = None
        return self._use_routes(routes)

    def note_refusal(self, partition: int, error: RingfenceError) -> None:
        """Record why nothing can be sent to the partition, for the error of a deadline."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.last_refusal = error

    def expire(self, now: float, wait_reason: Callable[[int], WaitReason] | None = None) -> list[Effect]:
        """End batches whose deadline has passed, and tries that former owners did not answer.

        Every queue with batches becomes ready again. `wait_reason`: gives the reason of a wait, for the
        error.
        """
        effects: list[Effect] = []
        for queue in list(self._queues.values()):
            effects += self.lost(queue.overdue(now))
            for first in (queue.first_in_flight, queue.first_waiting):
                while (entry := first()) is not None and entry.deadline <= now:
                    wait = None if wait_reason is None else wait_reason(entry.partition)
                    error = deadline_error(self._topic, entry.partition, queue.last_refusal, wait)
                    effects += self._fail(entry, error, definite=not entry.maybe_stored)
            if not queue.is_empty:
                self.ready[queue.partition] = None
            if not queue.is_active:
                effects += self._settle(queue)
        return effects

    def opened(self, identity: SequenceOwner) -> list[Effect]:
        """Continue under the identity that was drawn after OpenEpoch."""
        assert self.phase is Phase.OPENING, f"opened in {self.phase}"
        self.identity, self.phase = identity, Phase.OPEN
        for queue in self._queues.values():
            queue.restart()
            self.ready[queue.partition] = None
        return []

    def end_all(self, error: RingfenceError) -> list[Effect]:
        """End every batch with this error, and every later one immediately."""
        self.phase, self._death = Phase.DEAD, error
        entries = list(self._entries.values())
        self._entries.clear()
        self._queues.clear()
        self._cut.clear()
        self._early.clear()
        self.ready.clear()
        self.unrouted.clear()
        return [self._outcome(entry, error, definite=not entry.maybe_stored) for entry in entries]

    # ---- rules --------------------------------------------------------------------------------------

    def _drop(self, queue: PartitionQueue) -> None:
        super()._drop(queue)
        self._early.discard(queue.partition)

    def _current(self, key: int, attempt: int) -> SendEntry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and entry.attempt == attempt and entry.awaiting else None

    def _retry_at_new_owner(self, queue: PartitionQueue, entry: SendEntry) -> bool:
        """Retry immediately if the answer is of a former owner: a newer table names another one."""
        if entry.owner == queue.owner:
            return False
        self._retry(queue, entry, 0.0)
        return True

    def _retry_soon(self, queue: PartitionQueue, entry: SendEntry, now: float, jitter: float) -> bool:
        """Retry soon, because the owner is about to open the partition. False after EARLY_MAX tries.

        A whole window that arrived too early counts as one try.
        """
        if queue.partition not in self._early and len(self._early) >= EARLY_PARTITIONS_MAX:
            return False
        self._early.add(queue.partition)
        if not queue.dirty or not queue.early:
            queue.early += 1
        if queue.early > EARLY_MAX:
            return False
        self._retry(queue, entry, max(queue.pause_until, now + EARLY.delay_s(queue.early, jitter)))
        return True

    def _retry(self, queue: PartitionQueue, entry: SendEntry, at: float) -> None:
        queue.retry(entry, at)
        self.ready[queue.partition] = None

    def _final(self, queue: PartitionQueue, entry: SendEntry, error: RingfenceError) -> list[Effect]:
        queue.answered(entry)
        # The name may belong to a new topic by now; that topic would give this producer a valid epoch.
        if isinstance(error, FencedError) or error.code is Code.UNKNOWN_TOPIC:
            return self._ended_by(entry, error)
        if (
            error.code is Code.FORGOTTEN
            and not self._named
            and not entry.lost
            and entry.reopened < REOPENED_MAX
        ):
            # The producer was idle for so long that the node dropped it. This batch was never stored, so no
            # later one was.
            self._make_hole(queue)
            self._requeue(queue, [entry, *queue.above(entry.sequence)])
            return self._drained()
        definite = not entry.lost or error.code in VERDICTS_ON_CONTENT
        return self._fail(entry, error, definite=definite and error.code is not Code.TOO_OLD)

    def _ended_by(self, entry: SendEntry, error: RingfenceError) -> list[Effect]:
        """The producer is fenced, or its topic is deleted. Waiting batches are refused.

        Batches in flight end with their own answers.
        """
        self.phase, self._death = Phase.DEAD, error
        effects = self._end(entry, self._outcome(entry, error, definite=not entry.lost))
        for queue in self._queues.values():
            effects += self._refuse_waiting(queue, error)
        return effects

    def _gap(
        self, queue: PartitionQueue, entry: SendEntry, error: RingfenceError, now: float, jitter: float
    ) -> list[Effect]:
        queue.answered(entry)
        first = next(iter(queue.flight))
        expected = error.details.get("expected")
        if queue.hole and entry.sequence == first:
            # No lower sequence is in flight, so the gap is permanent. This batch is not stored, unless a lost
            # try of it still arrives.
            if entry.lost or entry.reopened >= REOPENED_MAX:
                return self._fail(entry, error, definite=not entry.lost)
            return [*self._requeue(queue, [entry]), *self._drained()]
        if not queue.hole and isinstance(expected, int) and expected < first:
            # The node expects a batch that it has acknowledged: it lost rows. Retries would never end.
            return self._fail(entry, error, definite=not entry.lost)
        if entry.sequence != first:  # the cause is a lower sequence that failed; L2 orders the retry
            self._retry(queue, entry, 0.0)
            return []
        entry.failures += 1
        self._retry(queue, entry, now + self._backoff.delay_s(entry.failures, jitter))
        return []

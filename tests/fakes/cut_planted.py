"""State machines of a producer with one bug each, for walks that must find it."""

from __future__ import annotations

from typing import Final

from ringfence.common.routes import Routes
from ringfence.common.send_effects import Effect, OpenEpoch, Sealed
from ringfence.native.errors import RingfenceError
from ringfence.native.wire import Code
from ringfence.send.failures import hole_error
from ringfence.send.inflight import Inflight
from ringfence.send.partition_queue import PartitionQueue, Place, SendEntry
from ringfence.send.reroute import Hole, Phase


class RoutesUnresolved(Inflight):
    """Sends to the children what may be stored in the sealed partition."""

    def _settle(self, queue: PartitionQueue) -> list[Effect]:
        if not queue.is_active:
            for entry in queue.flight.values():
                queue.answered(entry)
                entry.lost = 0
        return super()._settle(queue)


class HeldCounts(Inflight):
    """What one try was told, "on hold", counts for all tries of the batch."""

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
        if error.code is Code.HELD:
            entry.lost = 0
        return super()._refused(queue, entry, error, now, jitter, early=early)


class BlocksNothing(Inflight):
    """Children are sent to before the sealed partition is settled."""

    def _is_blocked(self, queue: PartitionQueue) -> bool:
        return False


class _Parents(Inflight):
    """Knows of each partition the partitions of the table before that have some of its slots."""

    def _use_routes(self, routes: Routes) -> list[Effect]:
        assert self.routes is not None
        known: dict[int, list[int]] = self.__dict__.setdefault("parents", {})
        for partition, slots in routes.active.items():
            if partition not in self.routes.active:
                known.setdefault(partition, sorted(self.routes.heirs(slots)))
        return super()._use_routes(routes)

    def _waits_for(self, former: list[int]) -> bool:
        return any(one in self._cut and not self._cut[one].is_empty for one in former)

    def _parents(self, queue: PartitionQueue) -> list[int]:
        found: list[int] = self.__dict__.get("parents", {}).get(queue.partition, [])
        return found


class BlocksByOneParent(_Parents):
    """Of a merge the child waits for its first parent only."""

    def _is_blocked(self, queue: PartitionQueue) -> bool:
        return self._waits_for(self._parents(queue)[:1])


class BlocksByParents(_Parents):
    """A grandchild waits for its parents, not for older ancestors."""

    def _is_blocked(self, queue: PartitionQueue) -> bool:
        return self._waits_for(self._parents(queue))


class BlocksByFlight(Inflight):
    """A child waits only for what may be stored in the sealed partition, not for what is routed again."""

    def _is_earlier(self, former: PartitionQueue, place: Place) -> bool:
        return bool(former.flight) and super()._is_earlier(former, place)


class StoredIsLast(Inflight):
    """Reads the number of stored sequences as the last sequence."""

    def _take_word(self, queue: PartitionQueue, word: Sealed) -> list[Effect]:
        if word.stored is not None:
            at = word.answers[-1][1] + 1 if word.answers else 0
            word = word._replace(stored=word.stored + 1, answers=(*word.answers, (word.stored, at)))
        return super()._take_word(queue, word)


class StoredIsOneLess(Inflight):
    """Counts one stored sequence too few: the last one that is stored is routed again."""

    def _take_word(self, queue: PartitionQueue, word: Sealed) -> list[Effect]:
        if word.stored:
            stored = word.stored - 1
            answers = tuple(one for one in word.answers if one[0] < stored)
            word = word._replace(stored=stored, answers=answers)
        return super()._take_word(queue, word)


class ForgetsHoles(Inflight):
    """A hole of a sealed partition is none in its children."""

    def _inherit_hole(self, hole: Hole) -> list[Effect]:
        return []


class KeepsWaiting(Inflight):
    """A hole is inherited, and what waits at the children already is sent."""

    def _inherit_hole(self, hole: Hole) -> list[Effect]:
        assert self.routes is not None
        for partition in self.routes.heirs(hole.slots):
            error = hole_error(self._topic, partition)
            self._holes.setdefault(partition, Hole(error, self.routes.active[partition]))
        return []


class NeverJoins(Inflight):
    """Rows of one send that come from two parents are two batches of the child."""

    def _put_back(self, queue: PartitionQueue, entry: SendEntry) -> list[Effect]:
        self.ready[queue.partition] = None
        queue.put_returned(entry)
        return [] if queue.is_active else self._settle(queue)


class PutsLast(Inflight):
    """What was routed again goes behind what was sent later."""

    def _put_back(self, queue: PartitionQueue, entry: SendEntry) -> list[Effect]:
        entry.number += 1_000_000
        return super()._put_back(queue, entry)


class SendsByOldLayout(Inflight):
    """A body that was encoded before the table came draws a sequence of the sealed partition."""

    def _queue(self, partition: int) -> PartitionQueue:
        queue = super()._queue(partition)
        if queue.is_empty and not queue.is_active and not queue.needs_version:
            queue.is_active = True
            self._cut.pop(partition, None)
        return queue


class ForgetsEarly(Inflight):
    """Forgets a sealed partition without batches before the table names its children."""

    def _settle(self, queue: PartitionQueue) -> list[Effect]:
        effects = super()._settle(queue)
        if not queue.is_active and queue.is_empty and self._queues.get(queue.partition) is queue:
            self._forget(queue)
        return effects


class RoutesUntold(Inflight):
    """Where nobody can tell, a lost try counts as not stored."""

    def _settle(self, queue: PartitionQueue) -> list[Effect]:
        if queue.cannot_tell:
            for entry in queue.flight.values():
                entry.lost = 0
        return super()._settle(queue)


class UntoldIsNone(Inflight):
    """An answer without `stored` is read as "none is stored"."""

    def _take_word(self, queue: PartitionQueue, word: Sealed) -> list[Effect]:
        return super()._take_word(queue, word._replace(stored=word.stored or 0))


class CountsOn(Inflight):
    """Sequences go on at the children where the parents ended."""

    def _put_back(self, queue: PartitionQueue, entry: SendEntry) -> list[Effect]:
        if not queue.next_sequence and not queue.flight:
            queue.next_sequence = max((one.next_sequence for one in self._cut.values()), default=0)
        return super()._put_back(queue, entry)


class OpensEarly(Inflight):
    """An unnamed producer takes a new identity while a sealed partition has batches without outcome."""

    def _drained(self) -> list[Effect]:
        flights = [queue for queue in self._queues.values() if queue.flight and queue.is_active]
        if self.phase is Phase.DRAINING and not flights:
            for queue in self._cut.values():
                queue.requeue(list(queue.flight.values()))
            self.phase = Phase.OPENING
            return [OpenEpoch()]
        return []


PLANTED: Final[tuple[type[Inflight], ...]] = (
    RoutesUnresolved,
    HeldCounts,
    BlocksNothing,
    BlocksByOneParent,
    BlocksByParents,
    BlocksByFlight,
    StoredIsLast,
    StoredIsOneLess,
    ForgetsHoles,
    KeepsWaiting,
    NeverJoins,
    PutsLast,
    SendsByOldLayout,
    ForgetsEarly,
    RoutesUntold,
    UntoldIsNone,
    CountsOn,
    OpensEarly,
)

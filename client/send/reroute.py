"""The partition queues of one producer, and what layout changes do to them. Pure.

A split, merge or repartition seals partitions and puts children in their place. A sealed partition has a
final log, and its owner says which sequences of an identity are in it. So a batch that was on its way there
is known to be stored, or known not to be.

    flight of a sealed partition --(owner: stored)--> BatchStored
                                 `--(owner: not stored)--> waiting --unrouted, rerouted--> children
    waiting, without a sequence -----------------------------^

Rules (C1, ... of docs/design/producer_cuts.md):
    C1   a queue whose partition is not ACTIVE gives no sequence to a batch.
    C2   of its flight, a batch without an awaited and without a lost try is not stored. Any other batch is
         asked for at the sealed partition. If nobody can tell, its outcome is unknown.
    C3   once every batch of the flight is settled, the rest leaves in the order of submission: it is routed
         again by the newest table.
    C4   a queue draws no sequence for a batch while the queue of a former partition with some of its slots
         has an earlier one; of a named producer, any. Batches that were routed again go before later ones.
    C7   of a named producer, batches of one send for one partition are joined before a sequence is drawn.
    C8   of a named producer, a hole of a partition is a hole of every partition that has its slots later.
    C12  a sealed partition without batches is forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ringfence.common.routes import Routes, Slots, overlap
from ringfence.common.send_effects import (
    BatchRefused,
    BatchUnknown,
    Effect,
    JoinBatches,
    OpenEpoch,
    Outcome,
    Piece,
    Sealed,
)
from ringfence.native.errors import RingfenceError, UnknownOutcomeError
from ringfence.native.wire import DEDUPE_WINDOW, Code
from ringfence.send.failures import hole_error, unknown_error
from ringfence.send.partition_queue import PartitionQueue, Place, SendEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

# The sequence is used: later sequences are not blocked.
SEQUENCE_TAKEN: Final = frozenset({Code.CONFLICT, Code.TOO_OLD})


class Phase(Enum):
    """Of a producer's identity; `inflight.py` has the steps between them."""

    OPEN = "open"
    DRAINING = "draining"
    OPENING = "opening"
    DEAD = "dead"


class Hole(NamedTuple):
    """Why a partition of a named producer accepts nothing more, and the partition's slots."""

    error: RingfenceError
    slots: Slots


class Reroute(ABC):
    """Queues by partition, with the rules above. `Inflight` adds answers, deadlines and identities.

    `ready` holds the partitions whose queue may have something to send, in the order in which they became
    ready. `unrouted` holds sealed partitions whose batches must be routed again.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        named: bool,
        joins: bool,
        window: int = DEDUPE_WINDOW,
        routes: Routes | None = None,
    ) -> None:
        """`named`: the identity is never replaced. `joins`: C7. `routes`: None: all partitions are ACTIVE."""
        self.phase = Phase.OPEN
        self.ready: dict[int, None] = {}
        self.unrouted: dict[int, None] = {}
        self.routes = routes
        self._version = 0 if routes is None else routes.version
        self._queues: dict[int, PartitionQueue] = {}
        self._cut: dict[int, PartitionQueue] = {}  # those of `_queues` that are not active
        self._entries: dict[int, SendEntry] = {}
        self._topic, self._named, self._joins, self._window = topic, named, joins, window
        self._death: RingfenceError | None = None
        self._holes: dict[int, Hole] = {}  # named producer: partitions that accept nothing more
        self._hole_everywhere: RingfenceError | None = None  # a send that is stored in no partition
        self._submitted = 0

    def __len__(self) -> int:
        return len(self._entries)

    # ---- queues -------------------------------------------------------------------------------------

    def submit(self, key: int, partition: int, deadline: float, send: int = 0) -> list[Effect]:
        """Queue a batch. `key` is chosen by the caller and never used twice."""
        if self._death is not None:
            return [BatchRefused(key, self._death)]
        hole = self._holes.get(partition)
        error = self._hole_everywhere if hole is None else hole.error
        if error is not None:
            return [BatchRefused(key, error)]
        queue = self._queue(partition)
        self._submitted += 1
        entry = self._entries[key] = SendEntry(key, self._submitted, partition, deadline, send)
        queue.waiting.append(entry)
        self.ready[partition] = None
        return [] if queue.is_active else self._settle(queue)

    def _queue(self, partition: int) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self._window)
            if self.routes is not None:
                queue.slots = self.routes.slots_of(partition)
                self._deactivate(queue, unless=partition in self.routes.active)
        return queue

    def _deactivate(self, queue: PartitionQueue, *, unless: bool = False) -> None:
        if not unless:
            queue.is_active = False
            self._cut[queue.partition] = queue

    def _is_blocked(self, queue: PartitionQueue) -> bool:
        """C4: whether a former partition with some of these slots has earlier batches; of a name any (C7)."""
        first = queue.first_waiting()
        return first is not None and any(
            overlap(former.slots, queue.slots) and self._is_earlier(former, first.place)
            for former in self._cut.values()
            if former is not queue
        )

    def _is_earlier(self, former: PartitionQueue, place: Place) -> bool:
        """Whether the former partition has batches that go before those at this place."""
        earliest = former.first_place
        return earliest is not None and (self._named or earliest < place)

    def _has_gone(self, queue: PartitionQueue) -> bool:
        """Whether the held table has children in the partition's place."""
        return self.routes is not None and queue.partition not in self.routes.active

    def _forget(self, queue: PartitionQueue) -> None:
        """C12. What waited for the partition may be sent."""
        self._drop(queue)
        for other in self._queues.values():
            if overlap(other.slots, queue.slots):
                self.ready[other.partition] = None

    def _drop(self, queue: PartitionQueue) -> None:
        partition = queue.partition
        del self._queues[partition]
        self._cut.pop(partition, None)
        self.ready.pop(partition, None)
        self.unrouted.pop(partition, None)

    # ---- layout changes -----------------------------------------------------------------------------

    def _use_routes(self, routes: Routes) -> list[Effect]:
        """Queues of partitions that a newer table names as sealed, or not at all, are settled."""
        self.routes, self._version = routes, routes.version
        effects: list[Effect] = []
        for queue in self._queues.values():
            if queue.partition in routes.active or queue.partition in routes.sealed:
                queue.slots = routes.slots_of(queue.partition)
            if queue.is_active:
                self._deactivate(queue, unless=queue.partition in routes.active)
        for partition, hole in list(self._holes.items()):
            if partition not in routes.active:
                effects += self._inherit_hole(hole)
        for queue in list(self._cut.values()):
            if queue.is_empty and self._has_gone(queue):
                self._drop(queue)  # nothing waited for it
                continue
            queue.cannot_tell |= queue.partition not in routes.sealed and self._has_gone(queue)
            effects += self._settle(queue)
        return effects

    def _take_word(self, queue: PartitionQueue, word: Sealed) -> list[Effect]:
        """C2: what the owner of a sealed partition says settles its whole flight."""
        self._deactivate(queue)
        queue.needs_version = max(queue.needs_version, word.version)
        if word.stored is None:
            queue.cannot_tell = True
            return self._settle(queue)
        effects: list[Effect] = []
        offsets = dict(word.answers)
        for entry in list(queue.flight.values()):
            if entry.sequence >= word.stored:  # the log is final, so no try of it can be stored any more
                queue.answered(entry)
                entry.lost = 0
                entry.attempt += 1
            elif entry.sequence in offsets:
                effects += self._stored(entry, offsets[entry.sequence])
            elif not entry.awaiting:  # stored; its own answer has the offset
                entry.lost = max(entry.lost, 1)
        return effects + self._settle(queue)

    def _settle(self, queue: PartitionQueue) -> list[Effect]:
        """C2, C3: what is certainly not stored in a sealed partition waits to be routed again."""
        effects: list[Effect] = []
        if queue.is_active or self._queues.get(queue.partition) is not queue:
            return effects
        if queue.cannot_tell:
            for entry in list(queue.flight.values()):
                if entry.lost and not entry.awaiting and entry.key in self._entries:
                    effects += self._fail(entry, _nobody_can_tell(self._topic, entry), definite=False)
        if any(entry.maybe_stored for entry in queue.flight.values()):
            self.ready[queue.partition] = None
            return effects
        if queue.flight:
            effects += self._requeue(queue, list(queue.flight.values()), reopens=False)
        if queue.is_empty and self._has_gone(queue):
            self._forget(queue)
        elif self._has_gone(queue):
            self.unrouted[queue.partition] = None
        return effects + self._drained()

    def next_unrouted(self) -> int | None:
        """C3: the key of the next batch to be routed again by the newest table; then call `rerouted`."""
        for partition in self.unrouted:
            entry = self._queues[partition].first_waiting()
            if entry is not None:
                return entry.key
        return None

    def rerouted(self, key: int, pieces: Sequence[Piece]) -> list[Effect]:
        """The batch of `next_unrouted` became these batches of ACTIVE partitions."""
        entry = self._entries.pop(key)
        former = self._queues[entry.partition]
        taken = former.take_waiting()
        assert taken is entry, f"C3: batch {key} is routed before batch {taken.key}"
        effects: list[Effect] = []
        for piece in pieces:
            hole = self._holes.get(piece.partition)
            if self._death is not None or hole is not None:
                effects.append(BatchRefused(piece.key, self._death or hole.error))  # type: ignore[union-attr]
                continue
            part = SendEntry(piece.key, entry.number, piece.partition, entry.deadline, entry.send, piece.slot)
            part.reopened = entry.reopened
            self._entries[piece.key] = part
            effects += self._put_back(self._queue(piece.partition), part)
        return effects + self._settle(former)

    def _put_back(self, queue: PartitionQueue, entry: SendEntry) -> list[Effect]:
        self.ready[queue.partition] = None
        other = queue.returned_sends.get(entry.send) if self._joins else None
        queue.put_returned(entry)
        if other is None:
            if self._joins:
                queue.returned_sends[entry.send] = entry
            return [] if queue.is_active else self._settle(queue)
        first, second = sorted((other, entry), key=lambda one: one.place)
        return [JoinBatches(first.key, second.key)]

    def joined(self, first: int, second: int, key: int) -> list[Effect]:
        """C7: the two batches of JoinBatches are one, with a new key."""
        entry, other = self._entries.pop(first), self._entries.pop(second)
        queue = self._queues[entry.partition]
        queue.drop_returned(entry, other)
        whole = SendEntry(key, entry.number, entry.partition, entry.deadline, entry.send, entry.slot)
        whole.reopened = entry.reopened
        self._entries[key] = whole
        return self._put_back(queue, whole)

    def not_joined(self, first: int, second: int, error: RingfenceError) -> list[Effect]:
        """C7: the two batches exceed the limit of a message: the rest of the send is a hole."""
        entry, other = self._entries.pop(first), self._entries.pop(second)
        queue = self._queues[entry.partition]
        queue.drop_returned(entry, other)
        refused: list[Effect] = [BatchRefused(first, error), BatchRefused(second, error)]
        return [*refused, *self._make_lasting_hole(queue), *self._settle(queue)]

    # ---- outcomes -----------------------------------------------------------------------------------

    @abstractmethod
    def _stored(self, entry: SendEntry, first_offset: int) -> list[Effect]:
        """End a batch that is stored from this offset on."""

    def _outcome(self, entry: SendEntry, error: RingfenceError, *, definite: bool) -> Outcome:
        if definite:
            return BatchRefused(entry.key, error)
        return BatchUnknown(entry.key, unknown_error(self._topic, entry.partition, entry.sequence, error))

    def _end(self, entry: SendEntry, outcome: Outcome) -> list[Effect]:
        queue = self._queues[entry.partition]
        if entry.sequence >= 0:
            queue.remove(entry)
        else:
            queue.drop_waiting(entry)
        del self._entries[entry.key]
        self.ready[queue.partition] = None
        return [outcome] if self.phase is Phase.OPEN else [outcome, *self._drained()]

    def _fail(self, entry: SendEntry, error: RingfenceError, *, definite: bool) -> list[Effect]:
        """End an entry that is not certainly stored; `definite`: it is certainly not stored."""
        queue = self._queues[entry.partition]
        outcome = self._outcome(entry, error, definite=definite)
        effects: list[Effect] = []
        if entry.sequence >= 0:
            self._make_hole(queue)
            if definite and error.code not in SEQUENCE_TAKEN:
                effects = self._requeue(queue, queue.above(entry.sequence))
        effects += self._end(entry, outcome)
        if self._named:
            effects += self._make_lasting_hole(queue)
        return effects

    def _make_hole(self, queue: PartitionQueue) -> None:
        queue.hole = True
        if self.phase is Phase.OPEN and not self._named:
            self.phase = Phase.DRAINING

    def _make_lasting_hole(self, queue: PartitionQueue) -> list[Effect]:
        """The partition of a named producer, and what has its slots later, accept nothing more."""
        hole = Hole(hole_error(self._topic, queue.partition), queue.slots)
        hole = self._holes.setdefault(queue.partition, hole)
        effects = self._refuse_waiting(queue, hole.error)
        return effects + (self._inherit_hole(hole) if self._has_gone(queue) else [])

    def _inherit_hole(self, hole: Hole) -> list[Effect]:
        """C8: what waits in a later partition was sent after the hole."""
        assert self.routes is not None
        effects: list[Effect] = []
        for partition in self.routes.heirs(hole.slots):
            if partition not in self._holes:
                error = hole_error(self._topic, partition)
                self._holes[partition] = Hole(error, self.routes.active[partition])
                if partition in self._queues:
                    effects += self._refuse_waiting(self._queues[partition], error)
        return effects

    def _requeue(
        self, queue: PartitionQueue, entries: list[SendEntry], *, reopens: bool = True
    ) -> list[Effect]:
        """Send entries that are certainly not stored again under the next identity, if there is one."""
        queue.requeue(entries, reopens=reopens)
        hole = self._holes.get(queue.partition)
        end = self._death or (None if hole is None else hole.error)
        return [] if end is None else self._refuse_waiting(queue, end)

    def _refuse_waiting(self, queue: PartitionQueue, error: RingfenceError) -> list[Effect]:
        refused = queue.take_all_waiting()
        for entry in refused:
            del self._entries[entry.key]
        return [BatchRefused(entry.key, error) for entry in refused]

    def _drained(self) -> list[Effect]:
        if self.phase is Phase.DRAINING and not any(queue.flight for queue in self._queues.values()):
            self.phase = Phase.OPENING
            return [OpenEpoch()]
        return []


def _nobody_can_tell(topic: str | None, entry: SendEntry) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        "a try of the batch was never answered, and its partition was split or merged so long ago that no "
        "node knows any more whether it is stored; read the rows, or open a named producer again and send "
        "them with the same number",
        topic=topic,
        partition=entry.partition,
        sequence=entry.sequence,
    )

"""The application's side of a member of a QUEUE: one step at a time, without waiting.

Records of an answer are decoded whole, and cut into the ranges that are on lease to this member.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NoReturn

from ringfence.consumer.any_core import AnyCore, Batch
from ringfence.consumer.clock import now_s
from ringfence.consumer.lost_rows import lost_error
from ringfence.consumer.queue_calls import Told, What
from ringfence.consumer.queue_hands import Verdict, text_of
from ringfence.consumer.queue_link import QueueLink
from ringfence.consumer.queue_member import QueueMember
from ringfence.consumer.queue_telling import LOST
from ringfence.native.errors import InvalidArgumentError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ringfence.arrow.decode import Place as DecodedPlace
    from ringfence.consumer.queue_rows import Range, StoredRows
    from ringfence.consumer.settings import Settings
    from ringfence.consumer.values import ConsumerPlace, MemberOptions, Task
    from ringfence.native import wire


class _Whole:
    """The records of one answer that have rows on lease, for the decoder."""

    def __init__(self, stored: StoredRows) -> None:
        self._start, self._end = stored.start, stored.end

    def rows_of(self, record: wire.RecordHeader) -> tuple[int, int]:
        end = record.first_offset + record.rows
        return max(record.first_offset, self._start), min(end, self._end)


class QueueCore(AnyCore):
    """One member of a QUEUE with its I/O thread."""

    member: QueueMember
    link_type = QueueLink

    @staticmethod
    def new_member(options: MemberOptions) -> QueueMember:
        """The state machine."""
        return QueueMember(options)

    # ---- steps -------------------------------------------------------------------------------------------

    def step(self, *, comes_back: bool = False, is_seen: bool = True) -> Task | Batch | None:
        """See `AnyCore.step`."""
        self.check()
        while True:
            with self._lock.lock:
                if comes_back and self.options.is_auto:
                    self.member.acknowledge_given()
                comes_back = False
                if (error := self.member.take_error()) is not None:
                    raise error
                if (task := self.member.next_task()) is not None:
                    return task
                stored = self.member.turn(now_s())
            if stored is None:
                self.turn()
                return None
            if (batch := self._decoded(stored, is_seen=is_seen)) is not None:
                return batch

    def _decoded(self, stored: StoredRows, *, is_seen: bool) -> Batch | None:
        """The next batch of an answer; None: there is none, or it must not be given now."""
        if stored.batches is None:
            with self._lock.lock:
                ranges = [(line.first, line.end) for line in stored.lines]
            answered = self._answers.of(_Whole(stored), stored.body)  # type: ignore[arg-type]
            stored.batches = parts_of(answered, ranges)
        try:
            item = next(stored.batches, None)
        except BaseException as error:
            comes_again = self.comes_again(error)
            if isinstance(error, Exception) and not comes_again:
                self._undecodable(stored, error)
                raise
            with self._lock.lock:
                self.member.fetching.release(stored)
            if not comes_again:
                raise
            self.turn()
            return None
        with self._lock.lock:
            return self._given(stored, item, is_seen=is_seen)

    def _undecodable(self, stored: StoredRows, error: Exception) -> None:
        rows: Range | None = None
        if isinstance(error, ProtocolError) and "offset" in error.details and "rows" in error.details:
            rows = error.details["offset"], error.details["offset"] + error.details["rows"]
        with self._lock.lock:
            self.member.hands.undecodable(stored, rows, f"cannot be decoded: {error}")
        self.turn()

    def seen(self) -> bool:
        """See `AnyCore.seen`."""
        with self._lock.lock:
            return self.member.hands.seen()

    def take_back(self) -> None:
        """See `AnyCore.take_back`."""
        with self._lock.lock:
            self.member.hands.take_back()
        self.turn()

    def _given(
        self, stored: StoredRows, item: tuple[int, int, int, pa.RecordBatch] | None, *, is_seen: bool
    ) -> Batch | None:
        hands = self.member.hands
        if item is None:
            # Its records have fewer rows than its owner has given on lease: others may find them.
            self.member.fetching.release(stored)
            return None
        first, rows, epoch, batch = item
        verdict = hands.verdict(stored, first, now_s())
        if verdict is Verdict.OVER:
            return None
        if verdict is Verdict.LATER:
            stored.batches = chain([item], stored.batches)
            return None
        # Rows of the piece may have become done since it was cut: the first line has none of them.
        line = stored.lines[0]
        at = (line.first if verdict is Verdict.SKIP else line.end) - first
        if at < rows:
            stored.batches = chain([(first + at, rows - at, epoch, batch.slice(at))], stored.batches)
            rows, batch = at, batch.slice(0, at)
        if verdict is Verdict.SKIP:
            return None
        place, count = hands.give(stored, first, rows, epoch, is_seen=is_seen)
        self.place = place
        self.turn()  # the owner hears that they are begun, and there is room for the next answer
        return Batch(place, batch, count)

    # ---- what the application says -------------------------------------------------------------------------

    def locate(self, task: Task, settings: Settings) -> None:
        """A QUEUE has no positions."""

    def acknowledge(
        self, place: ConsumerPlace | None, then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """The rows of a place are done, and no others; None: all that was given."""
        self.check()
        told = Told(0, 0, 0, What.DONE)
        with self._lock.lock:
            if place is None:
                self.member.hands.settle_all(told, then)
            else:
                self._settle(place, [(place.first_offset, place.end_offset)], told, then)
            self.member.look_silent()
        self.turn()

    def _settle(
        self,
        place: ConsumerPlace,
        ranges: list[Range],
        told: Told,
        then: Callable[[Exception | None], None] | None = None,
    ) -> None:
        others = self.member.hands.settle(place, ranges, told, then)
        if others and then is not None:
            then(lost_error({place.partition: others}, LOST))

    def settle(
        self, place: ConsumerPlace, ranges: list[Range], what: What, *, delay_ms: int = 0, reason: str = ""
    ) -> None:
        """What became of rows of a place. From any thread."""
        self.check()
        with self._lock.lock:
            self._settle(place, ranges, Told(0, 0, 0, what, 0, delay_ms, text_of(reason)))
            wakes = self.member.telling.wakes()
        if wakes:
            self.turn()

    def pause(self, partitions: Iterable[int], *, is_paused: bool) -> None:
        """Refused."""
        del partitions, is_paused
        self._no_partitions("pause", "ask for the next batch later")

    def interrupted(self, error: BaseException) -> None:
        """The rows that were given last have failed. An interrupt from outside is not their fault."""
        if isinstance(error, Exception) and not self.is_closed:
            with self._lock.lock:
                self.member.hands.interrupted(f"{type(error).__name__}: {error}")

    def _no_partitions(self, call: str, instead: str) -> NoReturn:
        raise InvalidArgumentError(
            f"{call} is not for mode='queue': its members have no partitions of their own; {instead}",
            topic=self.topic,
        )

    # ---- what it may know. From any thread -----------------------------------------------------------------

    def assignment(self) -> list[int]:
        """The partitions of which the application has rows."""
        with self._lock.lock:
            return self.member.hands.partitions

    @property
    def is_member(self) -> bool:
        """Whether rows may come."""
        with self._lock.lock:
            state = self.member.state
            return bool(state.attached & state.routes.owners)

    def lag(self) -> dict[int, int]:
        """Refused."""
        self._no_partitions("lag", "`ringfence cohort show` has the lag of the cohort")

    def fencing_token(self, partition: int) -> int | None:
        """Refused."""
        del partition
        self._no_partitions("fencing_token", "rows may come twice, so make the effect of each idempotent")


def parts_of(
    batches: Iterator[tuple[DecodedPlace, pa.RecordBatch]], ranges: list[Range]
) -> Iterator[tuple[int, int, int, pa.RecordBatch]]:
    """(first row, rows, epoch, batch) of each piece of a batch that lies in one of the ranges, ascending."""
    at = 0
    for place, batch in batches:
        end = place.first_offset + place.rows
        while at < len(ranges) and ranges[at][1] <= place.first_offset:
            at += 1
        for first, last in ranges[at:]:
            if first >= end:
                break
            begin, stop = max(first, place.first_offset), min(last, end)
            yield begin, stop - begin, place.epoch, batch.slice(begin - place.first_offset, stop - begin)

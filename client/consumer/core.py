"""The application's side of a member: one step at a time, without waiting. Sync and asyncio use it alike.

A step gives a callback that is due, or the next batch, or nothing. Rows are decoded here, in the caller's
thread and outside the lock; right before they are given, the member looks at its lease once more.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ringfence.answer_batches import AnswerBatches
from ringfence.cluster.table_cache import TableCache
from ringfence.common.fork import guard
from ringfence.common.locks import OwnedLock
from ringfence.consumer.clock import now_s
from ringfence.consumer.link import Link
from ringfence.consumer.member import Member
from ringfence.consumer.stores import begin_of
from ringfence.consumer.values import partitions_text
from ringfence.native.errors import ClosedError, FencedError, ReentrantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ringfence.arrow.decode import Decoder
    from ringfence.arrow.decode import Place as DecodedPlace
    from ringfence.common.routing import Layout
    from ringfence.consumer.gate import Stored
    from ringfence.consumer.giving import Turn
    from ringfence.consumer.link import Identity
    from ringfence.consumer.settings import Settings
    from ringfence.consumer.values import ConsumerPlace, MemberOptions, Task
    from ringfence.native import wire
    from ringfence.network.io_thread import IoThread

FETCH_BYTES = 4_194_304  # of one answer with staged rows


class Batch(NamedTuple):
    """Rows, and where they are."""

    place: ConsumerPlace
    rows: pa.RecordBatch


class _Span:
    """The rows of one answer that the application gets, for the decoder."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    def rows_of(self, record: wire.RecordHeader) -> tuple[int, int]:
        end = record.first_offset + record.rows
        return max(record.first_offset, self._stored.start), min(end, self._stored.end)


class Core:
    """One member with its I/O thread. For one thread at a time, but for `close` and what says otherwise."""

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        decoder: Decoder,
        identity: Identity,
        options: MemberOptions,
        *,
        timeout_s: float,
        on_ring: Callable[[], None],
    ) -> None:
        self.identity, self.options, self.topic = identity, options, layout.name
        self.io_thread, self.tables, self.layout = io_thread, tables, layout
        self._lock = OwnedLock()
        self.lock = self._lock.lock
        self.member = Member(options)
        self.schema = decoder.schema
        self._timeout_s = timeout_s
        self._answers = AnswerBatches(
            io_thread, tables, layout, decoder, batch_rows=None, fetch_bytes=FETCH_BYTES, timeout_s=timeout_s
        )
        self.place: ConsumerPlace | None = None
        self.is_closed = False
        self._owner = guard("consumer")
        self.link = Link(io_thread, tables, layout, self.member, identity, lock=self._lock.lock, ring=on_ring)
        self.link.begin()

    # ---- steps -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ClosedError, ForkedError or ReentrantError if no call can be served."""
        self._owner.check()
        if self.is_closed:
            raise ClosedError("the consumer is closed; create another one", topic=self.topic)
        if self._lock.is_mine():
            raise ReentrantError(
                "a call of a consumer in a signal handler would interrupt another one: use a thread"
            )

    def step(self, *, comes_back: bool = False) -> Task | Batch | None:
        """What the application gets next; None: nothing is there.

        `comes_back`: it asks for the next batch, so with "auto" it is done with the ones before.
        """
        self.check()
        while True:
            with self._lock.lock:
                if comes_back and self.options.is_auto:
                    self.member.giving.acknowledge_given()
                comes_back = False
                if (error := self.member.take_error()) is not None:
                    raise error
                self.member.consuming.check_give()
                if (task := self.member.next_task()) is not None:
                    return task
                turn = self.member.turn(now_s())
            if turn is None:
                return None
            if (batch := self._decoded(turn)) is not None:
                return batch

    def _decoded(self, turn: Turn) -> Batch | None:
        """The next batch of an answer; None: there is none, or it must not be given now."""
        stored = turn.stored
        if stored.batches is None:
            stored.batches = self._answers.of(_Span(stored), stored.body)  # type: ignore[arg-type]
        try:
            item = next(stored.batches, None)
        except BaseException:
            with self._lock.lock:
                self.member.giving.rewind(turn)
            raise
        return self._given(turn, item)

    def _given(self, turn: Turn, item: tuple[DecodedPlace, pa.RecordBatch] | None) -> Batch | None:
        stored, is_over = turn.stored, item is None
        place: ConsumerPlace | None = None
        with self._lock.lock:
            if item is not None:
                at = item[0]
                place = self.member.giving.give(turn, at.first_offset, at.rows, at.epoch, now_s())
                is_over = place is not None and place.end_offset >= stored.end
            if is_over:
                self.member.giving.finish(turn)
        if is_over:
            self.turn()  # there is room for the next answer
        if item is None:
            return None
        if place is None:
            stored.batches = _again(item, stored.batches)
            return None
        self.place = place
        return Batch(place, item[1])

    def turn(self) -> None:
        """Let the I/O thread carry out what is due."""
        self.io_thread.post(self.link.turn)

    # ---- what the application says -------------------------------------------------------------------------

    def done(self, task: Task) -> None:
        """It came back from a callback."""
        with self._lock.lock:
            self.member.done(task)
        self.turn()

    def locate(self, task: Task, settings: Settings) -> None:
        """Ask the application's store for positions (CHECKPOINT). An error of it ends the consumer.

        Raises:
            PositionError: the store has less than the cohort was told of.
            TruncatedError: partitions before were removed unread.
        """
        try:
            for partition in task.partitions:
                with self._lock.lock:
                    question = self.member.question(partition)
                if question is None:
                    position, tells = settings.position(partition), False
                else:
                    position, tells = begin_of(partition, question, settings)
                with self._lock.lock:
                    self.member.positioned(partition, position, tells=tells)
        except Exception as error:
            with self._lock.lock:
                self.member.state.fail(error, is_final=True)
            raise

    def acknowledge(
        self, place: ConsumerPlace | None, then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Rows through a place are done; None: all that was given. `then`: called when owners have it."""
        self.check()
        with self._lock.lock:
            self.member.consuming.check_acknowledge()
            if place is None:
                self._acknowledge_given(then)
            elif not self.member.acknowledge(place, then) and then is not None:
                then(
                    FencedError(
                        "the hold of the partition is over, so these rows may come again to another member",
                        topic=self.topic,
                        partition=place.partition,
                        fencing_token=place.fencing_token,
                    )
                )
        if then is not None:
            self.turn()

    def _acknowledge_given(self, then: Callable[[Exception | None], None] | None) -> None:
        self.member.giving.acknowledge_given(urgent=then is not None)
        if then is None:
            return
        owing = [gate for gate in self.member.state.gates.values() if gate.owes]
        left = _Countdown(len(owing), then)
        for gate in owing:
            gate.wait_settled.append((gate.told.offset, left))

    def pause(self, partitions: Iterable[int], *, is_paused: bool) -> None:
        """Stop or go on giving rows of partitions."""
        self.check()
        with self._lock.lock:
            self.member.pause(partitions, is_paused=is_paused)
        self.turn()

    # ---- what it may know. From any thread -----------------------------------------------------------------

    def assignment(self) -> list[int]:
        """The partitions that this member holds or waits for."""
        with self._lock.lock:
            return sorted(self.member.state.gates)

    def lag(self) -> dict[int, int]:
        """By partition that is held: rows that are not settled, as of its owner's last answer."""
        with self._lock.lock:
            return {
                one: max(0, (gate.mark if gate.end is None else gate.end) - gate.settled.offset)
                for one, gate in self.member.state.gates.items()
                if gate.hold
            }

    def fencing_token(self, partition: int) -> int | None:
        """The number of the hold; None: the partition is not held."""
        with self._lock.lock:
            gate = self.member.state.gates.get(partition)
            return gate.hold or None if gate is not None else None

    def waits_for(self) -> list[int]:
        """Sealed partitions whose children wait for an acknowledgement."""
        with self._lock.lock:
            return self.member.giving.waits_for()

    def waiting_text(self) -> str:
        """`waits_for` for a message; empty if there is none."""
        waits = self.waits_for()
        return partitions_text(waits) if waits else ""

    # ---- the end -------------------------------------------------------------------------------------------

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Release what is held and leave; waits for that, at most `timeout_s`. From any thread."""
        if self.is_closed or not self._owner.mine:
            self.is_closed = True
            return
        self.is_closed = True
        deadline = time.monotonic() + timeout_s
        try:
            with self._lock.lock:
                self.member.close(leave=leave)
            self.turn()
            while time.monotonic() < deadline and not self._is_over():
                time.sleep(0.005)
        except ClosedError:
            return
        finally:
            self.io_thread.close()

    def _is_over(self) -> bool:
        with self._lock.lock:
            return self.member.is_closed


class _Countdown:
    """Calls `then` once after `count` outcomes; with the first error, if there is one."""

    def __init__(self, count: int, then: Callable[[Exception | None], None]) -> None:
        self._left, self._then = count, then
        self._error: Exception | None = None
        if not count:
            then(None)

    def __call__(self, error: Exception | None) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            self._then(self._error)


def _again(
    item: tuple[DecodedPlace, pa.RecordBatch], batches: Iterator[tuple[DecodedPlace, pa.RecordBatch]]
) -> Iterator[tuple[DecodedPlace, pa.RecordBatch]]:
    """Batches with one put back in front."""
    return chain([item], batches)

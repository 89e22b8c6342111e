"""START HERE: the producer that `client.producer(topic)` gives. It takes rows and returns futures.

    send -> record batches -> slots, groups, bodies (caller's thread) -> I/O thread: sequence, frames,
         retries <- SendFuture  <-------------------------------------------------------------- outcome

Bodies of 64 KiB and more are written without the GIL; below that, releasing it costs more. `send` returns
when the rows are encoded. It waits only while `bytes_in_flight_max` bytes are pending. Every send ends with
exactly one outcome. `flush`, `close` and the context manager raise the first outcome that is not "stored".
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ringfence.arrow.batches import bytes_of, each_batch, in_chunks, is_stream, one_batch, record_batches
from ringfence.arrow.encode import FEW_ROWS, Body, TopicEncoder, checked_note
from ringfence.arrow.partition_choice import PartitionChoice
from ringfence.arrow.pieces import pieces, read_ahead
from ringfence.common.fork import guard
from ringfence.common.locks import OwnedLock, holds
from ringfence.common.process_local import ProcessLocal
from ringfence.native.errors import BatchError, ClosedError, InvalidArgumentError, RingfenceError
from ringfence.send.budget import Budget
from ringfence.send.coalesce import LingeringSend
from ringfence.send.exit_flush import remember
from ringfence.send.failures import cut_short_error, reentrant_error, would_wait_error
from ringfence.send.linger import Linger
from ringfence.send.outcomes import Failure, SendOutcomes
from ringfence.send.resume import Rule
from ringfence.send.resuming import Resuming
from ringfence.send.send_future import SendFuture
from ringfence.send.sender import Sender
from ringfence.send.wait_reasons import WaitReasons

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    import pyarrow as pa

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.options import Options
    from ringfence.common.routing import Layout
    from ringfence.common.send_effects import Identity
    from ringfence.native.messages import ResumePoint
    from ringfence.network.io_thread import IoThread
    from ringfence.send.wait_reasons import PendingSends

ABANDON_S_MAX = 10.0  # a last resort: the I/O thread needs milliseconds to end pending sends


class Producer(ProcessLocal):
    """Appends batches to one topic exactly once. Thread-safe; created by `Client.producer`.

    Attributes:
        name: of a named producer, else None.
        topic: the topic's full name.
        resume: partition -> resume point of the predecessor of this name (last sequence, `send`, note and
            offset); after layout changes the one of several with the least `send`.
        resume_points: all of them, in the order of slots; each has the slots `lo` to `hi`.
        resume_from: (send, note) up to which everything is stored; None if that is not known. Continue after
            it with `number=`: what is stored after it is skipped.
    """

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        identity: Identity,
        *,
        name: str | None,
        resume: Sequence[ResumePoint],
        rule: Rule = Rule.NONE,
        options: Options,
        client: object = None,
    ) -> None:
        """`client`: the owner of the connections; kept alive by this reference."""
        self._client = client
        self._resuming = Resuming(layout, name, rule, resume)
        self.name, self.topic, self.resume = name, layout.name, self._resuming.by_partition
        self.resume_points = tuple(point for _, point in self._resuming.points.points)
        self.resume_from = self._resuming.resume_from
        self._options = options
        self._io_thread, self._tables = io_thread, tables
        self._budget = Budget(options.bytes_in_flight_max, self._blocked)
        self._choice = None if layout.key or rule else PartitionChoice()
        self._encoder = self._encoder_of(layout)
        owned = OwnedLock()
        self._lock = owned.lock  # keeps `send` numbers and the I/O thread's queue in the same order
        self._numbers = self._resuming.numbers
        self._outcomes = SendOutcomes()
        self._is_mine = owned.is_mine
        self._budget_is_mine, self._outcomes_is_mine = self._budget.is_mine, self._outcomes.is_mine
        self._closed = False
        self._owner = guard("producer")
        self._sender = Sender(
            io_thread,
            tables,
            layout,
            identity,
            name=name,
            on_body_ended=self._budget.give,
            on_settled=self._outcomes.settled,
            choice=self._choice,
            slot_of_send=self._resuming.slot_of_send,
        )
        self._lingering: Linger | None = None
        if options.linger_ms:
            self._lingering = Linger(
                io_thread,
                self._sender,
                self._budget,
                options,
                is_named=name is not None,
                encoder=lambda: self._encoder,
                on_settled=self._outcomes.settled,
            )
        self._submit_there = self._sender.submit
        self._waiting = WaitReasons(io_thread, self.topic, self._sender.waits)
        io_thread.call(self._register)
        if self._choice is not None and len(layout.active) > 1 and not io_thread.inside:
            self._choice.wait()
        remember(self)

    def __repr__(self) -> str:
        name = "" if self.name is None else f" named {self.name!r}"
        state = "closed" if self._closed else f"{self._outcomes.pending} sends pending"
        return f"<ringfence.Producer of {self.topic}{name}: {state}, {len(self.failures)} failed>"

    # ---- sending ------------------------------------------------------------------------------------------

    @holds
    def send(self, batch: Any, note: bytes | None = None, *, number: int | None = None) -> SendFuture:
        """Append rows; returns immediately with a future of their offsets.

        Args:
            batch: anything with `__arrow_c_array__` or `__arrow_c_stream__`, or a pandas DataFrame; columns
                are matched by name. Its memory may change once `send` has returned.
            note: up to 4096 bytes of the application, stored with the rows. The last note is in the resume
                point.
            number: the application's own number of the send, ascending; default: one more than the last.
                Rows of a partition whose resume point has this number or a greater one are stored already,
                and are skipped. Without a name there are no resume points, so the number only counts on.

        Returns:
            A `concurrent.futures.Future` of a tuple of Appended(partition, first_offset, rows), one for each
            body.

        Raises:
            BatchError: the rows cannot be stored (SchemaError names the column); nothing was sent.
            OverloadedError: there was no room within `timeout_s`, or immediately with on_full="raise";
                nothing was sent. The error names the nodes that pending sends wait for. If the rows take more
                than `bytes_in_flight_max`, the error of the future has `rows_handed_over`: only that many
                rows, from the first on, may be stored.
            ClosedError: the producer is closed. ForkedError: it was created in the parent process.
            ReentrantError: a signal handler or finalizer interrupted another call of this producer.
        """
        return self._send(batch, note, number, self._options.wait_s)

    @holds
    def try_send(self, batch: Any, note: bytes | None = None, *, number: int | None = None) -> SendFuture:
        """Like `send`, but raises OverloadedError immediately if there is no room, whatever `on_full` is."""
        return self._send(batch, note, number, 0.0)

    @property
    def raises_when_full(self) -> bool:
        """Whether on_full is "raise"."""
        return self._options.on_full == "raise"

    def _send(self, batch: Any, note: bytes | None, number: int | None, wait_s: float) -> SendFuture:
        self._check_open()
        self._check_alone()
        if wait_s:  # never in an event loop
            self._io_thread.yield_to_io()
        note = checked_note(note)
        self._resuming.check_number(number)
        if self._io_thread.inside:  # in a callback of a future: while it waits, no outcome can free room
            wait_s = 0.0
        if self._lingering is not None:
            return self._send_small(self._lingering, batch, note, number, wait_s)
        if self.name is None and is_stream(batch):
            batches, rest = read_ahead(each_batch(batch, self._encoder.schema), self._budget.bytes_max)
            if rest is not None:
                self._check_may_wait(sum(map(bytes_of, batches)), wait_s)
                parts = pieces(batches, rest, self._options.batch_bytes, self._joined)
                each = (chunk for part in parts for chunk in in_chunks(part, split=self.name is None))
                return self._send_each(each, note, number, wait_s)
        else:
            batches = record_batches(batch, self._encoder.schema)
        if number is not None and self.resume_points:
            left = self._resuming.without_stored(batches, number, self._encoder.schema)
            if batches and not left:
                return self._submit(None, [], number, last=True)
            batches = left
        if len(batches) == 1 and batches[0].num_rows <= FEW_ROWS:
            return self._submit(None, self._encode_few(batches[0], note, wait_s, number), number, last=True)
        # Join small batches, so that each partition gets one body.
        if len(batches) > 1 and (
            self.name is not None or sum(map(bytes_of, batches)) <= self._options.batch_bytes
        ):
            batches = self._joined(batches)
        chunks = [chunk for part in batches for chunk in in_chunks(part, split=self.name is None)]
        return self._send_now(chunks, note, number, wait_s)

    def _joined(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        try:
            return [one_batch(batches, self._encoder.schema)]
        except BatchError:
            if self.name is not None:
                raise
            return batches  # costs more bodies

    def _send_now(
        self, chunks: list[tuple[pa.RecordBatch, int]], note: bytes | None, number: int | None, wait_s: float
    ) -> SendFuture:
        if not chunks:  # no rows: nothing to store
            future = SendFuture(self._numbers.last, self._waiting)
            future.expect(0, last=True)
            return future
        if len(chunks) > 1 and self._room_for(chunks, note) > self._budget.bytes_max:
            return self._send_in_turn(chunks, note, number, wait_s)
        return self._submit(None, self._encode(chunks, note, wait_s, number=number), number, last=True)

    def _send_in_turn(
        self, chunks: list[tuple[pa.RecordBatch, int]], note: bytes | None, number: int | None, wait_s: float
    ) -> SendFuture:
        """Send rows above `bytes_in_flight_max` in chunks.

        Encode all once before: they are refused as a whole.
        """
        self._check_may_wait(self._room_for(chunks, note), wait_s)
        begin = 0
        for chunk in chunks:
            self._budget.give(sum([len(body.data) for body in self._encode([chunk], note, wait_s, begin)]))
            begin += chunk[0].num_rows
        return self._send_each(iter(chunks), note, number, wait_s)

    def _check_may_wait(self, bytes_wanted: int, wait_s: float) -> None:
        if not wait_s:
            raise would_wait_error(self.topic, bytes_wanted, self._budget.bytes_max)

    def _send_each(
        self,
        chunks: Iterator[tuple[pa.RecordBatch, int]],
        note: bytes | None,
        number: int | None,
        wait_s: float,
    ) -> SendFuture:
        """Send chunks as they arrive; only pending chunks are kept in memory."""
        future: SendFuture | None = None
        handed_over = 0
        try:
            for chunk in chunks:
                bodies = self._encode([chunk], note, wait_s, handed_over)
                future = self._submit(future, bodies, None if future else number, last=False)
                handed_over += chunk[0].num_rows
        except BaseException as error:
            if future is None:
                raise
            # Earlier chunks may be stored, so the future reports the error.
            failure = error if isinstance(error, RingfenceError) else cut_short_error(self.topic, error)
            failure.details["rows_handed_over"] = handed_over
            future.set_error(failure)
            self._io_thread.call_at_last(partial(self._sender.submit, future, [], 0, 0.0))
            if failure is not error:
                raise
            return future
        assert future is not None
        self._io_thread.call_at_last(partial(self._sender.submit, future, [], 0, 0.0))
        return future

    def _encode_few(
        self, batch: pa.RecordBatch, note: bytes | None, wait_s: float, number: int | None
    ) -> list[Body]:
        """Like `_encode`, but take the size of the bodies instead of an estimate.

        To ask pyarrow for a size takes longer than to encode a row, and releases the interpreter lock.
        """
        limit = self._io_thread.message_bytes_max
        bodies = self._encoder.bodies(batch, note, bytes_max=limit, number=number or 0)
        self._budget.take(sum([len(body.data) for body in bodies]), timeout_s=wait_s)
        return bodies

    def _encode(
        self,
        chunks: list[tuple[pa.RecordBatch, int]],
        note: bytes | None,
        wait_s: float,
        begin: int = 0,
        number: int | None = None,
    ) -> list[Body]:
        encoder, estimate = self._encoder, self._room_for(chunks, note)
        self._budget.take(estimate, timeout_s=wait_s)
        try:
            limit, bodies = self._io_thread.message_bytes_max, list[Body]()
            for chunk, _ in chunks:
                bodies += encoder.bodies(chunk, note, bytes_max=limit, begin=begin, number=number or 0)
                begin += chunk.num_rows
        except BaseException:
            self._budget.give(estimate)
            raise
        self._budget.give(estimate - sum(len(body.data) for body in bodies))
        return bodies

    def _room_for(self, chunks: list[tuple[pa.RecordBatch, int]], note: bytes | None) -> int:
        return sum([self._encoder.room_for(chunk.num_rows, size, note) for chunk, size in chunks])

    def _submit(
        self, future: SendFuture | None, bodies: list[Body], number: int | None, *, last: bool
    ) -> SendFuture:
        deadline = time.monotonic() + self._options.timeout_s
        began = future is None
        if began:
            self._outcomes.began()
        try:
            with self._lock:
                self._check_not_closed()
                # Each chunk draws a number, so that no other send gets between the chunks.
                count = self._numbers.draw(number)
                future = future or SendFuture(count, self._waiting)
                wanted = self._resuming.unstored(bodies, count) if number else bodies
                self._io_thread.post(partial(self._submit_there, future, wanted, count, deadline, last))
        except BaseException:
            self._outcomes.began(-1 if began else 0)
            self._budget.give(sum(len(body.data) for body in bodies))
            raise
        if wanted is not bodies:
            self._budget.give(sum(len(body.data) for body in bodies) - sum(len(body.data) for body in wanted))
        return future

    # ---- coalescing ---------------------------------------------------------------------------------------

    def _send_small(
        self, lingering: Linger, batch: Any, note: bytes | None, number: int | None, wait_s: float
    ) -> SendFuture:
        if number is not None:
            raise InvalidArgumentError(
                "a send with an explicit number cannot linger; open the producer without linger_ms"
            )
        batches, size = lingering.rows_of(batch, note, wait_s)
        if not batches:
            return self._send_now([], note, None, 0.0)
        rows = sum(part.num_rows for part in batches)
        self._outcomes.began()
        try:
            with self._lock:
                self._check_open()
                future = SendFuture(self._numbers.draw(None), self._waiting)
                flush = lingering.add(LingeringSend(batches, rows, size, note, future))
        except BaseException:
            self._outcomes.began(-1)
            self._budget.give(size)
            raise
        lingering.schedule(flush)
        return future

    # ---- ending -------------------------------------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The first thousand sends that are not stored, or whose outcome is unknown."""
        return self._outcomes.failures

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of pending sends."""
        return self._budget.used

    @property
    def has_pending(self) -> bool:
        """Whether a send of this process is pending, or failed and `flush` has not raised that yet."""
        return self._owner.mine and self._outcomes.has_pending

    @holds
    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all sends so far have an outcome.

        Raises:
            RingfenceError: the first outcome since the last flush that was not "stored"; its notes count the
                others.
            WaitTimeoutError: some sends are pending after `timeout_s` seconds; they continue.
        """
        self._owner.check()
        self._check_alone()
        self._io_thread.check_outside("flush")
        if self._lingering is not None:
            self._lingering.flush()
        if left := self._outcomes.wait(timeout_s):
            raise self._waiting.error(
                f"{left} send{'s have' if left > 1 else ' has'}", None, timeout_s, sends=left
            )
        self._outcomes.raise_failures()

    @holds
    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close. Sends that are pending after `timeout_s` end now as refused or unknown.

        Raises:
            RingfenceError: like `flush`.
        """
        if not self._owner.mine:
            return  # everything belongs to the parent process
        self._check_alone()
        self._io_thread.check_outside("close")
        with self._lock:
            self._closed = True
        self._budget.close()
        try:
            if self._lingering is not None:
                self._lingering.flush()
            if self._outcomes.wait(timeout_s):
                error = ClosedError("the producer was closed before the outcome was known", topic=self.topic)
                self._io_thread.call(partial(self._sender.abandon, error))
                self._outcomes.wait(ABANDON_S_MAX)
        finally:
            with contextlib.suppress(ClosedError):
                self._io_thread.call(self._unregister)
        self._outcomes.raise_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except RingfenceError as failure:  # the error of the block continues, with a note on this one
            error.add_note(f"ringfence: while the producer was closed: {type(failure).__name__}: {failure}")

    # ---- internal -----------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._owner.check()
        self._check_not_closed()

    def _check_alone(self) -> None:
        """Refuse a call of a signal handler or finalizer that interrupts a call which holds a lock.

        If the interrupted call holds no lock, this call is as safe as one of another thread. Calls that wait
        are always refused (`IoThread.check_outside`): they may wait for the interrupted call.
        """
        if (
            self._is_mine()
            or self._budget_is_mine()
            or self._outcomes_is_mine()
            or (self._lingering is not None and self._lingering.is_mine())
        ):
            raise reentrant_error(self.topic)

    def _blocked(self, waited_s: float) -> PendingSends:
        return self._waiting.blocked(waited_s)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ClosedError("the producer is closed; open a new one", topic=self.topic)

    def _register(self) -> None:
        if self._choice is not None:
            self._choice.begin(self._io_thread.now)
        self._io_thread.members.append(self._sender)
        self._tables.listen(self._sender.layout.topic, self._on_table)

    def _unregister(self) -> None:
        if self._sender in self._io_thread.members:
            self._io_thread.members.remove(self._sender)
        self._tables.forget(self._sender.layout.topic, self._on_table)

    def _on_table(self, layout: Layout) -> None:
        """Use a newer layout for later rows; one assignment makes the change atomic."""
        try:
            self._encoder = self._encoder_of(layout)
        except Exception as error:  # noqa: BLE001  # ends this producer only
            self._sender.failed(error)
        self._sender.table(layout)

    def _encoder_of(self, layout: Layout) -> TopicEncoder:
        slot_of_send = self._resuming.slot_of_send
        return TopicEncoder(layout, split=self.name is None, choice=self._choice, slot_of_send=slot_of_send)

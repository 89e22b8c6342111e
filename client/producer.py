"""START HERE: what `client.producer(topic)` gives. Rows go in, futures of what is on disk come out.

    send -> record batches -> slots, groups, bodies (caller's thread, no GIL) -> link thread: sequence,
         frames, retries <- SendFuture  <---------------------------------------------------------- outcome

`send` returns when the rows are encoded: it waits only while `bytes_in_flight_max` bytes have no outcome yet.
Every send ends in exactly one outcome; `flush`, `close` and the context manager raise the first that is not
"stored".
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ringfence.arrow.batches import bytes_of, each_batch, is_stream, one_batch, record_batches
from ringfence.arrow.encode import FEW_ROWS, Body, TopicEncoder, checked_note
from ringfence.arrow.partition_choice import Reach
from ringfence.arrow.pieces import pieces, read_ahead
from ringfence.common.fork import guard
from ringfence.common.locks import Owned, holds
from ringfence.common.process_local import Local
from ringfence.native.errors import (
    BatchError,
    ClosedError,
    InvalidArgumentError,
    OverloadedError,
    ReentrantError,
    RingfenceError,
)
from ringfence.send.budget import Budget
from ringfence.send.coalesce import Company, Small
from ringfence.send.exit_flush import remember
from ringfence.send.failures import cut_short_error
from ringfence.send.linger import Lingering
from ringfence.send.outcomes import Failure, Settlement
from ringfence.send.send_future import SendFuture
from ringfence.send.send_numbers import Numbers
from ringfence.send.sender import Sender
from ringfence.send.wait_reasons import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    import pyarrow as pa

    from ringfence.cluster.table_cache import Tables
    from ringfence.common.options import Options
    from ringfence.common.routing import Layout
    from ringfence.common.send_effects import Identity
    from ringfence.native.messages import ResumePoint
    from ringfence.network.io_thread import Link
    from ringfence.send.sender import Sink
    from ringfence.send.wait_reasons import Held

ABANDON_S_MAX = 10.0  # the link's thread only has to hand out outcomes; a last resort


class Producer(Local):
    """Appends batches to one topic exactly once. Thread-safe; made by `Client.producer`.

    Attributes:
        name: of a named producer, else None.
        topic: the topic's full name.
        resume: partition -> what the predecessor of this name left there (its last sequence, `send`, note,
            and where).
    """

    def __init__(
        self,
        link: Link,
        tables: Tables,
        layout: Layout,
        identity: Identity,
        *,
        name: str | None,
        resume: Mapping[int, ResumePoint],
        options: Options,
        client: object = None,
    ) -> None:
        """`client`: whose connections these are; it ends with the last that refers to it."""
        self._client = client
        self.name, self.topic, self.resume = name, layout.name, dict(resume)
        self._options = options
        self._link, self._tables = link, tables
        self._budget = Budget(options.bytes_in_flight_max, self._blocked)
        self._reach = None if layout.key else Reach()
        self._encoder = TopicEncoder(layout, split=name is None, reach=self._reach)
        owned = Owned()
        self._lock = owned.lock  # the order of `send` numbers is the order on the link's queue
        self._numbers = Numbers(self.resume)
        self._settlement = Settlement()
        self._is_mine = owned.is_mine
        self._budget_is_mine, self._settlement_is_mine = self._budget.is_mine, self._settlement.is_mine
        self._closed = False
        self._owner = guard("producer")
        self._sender = Sender(
            link,
            tables,
            layout,
            identity,
            name=name,
            on_body_ended=self._budget.give,
            on_settled=self._on_settled,
            reach=self._reach,
        )
        self._lingering: Lingering | None = None
        if options.linger_ms:
            self._lingering = Lingering(
                link, self._sender, self._budget, options,
                is_named=name is not None, encoder=lambda: self._encoder, on_settled=self._on_settled,
            )  # fmt: skip
        self._submit_there = self._sender.submit
        self._waiting = Waiting(link, self.topic, self._sender.waits)
        link.call(self._register)
        if self._reach is not None and len(layout.active) > 1 and not link.inside:
            self._reach.wait()
        remember(self)

    # ---- sending ------------------------------------------------------------------------------------------

    @holds
    def send(self, batch: Any, note: bytes | None = None, *, number: int | None = None) -> SendFuture:
        """Append rows; returns at once with the future of where they are.

        Args:
            batch: anything with `__arrow_c_array__` or `__arrow_c_stream__`, or a pandas DataFrame; columns
                are matched by name. Its memory may change once `send` has returned.
            note: up to 4096 bytes of the application's own, stored with the rows; the last one is in the
                resume point.
            number: the application's own count of sends, ascending; default: one more than the last. Rows for
                a partition whose resume point has this number or a greater one are stored already, and are
                skipped.

        Returns:
            A `concurrent.futures.Future` of a tuple of Appended(partition, first_offset, rows), one for each
            body.

        Raises:
            BatchError: the rows cannot be stored (SchemaError names the column); nothing was sent.
            OverloadedError: `bytes_in_flight_max` was not free within `timeout_s` (it names who is waited
                for), or at once with on_full="raise"; nothing was sent. Of rows that take more than all of
                it, the future's error has `rows_handed_over`: the first so many may be stored, the others
                are not.
            ClosedError: the producer is closed. ForkedError: it was made in the parent process.
            ReentrantError: a signal's handler or a finalizer interrupted another call of this producer.
        """
        return self._send(batch, note, number, self._options.wait_s)

    @holds
    def try_send(self, batch: Any, note: bytes | None = None, *, number: int | None = None) -> SendFuture:
        """As `send`, without waiting for room: raises OverloadedError at once, whatever `on_full` says."""
        return self._send(batch, note, number, 0.0)

    @property
    def raises_when_full(self) -> bool:
        """Whether on_full is "raise"."""
        return self._options.on_full == "raise"

    def _send(self, batch: Any, note: bytes | None, number: int | None, wait_s: float) -> SendFuture:
        self._check_open()
        self._check_alone()
        if wait_s:  # not on an event loop's thread
            self._link.give_way()
        note = checked_note(note)
        if self._link.inside:  # a callback of a future: while it waits, no outcome can make room
            wait_s = 0.0
        if self._lingering is not None:
            return self._send_small(self._lingering, batch, note, number, wait_s)
        if self.name is None and is_stream(batch):
            batches, rest = read_ahead(each_batch(batch, self._encoder.schema), self._budget.bytes_max)
            if rest is not None:
                self._check_may_wait(sum(map(bytes_of, batches)), wait_s)
                parts = pieces(batches, rest, self._options.batch_bytes, self._joined)
                each = (chunk for part in parts for chunk in self._encoder.chunks(part))
                return self._send_each(each, note, number, wait_s)
        else:
            batches = record_batches(batch, self._encoder.schema)
        if len(batches) == 1 and batches[0].num_rows <= FEW_ROWS:
            return self._submit(None, self._encode_few(batches[0], note, wait_s), number, last=True)
        # One body a partition where it may be: a stream of many small batches becomes one.
        if len(batches) > 1 and (
            self.name is not None or sum(map(bytes_of, batches)) <= self._options.batch_bytes
        ):
            batches = self._joined(batches)
        chunks = [chunk for part in batches for chunk in self._encoder.chunks(part)]
        return self._send_now(chunks, note, number, wait_s)

    def _joined(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        try:
            return [one_batch(batches, self._encoder.schema)]
        except BatchError:
            if self.name is not None:
                raise
            return batches  # a body more

    def _send_now(
        self, chunks: list[tuple[pa.RecordBatch, int]], note: bytes | None, number: int | None, wait_s: float
    ) -> SendFuture:
        if not chunks:  # no rows: nothing to store
            future = SendFuture(self._numbers.last, self._waiting)
            future.seal()
            return future
        if len(chunks) > 1 and self._room_for(chunks, note) > self._budget.bytes_max:
            return self._send_in_turn(chunks, note, number, wait_s)
        return self._submit(None, self._encode(chunks, note, wait_s), number, last=True)

    def _send_in_turn(
        self, chunks: list[tuple[pa.RecordBatch, int]], note: bytes | None, number: int | None, wait_s: float
    ) -> SendFuture:
        """Above `bytes_in_flight_max`: chunk by chunk, after all were encoded once, to be refused whole."""
        self._check_may_wait(self._room_for(chunks, note), wait_s)
        begin = 0
        for chunk in chunks:
            self._budget.give(sum([len(body.data) for body in self._encode([chunk], note, wait_s, begin)]))
            begin += chunk[0].num_rows
        return self._send_each(iter(chunks), note, number, wait_s)

    def _check_may_wait(self, bytes_wanted: int, wait_s: float) -> None:
        if not wait_s:
            raise OverloadedError(
                "the rows take more than bytes_in_flight_max, so sending them would wait; send fewer at "
                "once, or raise it",
                topic=self.topic,
                bytes_wanted=bytes_wanted,
                bytes_in_flight_max=self._budget.bytes_max,
            )

    def _send_each(
        self,
        chunks: Iterator[tuple[pa.RecordBatch, int]],
        note: bytes | None,
        number: int | None,
        wait_s: float,
    ) -> SendFuture:
        """Chunk by chunk, as they come; nothing is kept but what has no outcome."""
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
            # Earlier chunks are on their way: the future tells what became of them.
            told = error if isinstance(error, RingfenceError) else cut_short_error(self.topic, error)
            told.details["rows_handed_over"] = handed_over
            future.blame(told)
            self._link.call_at_last(partial(self._sender.seal, future))
            if told is not error:
                raise
            return future
        assert future is not None
        self._link.call_at_last(partial(self._sender.seal, future))
        return future

    def _encode_few(self, batch: pa.RecordBatch, note: bytes | None, wait_s: float) -> list[Body]:
        """As `_encode`, but what the bodies take is known, not estimated.

        Asking pyarrow takes longer than encoding a row, and gives the interpreter's lock away.
        """
        bodies = self._encoder.bodies(batch, note, bytes_max=self._link.message_bytes_max)
        self._budget.take(sum([len(body.data) for body in bodies]), timeout_s=wait_s)
        return bodies

    def _encode(
        self, chunks: list[tuple[pa.RecordBatch, int]], note: bytes | None, wait_s: float, begin: int = 0
    ) -> list[Body]:
        encoder, estimate = self._encoder, self._room_for(chunks, note)
        self._budget.take(estimate, timeout_s=wait_s)
        try:
            limit, bodies = self._link.message_bytes_max, list[Body]()
            for chunk, _ in chunks:
                bodies += encoder.bodies(chunk, note, bytes_max=limit, begin=begin)
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
            self._settlement.began()
        try:
            with self._lock:
                self._check_not_closed()
                # Chunks of one send count on, so that no other send comes between them.
                count = self._numbers.draw(number)
                future = future or SendFuture(count, self._waiting)
                wanted = (
                    [body for body in bodies if not self._numbers.stored_before(body.partition, count)]
                    if number
                    else bodies
                )
                self._link.post(partial(self._submit_there, future, wanted, count, deadline, last))
        except BaseException:
            self._settlement.began(-1 if began else 0)
            self._budget.give(sum(len(body.data) for body in bodies))
            raise
        if wanted is not bodies:
            self._budget.give(sum(len(body.data) for body in bodies) - sum(len(body.data) for body in wanted))
        return future

    # ---- coalescing ---------------------------------------------------------------------------------------

    def _send_small(
        self, lingering: Lingering, batch: Any, note: bytes | None, number: int | None, wait_s: float
    ) -> SendFuture:
        if number is not None:
            raise InvalidArgumentError(
                "a send with a number of its own cannot linger; make the producer without linger_ms"
            )
        batches, size = lingering.rows_of(batch, note, wait_s)
        if not batches:
            return self._send_now([], note, None, 0.0)
        rows = sum(part.num_rows for part in batches)
        self._settlement.began()
        try:
            with self._lock:
                self._check_open()
                future = SendFuture(self._numbers.draw(None), self._waiting)
                flush = lingering.add(Small(batches, rows, size, note, future))
        except BaseException:
            self._settlement.began(-1)
            self._budget.give(size)
            raise
        lingering.look_at(flush)
        return future

    # ---- ending -------------------------------------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The sends that were not stored, or may not be: the first thousand."""
        return self._settlement.failures

    @property
    def bytes_in_flight(self) -> int:
        """Bytes that have no outcome yet."""
        return self._budget.used

    @property
    def owes(self) -> bool:
        """Whether a send of this process has no outcome yet, or failed and nobody was told by `flush`."""
        return self._owner.mine and self._settlement.owes

    @holds
    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every send so far has its outcome.

        Raises:
            RingfenceError: the first outcome since the last flush that was not "stored"; its notes count the
                others.
            WaitTimeoutError: some have none after `timeout_s` seconds; they go on.
        """
        self._owner.check()
        self._check_alone()
        self._link.check_outside("flush")
        if self._lingering is not None:
            self._lingering.flush()
        if left := self._settlement.wait(timeout_s):
            raise self._waiting.error(
                f"{left} send{'s have' if left > 1 else ' has'}", None, timeout_s, sends=left
            )
        self._settlement.raise_failures()

    @holds
    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end. Sends that have no outcome after `timeout_s` get one now: refused, or unknown.

        Raises:
            RingfenceError: as `flush`.
        """
        if not self._owner.mine:
            return  # everything belongs to the parent
        self._check_alone()
        self._link.check_outside("close")
        with self._lock:
            self._closed = True
        self._budget.close()
        try:
            if self._lingering is not None:
                self._lingering.flush()
            if self._settlement.wait(timeout_s):
                error = ClosedError("the producer was closed before the outcome was known", topic=self.topic)
                self._link.call(partial(self._sender.abandon, error))
                self._settlement.wait(ABANDON_S_MAX)
        finally:
            with contextlib.suppress(ClosedError):
                self._link.call(self._unregister)
        self._settlement.raise_failures()

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
        except RingfenceError as failure:  # the body's own error goes on, and does not hide this one
            error.add_note(f"ringfence: while the producer was closed: {type(failure).__name__}: {failure}")

    # ---- inside -------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._owner.check()
        self._check_not_closed()

    def _check_alone(self) -> None:
        """A signal's handler, or a finalizer, may interrupt this thread anywhere: half a step would be seen.

        Where the other call holds no lock it is as good as another thread's, and goes on; but who waits is
        refused everywhere (`Link.check_outside`): it may be for what the other one has begun.
        """
        if (
            self._is_mine()
            or self._budget_is_mine()
            or self._settlement_is_mine()
            or (self._lingering is not None and self._lingering.is_mine())
        ):
            raise ReentrantError(
                "a signal's handler or a finalizer called this producer in the midst of another call of it; "
                "let it put the rows into a queue.SimpleQueue, and send them from a thread or the main loop",
                topic=self.topic,
            )

    def _blocked(self, waited_s: float) -> Held:
        return self._waiting.blocked(waited_s)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ClosedError("the producer is closed; make a new one", topic=self.topic)

    def _register(self) -> None:
        if self._reach is not None:
            self._reach.begin(self._link.now)
        self._link.members.append(self._sender)
        self._tables.listen(self._sender.layout.topic, self._on_table)

    def _unregister(self) -> None:
        if self._sender in self._link.members:
            self._link.members.remove(self._sender)
        self._tables.forget(self._sender.layout.topic, self._on_table)

    def _on_table(self, layout: Layout) -> None:
        """A newer layout: from here on rows are grouped by it. The swap is one assignment."""
        self._encoder = TopicEncoder(layout, split=self.name is None, reach=self._reach)
        self._sender.table(layout)

    def _on_settled(self, sink: Sink) -> None:
        if isinstance(sink, SendFuture):
            self._settlement.ended(sink.number, sink.error)
            return
        assert isinstance(sink, Company)
        for future in sink.settled:
            self._settlement.ended(future.number, future.error)
        sink.settled = []

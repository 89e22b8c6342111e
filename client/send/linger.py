"""Collect the small sends of one producer (`linger_ms`), and send them as combined bodies.

    send -> rows checked and copied -> number drawn -> Coalescer -> one batch -> bodies -> I/O thread

Invalid rows are refused in `send`, before a number is drawn. The rows that wait are a copy in the topic's
types. An error after that (no memory, a node with a smaller message limit) ends a named producer: its resume
point must not pass rows that were never stored.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from ringfence.arrow.batches import ROWS_MAX, bytes_of, in_chunks, one_batch, record_batches
from ringfence.native.errors import BatchError, ClosedError, RingfenceError
from ringfence.send.coalesce import CoalescedBatch, Coalescer, LingeringSend
from ringfence.send.failures import lingering_hole_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import pyarrow as pa

    from ringfence.arrow.encode import TopicEncoder
    from ringfence.common.options import Options
    from ringfence.network.io_thread import IoThread
    from ringfence.send.budget import Budget
    from ringfence.send.send_future import SendFuture
    from ringfence.send.sender import Sender, Sink


class Linger:
    """Thread-safe. Created by a producer with `linger_ms`; the producer draws the numbers."""

    def __init__(
        self,
        io_thread: IoThread,
        sender: Sender,
        budget: Budget,
        options: Options,
        *,
        is_named: bool,
        encoder: Callable[[], TopicEncoder],
        on_settled: Callable[[Sink], None],
    ) -> None:
        """`encoder`: gives the encoder of the newest layout.

        `on_settled`: is called for sends with an outcome.
        """
        self._io_thread, self._sender, self._budget, self._options = io_thread, sender, budget, options
        self._is_named, self._encoder, self._on_settled = is_named, encoder, on_settled
        self._coalescer = Coalescer(options.batch_bytes, self._hand_over)
        self.is_mine, self.flush = self._coalescer.is_mine, self._coalescer.flush

    def rows_of(self, data: Any, note: bytes | None, wait_s: float) -> tuple[list[pa.RecordBatch], int]:
        """A copy of the rows, and the bytes that were taken from the budget for them.

        Raises:
            BatchError: the rows cannot be stored. OverloadedError: they did not fit in time.
        """
        encoder = self._encoder()
        batches = record_batches(data, encoder.schema)
        taken = sum(map(bytes_of, batches))
        if not taken:
            return [], 0
        self._budget.take(taken, timeout_s=wait_s)
        try:
            parts = [chunk for batch in batches for chunk, _ in in_chunks(batch, split=encoder.split)]
            kept = [encoder.owned(part) for part in parts]
            if self._is_named:  # one body for each partition
                kept = [one_batch(kept, encoder.schema)]
            self._check_sizes(encoder, kept, note)
        except BaseException:
            self._budget.give(taken)
            raise
        return kept, taken

    def _check_sizes(self, encoder: TopicEncoder, kept: list[pa.RecordBatch], note: bytes | None) -> None:
        """Encode many or large rows on trial: only their bodies show whether each message is small enough."""
        begin, limit = 0, self._io_thread.message_bytes_max
        for batch in kept:
            rows = batch.num_rows
            if rows > ROWS_MAX or encoder.room_for(rows, bytes_of(batch), note) > limit:
                encoder.bodies(batch, note, bytes_max=limit, begin=begin)
            begin += rows

    def add(self, send: LingeringSend) -> tuple[int, bool] | None:
        """Add one send; the result is for `schedule`. Called in the order of the numbers."""
        return self._coalescer.add(send)

    def schedule(self, flush: tuple[int, bool] | None) -> None:
        """Flush now, or when the linger time is over."""
        if flush is None:
            return
        generation, at_once = flush
        if at_once:
            self.flush(generation)
            return
        linger_s, io_thread = self._options.linger_ms / 1000, self._io_thread
        io_thread.call(lambda: io_thread.at(io_thread.now + linger_s, lambda: self.flush(generation)))

    def _hand_over(self, sends: list[LingeringSend]) -> None:
        """Encode sends together. If that fails, encode halves, down to the send that causes the error."""
        held = sum(send.size for send in sends)
        try:
            encoder = self._encoder()
            batch = one_batch([part for send in sends for part in send.batches], encoder.schema)
            note = next((send.note for send in reversed(sends) if send.note is not None), None)
            limit = self._io_thread.message_bytes_max
            bodies = encoder.bodies(batch, note, bytes_max=limit, keep_order=True)
        except Exception as error:  # noqa: BLE001  # the I/O thread may run this and must continue
            if len(sends) > 1:
                middle = len(sends) // 2
                self._hand_over(sends[:middle])
                self._hand_over(sends[middle:])
                return
            self._refuse(sends[0], error)
            return
        self._budget.give(held - sum(len(body.data) for body in bodies))
        batched = CoalescedBatch(sends, bodies)
        deadline = time.monotonic() + self._options.timeout_s
        number = sends[-1].future.number
        try:
            self._io_thread.call(partial(self._sender.submit, batched, bodies, number, deadline))
        except ClosedError as error:  # the I/O thread has ended, so the futures must be ended here
            for body in bodies:
                batched.failed(body, error)
            batched.expect(0, last=True)
            self._on_settled(batched)

    def _refuse(self, send: LingeringSend, error: Exception) -> None:
        """End a send that was valid when it was made but cannot be encoded now."""
        self._budget.give(send.size)
        refusal = error if isinstance(error, RingfenceError) else None
        if refusal is None:
            refusal = BatchError(f"the rows cannot be encoded: {error}", topic=self._sender.layout.name)
            refusal.__cause__ = error
        if self._is_named:
            hole = lingering_hole_error(self._sender.layout.name, send.future.number, refusal)
            with contextlib.suppress(ClosedError):  # the call is executed before later sends
                self._io_thread.call(partial(self._sender.refuse_later, hole))
        _end(send.future, refusal)
        self._on_settled(send.future)


def _end(future: SendFuture, error: RingfenceError) -> None:
    future.set_error(error)
    future.expect(0, last=True)

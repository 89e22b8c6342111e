"""Gathers the small sends of one producer (`linger_ms`) and hands them over as bodies.

    send -> rows checked and copied -> number drawn -> Coalescer -> one batch -> bodies -> link thread

Whatever can be refused in rows is refused in `send`, before a number is drawn: the rows that wait are the
producer's own, in the topic's types. What fails later all the same (no memory, a node that takes smaller
messages) ends a named producer: its resume point must not pass rows that were never stored.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from ringfence.arrow.batches import bytes_of, one_batch, record_batches
from ringfence.arrow.encode import ROWS_MAX
from ringfence.native.errors import BatchError, ClosedError, RingfenceError
from ringfence.send.coalesce import Coalescer, Company, Small
from ringfence.send.failures import lingering_hole_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import pyarrow as pa

    from ringfence.arrow.encode import TopicEncoder
    from ringfence.common.options import Options
    from ringfence.network.io_thread import Link
    from ringfence.send.budget import Budget
    from ringfence.send.send_future import SendFuture
    from ringfence.send.sender import Sender, Sink


class Lingering:
    """Thread-safe. Made by a producer with `linger_ms`, which draws the numbers."""

    def __init__(
        self,
        link: Link,
        sender: Sender,
        budget: Budget,
        options: Options,
        *,
        is_named: bool,
        encoder: Callable[[], TopicEncoder],
        on_settled: Callable[[Sink], None],
    ) -> None:
        """`encoder`: gives that of the newest layout. `on_settled`: hears of sends that have an outcome."""
        self._link, self._sender, self._budget, self._options = link, sender, budget, options
        self._is_named, self._encoder, self._on_settled = is_named, encoder, on_settled
        self._coalescer = Coalescer(options.batch_bytes, self._hand_over)
        self.is_mine, self.flush = self._coalescer.is_mine, self._coalescer.flush

    def rows_of(self, data: Any, note: bytes | None, wait_s: float) -> tuple[list[pa.RecordBatch], int]:
        """The rows as they will wait, and the bytes that were taken for them.

        Raises:
            BatchError: they cannot be stored. OverloadedError: they did not fit in time.
        """
        encoder = self._encoder()
        batches = record_batches(data, encoder.schema)
        taken = sum(map(bytes_of, batches))
        if not taken:
            return [], 0
        self._budget.take(taken, timeout_s=wait_s)
        try:
            kept = [encoder.owned(chunk) for batch in batches for chunk, _ in encoder.chunks(batch)]
            if self._is_named:  # one body a partition
                kept = [one_batch(kept, encoder.schema)]
            self._check_sizes(encoder, kept, note)
        except BaseException:
            self._budget.give(taken)
            raise
        return kept, taken

    def _check_sizes(self, encoder: TopicEncoder, kept: list[pa.RecordBatch], note: bytes | None) -> None:
        """Where the rows are many, or large, only their bodies tell whether each message is small enough."""
        begin, limit = 0, self._link.message_bytes_max
        for batch in kept:
            rows = batch.num_rows
            if rows > ROWS_MAX or encoder.room_for(rows, bytes_of(batch), note) > limit:
                encoder.bodies(batch, note, bytes_max=limit, begin=begin)
            begin += rows

    def add(self, send: Small) -> tuple[int, bool] | None:
        """Let one send wait; what it returns is for `look_at`. Called in the order of the numbers."""
        return self._coalescer.add(send)

    def look_at(self, flush: tuple[int, bool] | None) -> None:
        """Flush now, or when the linger is over."""
        if flush is None:
            return
        generation, at_once = flush
        if at_once:
            self.flush(generation)
            return
        linger_s, link = self._options.linger_ms / 1000, self._link
        link.call(lambda: link.at(link.now + linger_s, lambda: self.flush(generation)))

    def _hand_over(self, sends: list[Small]) -> None:
        """Encode sends as one; in halves, if they cannot be one, down to the send that is at fault."""
        held = sum(send.size for send in sends)
        try:
            encoder = self._encoder()
            batch = one_batch([part for send in sends for part in send.batches], encoder.schema)
            note = next((send.note for send in reversed(sends) if send.note is not None), None)
            limit = self._link.message_bytes_max
            bodies = encoder.bodies(batch, note, bytes_max=limit, keep_order=True)
        except Exception as error:  # noqa: BLE001  # it may be the link's thread, which serves others too
            if len(sends) > 1:
                middle = len(sends) // 2
                self._hand_over(sends[:middle])
                self._hand_over(sends[middle:])
                return
            self._refuse(sends[0], error)
            return
        self._budget.give(held - sum(len(body.data) for body in bodies))
        company = Company(sends, bodies)
        deadline = time.monotonic() + self._options.timeout_s
        number = sends[-1].future.number
        try:
            self._link.call(partial(self._sender.submit, company, bodies, number, deadline))
        except ClosedError as error:  # the link ended between: nothing else will tell the futures
            for body in bodies:
                company.failed(body, error)
            company.seal()
            self._on_settled(company)

    def _refuse(self, send: Small, error: Exception) -> None:
        """A send that was fit when it was made cannot be encoded now."""
        self._budget.give(send.size)
        refusal = error if isinstance(error, RingfenceError) else None
        if refusal is None:
            refusal = BatchError(f"the rows cannot be encoded: {error}", topic=self._sender.layout.name)
            refusal.__cause__ = error
        if self._is_named:
            hole = lingering_hole_error(self._sender.layout.name, send.future.number, refusal)
            with contextlib.suppress(ClosedError):  # later sends come behind this call
                self._link.call(partial(self._sender.refuse_later, hole))
        _end(send.future, refusal)
        self._on_settled(send.future)


def _end(future: SendFuture, error: RingfenceError) -> None:
    future.blame(error)
    future.seal()

"""Combine small sends into larger bodies. With `linger_ms` sends wait until a time or a size is reached.

    send, send, send -> one record batch -> one body for each partition -> each future gets its own offsets

A body keeps the rows in the order of the sends, so the rows of one send have consecutive offsets in a
partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ringfence.common.locks import OwnedLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ringfence.arrow.encode import Body
    from ringfence.native.errors import RingfenceError
    from ringfence.send.send_future import SendFuture

SENDS_MAX = 8192  # in one body: keeps the work of one flush at about ten milliseconds


class LingeringSend(NamedTuple):
    """A send that waits to be combined with others."""

    batches: list[pa.RecordBatch]
    rows: int
    size: int  # bytes
    note: bytes | None
    future: SendFuture


class Run(Protocol):
    """Encodes and submits sends of one schema; called by one thread at a time, in order."""

    def __call__(self, sends: list[LingeringSend]) -> None: ...


class Coalescer:
    """Thread-safe. `add` tells the caller when to flush: immediately, or after the linger time."""

    def __init__(self, batch_bytes: int, run: Run) -> None:
        self._batch_bytes, self._run = batch_bytes, run
        owned, runs = OwnedLock(), OwnedLock()
        self._lock, self.is_mine = owned.lock, owned.is_mine
        # Keeps flushes in the order in which they took their sends.
        self._run_lock, self._is_flushing = runs.lock, runs.is_mine
        self._again = False  # this thread requested a flush during its own flush
        self._waiting: list[LingeringSend] = []
        self._bytes = 0
        self._generation = 0  # number of flushes: a timer of an earlier generation does nothing

    def add(self, send: LingeringSend) -> tuple[int, bool] | None:
        """Add one send.

        Returns:
            None if the flush of an earlier send includes it; else (generation for `flush`, whether
            immediately).
        """
        with self._lock:
            first = not self._waiting
            self._waiting.append(send)
            self._bytes += send.size
            full = self._bytes >= self._batch_bytes or len(self._waiting) >= SENDS_MAX
            return (self._generation, full) if first or full else None

    def flush(self, generation: int | None = None) -> None:
        """Send all waiting sends; with a generation, only if it was not flushed yet."""
        if self._is_flushing():  # called by a callback of a failed send, or by a signal handler
            self._again = True
            return
        with self._run_lock:
            self._flush(generation)
            while self._again:  # at most once for each send that was added meanwhile
                self._again = False
                self._flush(None)

    def _flush(self, generation: int | None) -> None:
        with self._lock:
            if not self._waiting or generation not in {None, self._generation}:
                return
            sends, self._waiting, self._bytes = self._waiting, [], 0
            self._generation += 1
        for run in same_schema(sends):
            self._run(run)


def same_schema(sends: list[LingeringSend]) -> list[list[LingeringSend]]:
    """Split sends into groups with equal schemas, in order: each group can become one batch."""
    runs: list[list[LingeringSend]] = []
    schema: pa.Schema = None
    for send in sends:
        found = send.batches[0].schema
        if schema is None or not (found is schema or found.equals(schema)):
            schema = found
            runs.append([])
        runs[-1].append(send)
    return runs


class CoalescedBatch:
    """The sink of a coalesced body: passes outcomes on to the sends that it consists of."""

    def __init__(self, sends: list[LingeringSend], bodies: list[Body]) -> None:
        self._settled: list[SendFuture] = []  # sends with an outcome that was not reported yet
        self._sends = sends
        self._send_of_row = np.repeat(np.arange(len(sends), dtype=np.uint32), [send.rows for send in sends])
        for body in bodies:
            for index, _ in self._shares(body):
                sends[index].future.expect(1, last=False)

    def expect(self, parts: int, *, last: bool) -> bool:
        """`last`: no further bodies follow. True if any send has an outcome. `__init__` counts the bodies."""
        del parts
        if last:
            self._settled += [send.future for send in self._sends if send.future.expect(0, last=True)]
        return bool(self._settled)

    def replaced(self, old: Sequence[Body], new: Sequence[Body]) -> None:
        """A layout change made other bodies of pending ones; a send has rows in more or fewer of them."""
        for bodies, parts in ((new, 1), (old, -1)):
            for body in bodies:
                for index, _ in self._shares(body):
                    self._sends[index].future.expect(parts, last=False)

    def take_settled(self) -> list[SendFuture]:
        """The sends that have an outcome which was not reported yet."""
        settled, self._settled = self._settled, []
        return settled

    def includes(self, future: SendFuture) -> bool:
        """Whether the send is part of this batch."""
        return any(send.future is future for send in self._sends)

    def stored(self, body: Body, first_offset: int) -> bool:
        """A body is stored. True if any send has an outcome."""
        at = first_offset
        for index, rows in self._shares(body):
            if self._sends[index].future.stored(body._replace(rows=rows), at):
                self._settled.append(self._sends[index].future)
            at += rows
        return bool(self._settled)

    def failed(self, body: Body | None, error: RingfenceError) -> bool:
        """A body is not stored, or its outcome is unknown. True if any send has an outcome."""
        assert body is not None
        for index, _ in self._shares(body):
            if self._sends[index].future.failed(body, error):
                self._settled.append(self._sends[index].future)
        return bool(self._settled)

    def _shares(self, body: Body) -> list[tuple[int, int]]:
        """(send, rows) of a body, in the order of its rows."""
        sends: NDArray[np.uint32] = self._send_of_row if body.order is None else self._send_of_row[body.order]
        found, counts = np.unique(sends, return_counts=True)
        return list(zip(found.tolist(), counts.tolist(), strict=True))

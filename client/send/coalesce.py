"""Small sends gathered into bigger bodies: with `linger_ms` they wait for company until time or bytes are up.

    send, send, send -> one record batch -> one body a partition -> each send's future gets its own rows'
    offsets

A body keeps the rows in the order of the sends, so the offsets of one send's rows in a partition are a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ringfence.common.locks import Owned

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from ringfence.arrow.encode import Body
    from ringfence.native.errors import RingfenceError
    from ringfence.send.send_future import SendFuture

SENDS_MAX = 8192  # in one body: keeps the work of one flush within some ten milliseconds


class Small(NamedTuple):
    """One send that waits."""

    batches: list[pa.RecordBatch]
    rows: int
    size: int  # bytes
    note: bytes | None
    future: SendFuture


class Run(Protocol):
    """Encodes and submits sends of one schema; called by one thread at a time, in order."""

    def __call__(self, sends: list[Small]) -> None: ...


class Coalescer:
    """Thread-safe. `add` says when the caller shall flush: at once, or after the linger."""

    def __init__(self, batch_bytes: int, run: Run) -> None:
        self._batch_bytes, self._run = batch_bytes, run
        owned, runs = Owned(), Owned()
        self._lock, self.is_mine = owned.lock, owned.is_mine
        # Flushes in the order in which they were taken.
        self._run_lock, self._is_flushing = runs.lock, runs.is_mine
        self._again = False  # a flush was asked for in the midst of this thread's own
        self._waiting: list[Small] = []
        self._bytes = 0
        self._generation = 0  # counts flushes: a timer of an earlier one does nothing

    def add(self, send: Small) -> tuple[int, bool] | None:
        """Let one send wait.

        Returns:
            None if another send's flush will take it along; else (generation for `flush`, whether at once).
        """
        with self._lock:
            first = not self._waiting
            self._waiting.append(send)
            self._bytes += send.size
            full = self._bytes >= self._batch_bytes or len(self._waiting) >= SENDS_MAX
            return (self._generation, full) if first or full else None

    def flush(self, generation: int | None = None) -> None:
        """Send what waits; with a generation only if it was not flushed since."""
        if self._is_flushing():  # a callback of a send that could not be encoded, or a signal's handler
            self._again = True
            return
        with self._run_lock:
            self._flush(generation)
            while self._again:  # at most once for each send that was made meanwhile
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


def same_schema(sends: list[Small]) -> list[list[Small]]:
    """Runs of sends that can be one batch: columns in another order, or of another type, begin a new one."""
    runs: list[list[Small]] = []
    schema: pa.Schema = None
    for send in sends:
        found = send.batches[0].schema
        if schema is None or not (found is schema or found.equals(schema)):
            schema = found
            runs.append([])
        runs[-1].append(send)
    return runs


class Company:
    """The sink of a coalesced body: tells every send what became of its rows."""

    def __init__(self, sends: list[Small], bodies: list[Body]) -> None:
        self.settled: list[SendFuture] = []  # sends that have their outcome and were not reported yet
        self._sends = sends
        self._send_of_row = np.repeat(np.arange(len(sends), dtype=np.uint32), [send.rows for send in sends])
        for body in bodies:
            for index, _ in self._shares(body):
                sends[index].future.expect(1)

    def expect(self, parts: int) -> None:
        """The bodies are known from the start."""
        del parts

    def seal(self) -> bool:
        """No more bodies will come. True if any send has its outcome."""
        self.settled += [send.future for send in self._sends if send.future.seal()]
        return bool(self.settled)

    def tells(self, future: SendFuture) -> bool:
        """Whether the send is one of them."""
        return any(send.future is future for send in self._sends)

    def stored(self, body: Body, first_offset: int) -> bool:
        """A body is stored. True if any send has its outcome."""
        at = first_offset
        for index, rows in self._shares(body):
            if self._sends[index].future.stored(body._replace(rows=rows), at):
                self.settled.append(self._sends[index].future)
            at += rows
        return bool(self.settled)

    def failed(self, body: Body | None, error: RingfenceError) -> bool:
        """A body is not. True if any send has its outcome."""
        assert body is not None
        for index, _ in self._shares(body):
            if self._sends[index].future.failed(body, error):
                self.settled.append(self._sends[index].future)
        return bool(self.settled)

    def _shares(self, body: Body) -> list[tuple[int, int]]:
        """(send, rows) of a body, in the order of its rows."""
        sends: NDArray[np.uint32] = self._send_of_row if body.order is None else self._send_of_row[body.order]
        found, counts = np.unique(sends, return_counts=True)
        return list(zip(found.tolist(), counts.tolist(), strict=True))

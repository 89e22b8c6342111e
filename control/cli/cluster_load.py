"""Producers and readers of the cluster's demo, and the proof that every row is there once and in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ringfence.control.cli.connection import connected
from ringfence.native.errors import RingfenceError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from ringfence import Place

# Rows of one send: 140 KB, so that a wait for an answer is a wait for the cluster and not for the disk.
SLICE_ROWS: Final = 1_000
# Sends of one writer that have no answer yet.
WINDOW: Final = 8
# Within which each send must be answered, whatever happens to the nodes.
WAIT_S: Final = 60.0
PRODUCER: Final = "producer"
NUMBER: Final = "number"
# Columns that are added to lineitem: who sent the row, and which of its rows it is.
IDENTITY: Final = (
    pa.field(PRODUCER, pa.int32(), nullable=False),
    pa.field(NUMBER, pa.int64(), nullable=False),
)


class ProofError(Exception):
    """A row is not as it must be; the sentence says which and how."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one writer saw since the last look."""

    rows: int
    size: int
    # From a send to its answer, of those that were under way or answered meanwhile.
    longest_s: float


class _Sent:
    """A send that was begun at `sent_s`, its wait for room included; `answered_s` is when its answer came."""

    def __init__(self, future: Future[Any], size: int, sent_s: float) -> None:
        self.future, self.size, self.sent_s, self.answered_s = future, size, sent_s, 0.0
        future.add_done_callback(self._answered)

    def _answered(self, _: Future[Any]) -> None:
        self.answered_s = time.perf_counter()


class Writer:
    """One producer in a thread: lineitem's rows from `source`, again and again, at most `bytes_per_s`."""

    def __init__(
        self, address: str, topic: str, number: int, source: pa.RecordBatch, bytes_per_s: float
    ) -> None:
        self.number, self.sent, self.failure = number, 0, ""
        self.is_flowing = False  # a send has its answer
        self._address, self._topic, self._source, self._rate = address, topic, source, bytes_per_s
        self._lock = threading.Lock()
        self._waiting: deque[_Sent] = deque()
        self._seen = Stretch(0, 0, 0.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """End when every send has its answer."""
        self._stop.set()
        self._thread.join(2 * WAIT_S)
        if self._thread.is_alive() and not self.failure:
            self.failure = "it does not end"

    def take(self) -> Stretch:
        """What happened since the last call."""
        with self._lock:
            first = self._waiting[0] if self._waiting else None
            oldest = 0.0 if first is None or first.future.done() else time.perf_counter() - first.sent_s
            seen, self._seen = self._seen, Stretch(0, 0, 0.0)
        return Stretch(seen.rows, seen.size, max(seen.longest_s, oldest))

    def _run(self) -> None:
        try:
            with (
                connected(self._address) as client,
                client.producer(self._topic, timeout_s=WAIT_S) as producer,
            ):
                self._next()  # pyarrow's first look at an array of numpy's may import pandas, for seconds
                began, sent_bytes = time.perf_counter(), 0
                while not self._stop.is_set():
                    batch = self._next()
                    sent_s = time.perf_counter()
                    sent = _Sent(producer.send(batch), batch.nbytes, sent_s)
                    with self._lock:
                        self._waiting.append(sent)
                    self.sent += batch.num_rows
                    sent_bytes += batch.nbytes
                    self._settle(WINDOW)
                    self._stop.wait(max(0.0, began + sent_bytes / self._rate - time.perf_counter()))
                self._settle(0)
        except RingfenceError as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _next(self) -> pa.RecordBatch:
        """The next rows, with their identity."""
        start = self.sent % self._source.num_rows
        rows = self._source.slice(start, SLICE_ROWS)
        numbers = np.arange(self.sent, self.sent + rows.num_rows, dtype=np.int64)
        identity = [pa.array(np.full(rows.num_rows, self.number, np.int32)), pa.array(numbers)]
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *identity], schema=topic_schema(self._source.schema)
        )

    def _settle(self, most: int) -> None:
        """Wait until at most so many sends have no answer. Raises what the producer raises."""
        while self._waiting and (len(self._waiting) > most or self._waiting[0].future.done()):
            sent = self._waiting[0]
            rows = sum(part.rows for part in sent.future.result(2 * WAIT_S))
            waited = max(0.0, sent.answered_s - sent.sent_s)
            with self._lock:
                self._waiting.popleft()
                self.is_flowing = True
                seen = self._seen
                self._seen = Stretch(seen.rows + rows, seen.size + sent.size, max(seen.longest_s, waited))


class Following:
    """A reader that follows the topic in a thread, and looks at each row's identity as it comes."""

    def __init__(self, address: str, topic: str) -> None:
        self.rows, self.failure = 0, ""
        self._address, self._topic, self._closing = address, topic, False
        self._client: Any = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, rows: int) -> None:
        """Wait until it has seen so many rows, then end it."""
        end = time.monotonic() + WAIT_S
        while self.rows < rows and not self.failure and time.monotonic() < end:
            time.sleep(0.02)
        if self.rows != rows and not self.failure:
            self.failure = f"it has seen {self.rows:,} of {rows:,} rows"
        self._closing = True
        self._client.close()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        order = Order()
        try:
            with connected(self._address, WAIT_S) as self._client:
                reader = self._client.read(self._topic, follow=True, columns=[PRODUCER, NUMBER])
                for batch in reader:
                    order.look(reader.place, batch)
                    self.rows += batch.num_rows
        except ProofError as error:
            self.failure = str(error)
        except RingfenceError as error:
            if not self._closing:
                self.failure = f"{type(error).__name__}: {error}"


class Order:
    """Within one partition the rows of one producer come in the order in which it sent them, each once."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}

    def look(self, where: Place | None, batch: pa.RecordBatch) -> None:
        """`where`: of the reader that gave the batch. Raises ProofError."""
        assert where is not None, "a batch was given"
        partition = where.partition
        producers, numbers = identity_of(batch)
        for producer in np.unique(producers):
            own = numbers[producers == producer]
            place = (partition, int(producer))
            steps = np.diff(own, prepend=self._last.get(place, -1))
            if (steps <= 0).any():
                at = int(own[int(np.argmax(steps <= 0))])
                raise ProofError(
                    f"partition {partition}: row {at} of producer {producer} comes a second time, or too late"
                )
            self._last[place] = int(own[-1])


def prove(address: str, topic: str, source: pa.RecordBatch, sent: dict[int, int]) -> int:
    """Read everything and `check` it. Raises ProofError, and RingfenceError when it cannot be read."""
    with connected(address) as client, client.read(topic) as reader:
        return check(((reader.place, batch) for batch in reader), source, sent)


def check(
    read: Iterable[tuple[Place | None, pa.RecordBatch]], source: pa.RecordBatch, sent: dict[int, int]
) -> int:
    """All rows that were sent are there, once, in order, with their content.

    Args:
        read: all batches of the topic, with where they come from.
        source: whose rows each producer sent, again and again.
        sent: rows by producer; all of them acknowledged.

    Returns:
        How many rows.

    Raises:
        ProofError: one is not as it must be.
    """
    found = {producer: np.zeros(count, np.uint8) for producer, count in sent.items()}
    order, rows = Order(), 0
    for where, batch in read:
        order.look(where, batch)
        producers, numbers = identity_of(batch)
        for producer in np.unique(producers):
            own = numbers[producers == producer]
            if int(producer) not in found or own.max() >= sent[int(producer)]:
                raise ProofError(f"row {own.max()} of producer {producer} was never sent")
            np.add.at(found[int(producer)], own, 1)
        truth = source.take(pa.array(numbers % source.num_rows))
        if not batch.drop_columns([PRODUCER, NUMBER]).equals(truth):
            raise ProofError("rows differ from those that were sent")
        rows += batch.num_rows
    for producer, times in found.items():
        for wrong, what in ((times == 0, "lost"), (times > 1, "doubled")):
            if wrong.any():
                count, which = int(wrong.sum()), int(np.argmax(wrong))
                raise ProofError(f"{count:,} rows of producer {producer} are {what}: {which} is one")
    return rows


def topic_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of lineitem and those of the identity."""
    return pa.schema([*schema, *IDENTITY])


def identity_of(batch: pa.RecordBatch) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return batch.column(PRODUCER).to_numpy(), batch.column(NUMBER).to_numpy()

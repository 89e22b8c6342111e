"""Writers and readers of the cluster demo, and the check that every row is stored once and in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ringfence.control.cli.connection import open_client
from ringfence.native.errors import RingfenceError
from ringfence.native.slots import slots
from ringfence.native.wire import SLOT_COUNT

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from ringfence import Client, Place, Producer

# Rows per send: 140 KB, so that an answer depends on the cluster and not on the disk.
SLICE_ROWS: Final = 1_000
# Maximum number of pending sends per writer.
WINDOW: Final = 8
# Seconds within which each send must be answered, also during failures of nodes.
WAIT_S: Final = 60.0
PRODUCER: Final = "producer"
NUMBER: Final = "number"
# Columns added to lineitem: the producer of the row, and the row's number at this producer.
IDENTITY: Final = (
    pa.field(PRODUCER, pa.int32(), nullable=False),
    pa.field(NUMBER, pa.int64(), nullable=False),
)


class ProofError(Exception):
    """A row is lost, doubled, out of order or altered. The text names the row."""


@dataclass(frozen=True, slots=True)
class WriterStats:
    """Figures of one writer since the last call of `take_stats`."""

    rows: int
    size: int
    # Longest time from a send to its answer, of sends that were pending or answered since then.
    longest_s: float


class _PendingSend:
    """A send. `sent_s`: time before the call of `send`; `answered_s`: time of its answer."""

    def __init__(self, future: Future[Any], size: int, sent_s: float) -> None:
        self.future, self.size, self.sent_s, self.answered_s = future, size, sent_s, 0.0
        future.add_done_callback(self._answered)

    def _answered(self, _: Future[Any]) -> None:
        self.answered_s = time.perf_counter()


class Writer:
    """A producer in a thread. Sends the rows of `source` repeatedly, at most `bytes_per_s`."""

    def __init__(
        self, address: str, topic: str, number: int, source: pa.RecordBatch, bytes_per_s: float
    ) -> None:
        # `failure` ended the thread; `errors` are those of single sends, the first one as `error`.
        self.number, self.sent, self.failure = number, 0, ""
        self.sends, self.errors, self.error = 0, 0, ""
        self.has_answer = False  # whether a send has been answered
        self._address, self._topic, self._source, self._rate = address, topic, source, bytes_per_s
        self._began_s, self._sent_bytes = 0.0, 0
        self._lock = threading.Lock()
        self._pending: deque[_PendingSend] = deque()
        self._stats = WriterStats(0, 0, 0.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop the thread and wait for the answers of all sends."""
        self._stop.set()
        self._thread.join(2 * WAIT_S)
        if self._thread.is_alive() and not self.failure:
            self.failure = "the thread does not end"

    def take_stats(self) -> WriterStats:
        """Return the figures since the last call."""
        with self._lock:
            first = self._pending[0] if self._pending else None
            oldest = 0.0 if first is None or first.future.done() else time.perf_counter() - first.sent_s
            stats, self._stats = self._stats, WriterStats(0, 0, 0.0)
        return WriterStats(stats.rows, stats.size, max(stats.longest_s, oldest))

    def _run(self) -> None:
        try:
            with open_client(self._address) as client:
                self._next()  # the first conversion of a numpy array may import pandas, which takes seconds
                self._began_s = time.perf_counter()
                self._write(client)
        except Exception as error:  # noqa: BLE001 - the story reports it
            self._count_error(error)
            self.failure = self.error

    def _write(self, client: Client) -> None:
        """Send until `finish`, and wait for all answers."""
        with client.producer(self._topic, timeout_s=WAIT_S) as producer:
            while not self._stop.is_set():
                self._send(producer)
            self._settle(0)

    def _send(self, producer: Producer) -> None:
        batch = self._next()
        sent_s = time.perf_counter()
        self.sends += 1
        sent = _PendingSend(producer.send(batch), batch.nbytes, sent_s)
        with self._lock:
            self._pending.append(sent)
        self.sent += batch.num_rows
        self._settle(WINDOW)
        self._pace(batch.nbytes)

    def _pace(self, size: int) -> None:
        """Wait so that the bytes sent so far, with `size` new ones, keep the rate."""
        self._sent_bytes += size
        self._stop.wait(max(0.0, self._began_s + self._sent_bytes / self._rate - time.perf_counter()))

    def _count_error(self, error: Exception) -> None:
        self.errors += 1
        self.error = self.error or f"{type(error).__name__}: {error}"

    def _next(self) -> pa.RecordBatch:
        """Return the next rows with their identity columns."""
        start = self.sent % self._source.num_rows
        rows = self._source.slice(start, SLICE_ROWS)
        numbers = np.arange(self.sent, self.sent + rows.num_rows, dtype=np.int64)
        identity = [pa.array(np.full(rows.num_rows, self.number, np.int32)), pa.array(numbers)]
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *identity], schema=topic_schema(self._source.schema)
        )

    def _settle(self, pending_max: int) -> None:
        """Wait until at most `pending_max` sends are pending; count those that failed."""
        while self._pending and (len(self._pending) > pending_max or self._pending[0].future.done()):
            sent = self._pending[0]
            try:
                rows = sum(part.rows for part in sent.future.result(2 * WAIT_S))
            except RingfenceError as error:
                rows = 0
                self._count_error(error)
            with self._lock:
                self._pending.popleft()
            self._record(rows, sent.size, max(0.0, sent.answered_s - sent.sent_s))

    def _record(self, rows: int, size: int, waited_s: float) -> None:
        """Count an answer."""
        with self._lock:
            self.has_answer = True
            old = self._stats
            self._stats = WriterStats(old.rows + rows, old.size + size, max(old.longest_s, waited_s))


class FollowingReader:
    """A reader that follows the topic in a thread and checks the identity of each row."""

    def __init__(
        self, address: str, topic: str, order: RowOrderCheck | None = None, pause_s: float = 0.0
    ) -> None:
        """`pause_s`: pause after each batch, for a slow reader."""
        self.rows, self.failure, self.pause_s = 0, "", pause_s
        self._address, self._topic, self._closing = address, topic, False
        self._order = order or RowOrderCheck()
        self._client: Any = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, rows: int) -> None:
        """Wait until the reader has `rows` rows, then stop it."""
        self.pause_s = 0.0
        end = time.monotonic() + WAIT_S
        while self.rows < rows and not self.failure and time.monotonic() < end:
            time.sleep(0.02)
        if self.rows != rows and not self.failure:
            self.failure = f"the reader got {self.rows:,} of {rows:,} rows"
        self._closing = True
        self._client.close()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        try:
            with open_client(self._address, WAIT_S) as self._client:
                reader = self._client.read(self._topic, follow=True, columns=self._order.columns)
                for batch in reader:
                    self._order.check(reader.place, batch)
                    self.rows += batch.num_rows
                    time.sleep(self.pause_s)
        except ProofError as error:
            self.failure = str(error)
        except RingfenceError as error:
            if not self._closing:
                self.failure = f"{type(error).__name__}: {error}"


class RowOrderCheck:
    """Checks that a partition has the rows of each producer once, in the order of the sends.

    With `key` each slot of this column is checked instead of each partition: a split or a merge gives a slot
    to another partition, and its rows are read in their order all the same.
    """

    def __init__(self, key: str | None = None) -> None:
        self.columns = [PRODUCER, NUMBER] if key is None else [key, PRODUCER, NUMBER]
        self._key = key
        # Of each lane the last row; the lanes are the slots, or one for each partition.
        self._last: dict[tuple[int, int], NDArray[np.int64]] = {}

    def check(self, where: Place | None, batch: pa.RecordBatch) -> None:
        """`where`: position of the reader after the batch. Raises ProofError."""
        assert where is not None, "no batch was read"
        producers, numbers = identity_of(batch)
        if self._key is None:
            group, count = where.partition, 1
            lanes = np.zeros(len(numbers), np.int64)
        else:
            group, count = 0, SLOT_COUNT
            lanes = slots(batch, [self._key]).astype(np.int64)
        for producer in np.unique(producers):
            own = producers == producer
            last = self._last.setdefault((group, int(producer)), np.full(count, -1, np.int64))
            wrong = _first_not_ascending(last, lanes[own], numbers[own])
            if wrong is not None:
                raise ProofError(
                    f"partition {where.partition}: row {wrong} of producer {producer} is repeated or out of "
                    "order"
                )


def _first_not_ascending(
    last: NDArray[np.int64], lanes: NDArray[np.int64], numbers: NDArray[np.int64]
) -> int | None:
    """Return a number that is not above the one before it in its lane, and set the last one of each lane."""
    order = np.argsort(lanes, kind="stable")
    lanes, numbers = lanes[order], numbers[order]
    before = np.concatenate(([-1], numbers[:-1]))
    is_first = np.concatenate(([True], lanes[1:] != lanes[:-1]))
    before[is_first] = last[lanes[is_first]]
    wrong = np.flatnonzero(numbers <= before)
    is_last = np.concatenate((is_first[1:], [True]))
    last[lanes[is_last]] = numbers[is_last]
    return int(numbers[wrong[0]]) if wrong.size else None


def verify_topic(
    address: str, topic: str, source: pa.RecordBatch, sent: dict[int, int], key: str | None = None
) -> int:
    """Read the topic and verify its rows. Raises ProofError; RingfenceError if a read fails."""
    with open_client(address) as client, client.read(topic) as reader:
        return verify_rows(((reader.place, batch) for batch in reader), source, sent, key)


def verify_rows(
    read: Iterable[tuple[Place | None, pa.RecordBatch]],
    source: pa.RecordBatch,
    sent: dict[int, int],
    key: str | None = None,
) -> int:
    """Verify that the topic has all sent rows once, in order, with their content.

    Args:
        read: all batches of the topic, each with the position of the reader.
        source: the rows that each producer sent repeatedly.
        sent: number of acknowledged rows by producer.
        key: the column whose slots have their rows in order; None: each partition has.

    Returns:
        Number of rows.

    Raises:
        ProofError: a row is lost, doubled, out of order or altered.
    """
    counts = {producer: np.zeros(count, np.uint8) for producer, count in sent.items()}
    order, rows = RowOrderCheck(key), 0
    for where, batch in read:
        order.check(where, batch)
        producers, numbers = identity_of(batch)
        for producer in np.unique(producers):
            own = numbers[producers == producer]
            if int(producer) not in counts or own.max() >= sent[int(producer)]:
                raise ProofError(f"row {own.max()} of producer {producer} was never sent")
            np.add.at(counts[int(producer)], own, 1)
        expected = source.take(pa.array(numbers % source.num_rows))
        if not batch.drop_columns([PRODUCER, NUMBER]).equals(expected):
            raise ProofError("rows differ from the sent rows")
        rows += batch.num_rows
    for producer, times in counts.items():
        for wrong, fault in ((times == 0, "lost"), (times > 1, "doubled")):
            if wrong.any():
                count, which = int(wrong.sum()), int(np.argmax(wrong))
                raise ProofError(
                    f"{count:,} rows of producer {producer} are {fault}, for example row {which}"
                )
    return rows


def topic_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of lineitem and the identity columns."""
    return pa.schema([*schema, *IDENTITY])


def identity_of(batch: pa.RecordBatch) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return batch.column(PRODUCER).to_numpy(), batch.column(NUMBER).to_numpy()

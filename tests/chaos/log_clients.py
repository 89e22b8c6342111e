"""Clients that note all that they see: plain and transactional writers, readers, questions, truncates.

Each is a thread with a `History` of its own, so that nothing is shared while they run. A row is
(key, writer, number); all rows of a send have one key, so they stand in one partition.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final

import pyarrow as pa

import ringfence
from ringfence.native.errors import RetriableError, RingfenceError, TruncatedError, UnknownOutcomeError
from tests.checker.log_history import (
    FINAL,
    NUMBER_BITS,
    Commit,
    Ends,
    History,
    Outcome,
    Read,
    Send,
    Truncate,
    Values,
)

SCHEMA: Final = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in ("key", "writer", "number")]
)
ROWS: Final = 3
"""Of one send."""
KEYS: Final = 16
"""Of one writer: few, so that the order within a key is tested by many rows."""
IN_FLIGHT_MAX: Final = 24
TIMEOUT_S: Final = 30.0
SESSION_S: Final = 10.0
"""Of a follower; the next session begins at its positions."""
ASKED: Final = 50
"""Questions about the partitions of one layout; then the newest layout is asked for."""
LOOK_ROWS: Final = 500
"""That a reader from the log start takes of one partition."""


def rows_of(writer: int, key: int, first: int) -> pa.RecordBatch:
    numbers = range(first, first + ROWS)
    return pa.record_batch([[key] * ROWS, [writer] * ROWS, list(numbers)], schema=SCHEMA)


def values_of(batch: pa.RecordBatch) -> Values:
    writers, numbers = (batch.column(name).to_numpy() for name in ("writer", "number"))
    values: Values = (writers << NUMBER_BITS) | numbers
    return values


def outcome_of(error: RingfenceError) -> Outcome:
    """A refusal of the send itself tells for sure; what ended without an answer does not."""
    is_open = isinstance(error, UnknownOutcomeError | RetriableError) or not isinstance(
        error, ringfence.RefusedError
    )
    return Outcome.UNKNOWN if is_open else Outcome.REFUSED


class Witness(ABC):
    """A client in a thread. `failure` is a defect of the client or of the test, not of the log."""

    def __init__(self, addresses: str, topic: str, seed: int) -> None:
        self.history, self.failure = History(), list[BaseException]()
        self.retries = 0
        self._addresses, self._topic = addresses, topic
        self._dice, self._stop = random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def finish(self, within_s: float = 4 * TIMEOUT_S) -> None:
        self.stop()
        self._thread.join(within_s)
        if self._thread.is_alive():
            self.failure.append(TimeoutError(f"{type(self).__name__} does not end in {within_s:.0f} s"))

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with ringfence.connect(self._addresses, timeout_s=TIMEOUT_S) as client:
                    self._live(client)
        except BaseException as error:  # noqa: BLE001 - the run shows it
            self.failure.append(error)

    @abstractmethod
    def _live(self, client: ringfence.Client) -> None:
        """Work until `_stop`, or return to begin with a new client."""


class PlainWriter(Witness):
    """Sends without a name. After a send without outcome it goes on as another writer."""

    def __init__(self, addresses: str, topic: str, seed: int, first_writer: int) -> None:
        super().__init__(addresses, topic, seed)
        self._writer = first_writer

    def _live(self, client: ringfence.Client) -> None:
        under_way: deque[tuple[Any, int, int, float]] = deque()
        try:
            with client.producer(self._topic, timeout_s=TIMEOUT_S) as producer:
                first = 0
                while not self._stop.wait(self._dice.uniform(0.0, 0.06)):
                    key = self._dice.randrange(KEYS)
                    begun = time.monotonic()
                    under_way.append((producer.send(rows_of(self._writer, key, first)), key, first, begun))
                    first += ROWS
                    while len(under_way) > IN_FLIGHT_MAX or (under_way and under_way[0][0].done()):
                        self._settle(*under_way.popleft())
                while under_way:
                    self._settle(*under_way.popleft())
        except RingfenceError:
            self.retries += 1
            while under_way:
                self._settle(*under_way.popleft(), is_broken=True)
        self._writer += 1

    def _settle(self, future: Any, key: int, first: int, begun: float, *, is_broken: bool = False) -> None:
        try:
            parts = future.result()
        except RingfenceError as error:
            self._note(key, first, begun, outcome_of(error))
            if not is_broken:
                raise
        else:
            [part] = parts
            self._note(key, first, begun, Outcome.DONE, part.partition, part.first_offset)

    def _note(
        self, key: int, first: int, begun: float, outcome: Outcome, partition: int = -1, offset: int = -1
    ) -> None:
        ended = time.monotonic()
        self.history.sends.append(
            Send(self._writer, key, first, ROWS, begun, ended, outcome, partition, offset)
        )


class TransactionWriter(Witness):
    """Commits a few sends at a time, aborts some, and repeats an epoch whose outcome is unknown."""

    def __init__(self, addresses: str, topic: str, seed: int, writer: int) -> None:
        super().__init__(addresses, topic, seed)
        self._writer, self._epoch, self._first = writer, 0, 0

    def _live(self, client: ringfence.Client) -> None:
        while not self._stop.wait(self._dice.uniform(0.0, 0.5)):
            self._epoch += 1
            keys = [self._dice.randrange(KEYS) for _ in range(self._dice.randint(2, 6))]
            first, self._first = self._first, self._first + ROWS * len(keys)
            if self._dice.random() < 0.2:
                self._abort(client, keys, first)
            else:
                self._commit(client, keys, first)

    def _commit(self, client: ringfence.Client, keys: list[int], first: int) -> None:
        """The same epoch with the same rows until it is decided."""
        begun, outcome = time.monotonic(), Outcome.UNKNOWN
        while outcome is Outcome.UNKNOWN:
            try:
                with client.transaction(
                    self._topic, scope=f"w{self._writer}", epoch=self._epoch, timeout_s=TIMEOUT_S
                ) as transaction:
                    self._send(transaction, keys, first)
                outcome = Outcome.DONE
            except RingfenceError:
                self.retries += 1
                if self._stop.wait(0.1):
                    break
        self._note(keys, first, begun, outcome)

    def _abort(self, client: ringfence.Client, keys: list[int], first: int) -> None:
        begun = time.monotonic()
        try:
            with client.transaction(
                self._topic, scope=f"w{self._writer}", epoch=self._epoch, timeout_s=TIMEOUT_S
            ) as transaction:
                self._send(transaction, keys, first)
                raise _AbortError  # noqa: TRY301 - what an application's block does
        except _AbortError:
            pass
        except RingfenceError:
            self.retries += 1
        self._note(keys, first, begun, Outcome.REFUSED)

    def _send(self, transaction: ringfence.Transaction, keys: list[int], first: int) -> None:
        for place, key in enumerate(keys):
            transaction.send(rows_of(self._writer, key, first + place * ROWS))

    def _note(self, keys: list[int], first: int, begun: float, outcome: Outcome) -> None:
        ended, name = time.monotonic(), f"w{self._writer}-{self._epoch}"
        for place, key in enumerate(keys):
            self.history.sends.append(
                Send(
                    self._writer,
                    key,
                    first + place * ROWS,
                    ROWS,
                    begun,
                    ended,
                    Outcome.UNKNOWN,
                    transaction=name,
                )
            )
        self.history.commits.append(Commit(name, begun, ended, outcome))


class _AbortError(Exception):
    """Raised inside a block to abort it."""


class Follower(Witness):
    """Follows partitions, or the whole topic through its layout changes, in sessions.

    Each session begins at the positions of the one before.
    """

    def __init__(
        self, addresses: str, topic: str, seed: int, name: str, partitions: list[int] | None
    ) -> None:
        super().__init__(addresses, topic, seed)
        self._name, self._partitions, self._session = f"follower {name}", partitions, 0
        self._start: Any = None

    def _live(self, client: ringfence.Client) -> None:
        self._session += 1
        begun = time.monotonic()
        try:
            reader = client.read(
                self._topic, partition=self._partitions, start=self._start, follow=True, timeout_s=TIMEOUT_S
            )
        except RingfenceError:
            self.retries += 1
            return
        try:
            while not self._stop.is_set() and time.monotonic() - begun < SESSION_S:
                batch = reader.try_next()
                if batch is None:
                    self._stop.wait(0.02)
                    continue
                self._note(reader, batch, begun)
            self._start = reader.positions()
        except TruncatedError:
            self._start = None
        except RingfenceError:
            self.retries += 1
            self._start = reader.positions()
        finally:
            reader.close()

    def _note(self, reader: ringfence.Reader, batch: pa.RecordBatch, begun: float) -> None:
        where = reader.place
        assert where is not None
        values, ended = values_of(batch), time.monotonic()
        self.history.reads.append(
            Read(self._name, self._session, where.partition, where.first_offset, values, begun, ended)
        )


class FromStart(Witness):
    """Reads the first rows of one partition after the other, each with a new reader."""

    def __init__(self, addresses: str, topic: str, seed: int, partitions: list[int]) -> None:
        super().__init__(addresses, topic, seed)
        self._partitions, self._session = partitions, 0

    def _live(self, client: ringfence.Client) -> None:
        while not self._stop.wait(0.3):
            self._session += 1
            begun, rows = time.monotonic(), 0
            partition = self._dice.choice(self._partitions)
            try:
                with client.read(self._topic, partition=partition, timeout_s=TIMEOUT_S) as reader:
                    for batch in reader:
                        where = reader.place
                        assert where is not None
                        self.history.reads.append(
                            Read(
                                "from the start",
                                self._session,
                                partition,
                                where.first_offset,
                                values_of(batch),
                                begun,
                                time.monotonic(),
                            )
                        )
                        rows += batch.num_rows
                        if rows >= LOOK_ROWS:
                            break
            except RingfenceError:
                self.retries += 1


class EndAsker(Witness):
    """Asks for log starts and marks."""

    def _live(self, client: ringfence.Client) -> None:
        try:
            partitions = list(client.layout(self._topic).partitions)
        except RingfenceError:
            self.retries += 1
            return
        for _ in range(ASKED):
            if self._stop.wait(0.1):
                return
            partition = self._dice.choice(partitions)
            begun = time.monotonic()
            try:
                told = client.end_offsets(self._topic, partition=partition)[partition]
            except RingfenceError:
                self.retries += 1
                continue
            self.history.ends.append(Ends(partition, told.start, told.end, begun, time.monotonic()))


class Truncator(Witness):
    """Gives up a part of a partition's rows from time to time."""

    def __init__(self, addresses: str, topic: str, seed: int, partitions: list[int], every_s: float) -> None:
        super().__init__(addresses, topic, seed)
        self._partitions, self._every_s = partitions, every_s

    def _live(self, client: ringfence.Client) -> None:
        while not self._stop.wait(self._dice.uniform(0.5, 1.5) * self._every_s):
            partition = self._dice.choice(self._partitions)
            begun, before, outcome = time.monotonic(), 0, Outcome.UNKNOWN
            try:
                told = client.end_offsets(self._topic, partition=partition)[partition]
                before = told.start + (told.end - told.start) // 2
                client.truncate(self._topic, partition=partition, before_offset=before)
                outcome = Outcome.DONE
            except RingfenceError:
                self.retries += 1
            self.history.truncates.append(Truncate(partition, before, begun, time.monotonic(), outcome))


def final_read(addresses: str, topic: str) -> History:
    """All rows that are left, and where each partition begins and ends."""
    history, begun = History(), time.monotonic()
    with ringfence.connect(addresses, timeout_s=120) as client:
        with client.read(topic) as reader:
            for batch in reader:
                where = reader.place
                assert where is not None
                history.reads.append(
                    Read(
                        FINAL,
                        0,
                        where.partition,
                        where.first_offset,
                        values_of(batch),
                        begun,
                        time.monotonic(),
                    )
                )
        asked = time.monotonic()
        for partition, ends in client.end_offsets(topic).items():
            history.ends.append(Ends(partition, ends.start, ends.end, asked, time.monotonic()))
    return history

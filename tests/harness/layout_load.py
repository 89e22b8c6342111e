"""Producers and readers of a topic whose layout changes meanwhile, and the check of every row."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

import ringfence
from ringfence.native.errors import AlreadyExistsError, ConflictError, RingfenceError
from tests.harness.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

KEYS: Final = 211
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("producer", pa.int64(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
    ]
)
TIMEOUT_S: Final = 60.0
READ_TIMEOUT_S: Final = 120.0


def keys_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return numbers * 7919 % KEYS


def rows(producer: int, start: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + count, dtype=np.int64)
    columns = [keys_of(numbers), np.full(count, producer, np.int64), numbers]
    texts = pa.array([f"{producer}/{number}" for number in numbers.tolist()])
    return pa.record_batch([*map(pa.array, columns), texts], schema=SCHEMA)


class OrderCheck:
    """Rows as they are read: those of a producer and key ascend, so none comes twice."""

    def __init__(self, *, by_key: bool = True) -> None:
        """`by_key` False: all rows of a producer ascend, whatever their keys."""
        self.counts: dict[int, int] = {}
        self._last: dict[int, NDArray[np.int64]] = {}
        self._by_key = by_key

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    def add(self, where: Any, batch: pa.RecordBatch) -> None:
        """Raises AssertionError: a row is repeated or out of order."""
        producers, numbers = (batch.column(name).to_numpy() for name in ("producer", "number"))
        for producer in np.unique(producers).tolist():
            own = numbers[producers == producer]
            lanes = keys_of(own) if self._by_key else np.zeros(len(own), np.int64)
            last = self._last.setdefault(producer, np.full(KEYS, -1, np.int64))
            order = np.argsort(lanes, kind="stable")
            lanes, own = lanes[order], own[order]
            before = np.concatenate(([-1], own[:-1]))
            is_first = np.concatenate(([True], lanes[1:] != lanes[:-1]))
            before[is_first] = last[lanes[is_first]]
            wrong = np.flatnonzero(own <= before)
            assert not wrong.size, (
                f"{where}: row {own[wrong[0]]} of producer {producer}, key {lanes[wrong[0]]}, comes after "
                f"{before[wrong[0]]}"
            )
            last[lanes] = own  # of a lane the last value stays
            self.counts[producer] = self.counts.get(producer, 0) + len(own)


class OnceCheck:
    """Rows in any order: none comes twice."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._seen: set[tuple[int, int]] = set()

    @property
    def rows(self) -> int:
        return len(self._seen)

    def add(self, where: Any, batch: pa.RecordBatch) -> None:
        """Raises AssertionError: a row is repeated."""
        for pair in zip(
            batch.column("producer").to_pylist(), batch.column("number").to_pylist(), strict=True
        ):
            assert pair not in self._seen, f"{where}: row {pair[1]} of producer {pair[0]} is repeated"
            self._seen.add(pair)
            self.counts[pair[0]] = self.counts.get(pair[0], 0) + 1


class Sender:
    """One thread with one producer; `sent` rows are acknowledged once it has finished without an error."""

    def __init__(
        self, address: str, topic: str, producer: int, *, count: int = 20, pause_s: float = 0.01
    ) -> None:
        self.address, self.topic, self.producer = address, topic, producer
        self.count, self.pause_s = count, pause_s
        self.sent = self.acknowledged = self.total = 0
        """`total` counts rows that are sent again as well."""
        self.longest_s = 0.0
        """The longest time from a send to its outcome."""
        self.errors: list[BaseException] = []
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._whole, daemon=True)

    def start(self) -> Sender:
        self._thread.start()
        return self

    def finish(self) -> None:
        self.stop.set()
        self._thread.join(2 * TIMEOUT_S)
        assert not self._thread.is_alive(), f"producer {self.producer} does not end"
        assert self.errors == [], f"producer {self.producer}: {self.errors}"
        assert self.acknowledged == self.sent > 0

    def _whole(self) -> None:
        try:
            with ringfence.connect(self.address, timeout_s=TIMEOUT_S) as client:
                self.run(client)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.errors.append(error)

    def run(self, client: ringfence.Client) -> None:
        with client.producer(self.topic, timeout_s=TIMEOUT_S) as producer:
            self.send_until_stopped(producer)

    def _count(self) -> None:
        self.sent += self.count
        self.total += self.count

    def send_until_stopped(self, producer: ringfence.Producer) -> None:
        pending: deque[tuple[float, ringfence.SendFuture]] = deque()
        while not self.stop.is_set():
            pending.append((time.monotonic(), producer.send(rows(self.producer, self.sent, self.count))))
            self._count()
            while len(pending) > 16 or (pending and pending[0][1].done()):
                self._settle(*pending.popleft())
            self.stop.wait(self.pause_s)
        while pending:
            self._settle(*pending.popleft())

    def _settle(self, since_s: float, future: ringfence.SendFuture) -> None:
        future.result(2 * TIMEOUT_S)
        self.longest_s = max(self.longest_s, time.monotonic() - since_s)
        self.acknowledged += self.count


class NamedSender(Sender):
    """Under a name, which a successor takes over while sends are on their way, and goes on from its point."""

    SENDS: Final = 60
    """Of each life."""

    def run(self, client: ringfence.Client) -> None:
        name = f"named-{self.producer}"
        producer = client.producer(self.topic, name=name, timeout_s=TIMEOUT_S)
        begun = self.count  # rows of which some may be stored
        while not self.stop.is_set():
            for _ in range(self.SENDS):
                self._one(producer)
                self.stop.wait(self.pause_s)
            successor = client.producer(self.topic, name=name, timeout_s=TIMEOUT_S)
            with contextlib.suppress(RingfenceError):  # it is fenced
                producer.close()
            stored = 0 if successor.resume_from is None else successor.resume_from.send
            assert stored * self.count <= self.sent, f"resumes at {stored}, {self.sent} rows were sent"
            begun = max(begun, self.sent)
            self.sent, producer = stored * self.count, successor
        while self.sent < begun:
            self._one(producer)
        producer.close()
        self.acknowledged = self.sent

    def _one(self, producer: ringfence.Producer) -> None:
        producer.send(rows(self.producer, self.sent, self.count), number=self.sent // self.count + 1)
        self._count()


class TransactionSender(Sender):
    """One transaction after the other, each open for a while."""

    BATCHES: Final = 5

    def run(self, client: ringfence.Client) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            with client.transaction(
                self.topic, scope=f"scope-{self.producer}", timeout_s=TIMEOUT_S
            ) as open_one:
                for _ in range(self.BATCHES):
                    open_one.send(rows(self.producer, self.sent, self.count))
                    self._count()
                    self.stop.wait(self.pause_s)
            self.acknowledged = self.sent
            self.longest_s = max(self.longest_s, time.monotonic() - began)


class Following:
    """A thread that follows the topic and checks rows as they come; with `pause_s` a slow one."""

    def __init__(
        self, address: str, topic: str, check: OrderCheck | OnceCheck, *, pause_s: float = 0.0
    ) -> None:
        self.address, self.topic, self.check, self.pause_s = address, topic, check, pause_s
        self.errors: list[BaseException] = []
        self._client: ringfence.Client | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Following:
        self._thread.start()
        return self

    def finish(self, counts: dict[int, int]) -> None:
        """Wait until it has so many rows of each producer."""
        self.pause_s = 0.0
        whole = sum(counts.values())
        with contextlib.suppress(AssertionError):
            until(lambda: self.errors or self.check.rows >= whole, READ_TIMEOUT_S, "all rows at a reader")
        self._is_closing = True
        if self._client is not None:
            self._client.close()
        self._thread.join(TIMEOUT_S)
        assert self.errors == [], self.errors
        assert self.check.counts == counts

    def _run(self) -> None:
        try:
            with ringfence.connect(self.address, timeout_s=TIMEOUT_S) as self._client:
                reader = self._client.read(self.topic, follow=True, prefetch_bytes=1 << 20)
                for batch in reader:
                    self.check.add(reader.place, batch)
                    if self.pause_s:
                        time.sleep(self.pause_s)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            if not self._is_closing:
                self.errors.append(error)


def connected(address: str) -> ringfence.Client:
    return ringfence.connect(address, timeout_s=TIMEOUT_S)


def repartitioned(client: ringfence.Client, topic: str, count: int) -> int:
    """Ask until the topic has so many partitions; how often it was refused, or ended without effect."""
    end, refused = time.monotonic() + 2 * TIMEOUT_S, 0
    while True:
        try:
            client.admin.repartition(topic, count, wait_s=TIMEOUT_S)
        except (AlreadyExistsError, ConflictError):
            refused += 1
            assert time.monotonic() < end, f"{topic} does not get {count} partitions"
            time.sleep(0.2)
        else:
            break
    assert len(client.layout(topic).active) == count
    return refused


def rows_grow(senders: Sequence[Sender], more: int = 300) -> None:
    """Wait until each producer has sent so many more rows, or one has failed."""
    before = [sender.total for sender in senders]

    def grown() -> bool:
        assert all(sender.errors == [] for sender in senders), [sender.errors for sender in senders]
        return all(sender.total >= count + more for sender, count in zip(senders, before, strict=True))

    until(grown, what="more rows of each producer")


def finish(senders: Iterable[Sender], readers: Iterable[Following]) -> dict[int, int]:
    """End all; the acknowledged rows of each producer, which every reader has."""
    counts = {}
    for sender in senders:
        sender.finish()
        counts[sender.producer] = sender.sent
    for reader in readers:
        reader.finish(counts)
    return counts


def check_all(address: str, topic: str, counts: dict[int, int], check: OrderCheck | OnceCheck) -> None:
    """The topic, read from its beginning, has exactly these rows."""
    with ringfence.connect(address, timeout_s=TIMEOUT_S) as client, client.read(topic) as reader:
        for batch in reader:
            check.add(reader.place, batch)
    assert check.counts == counts

"""START HERE: the same client for asyncio.

    async with ringfence.aio.connect() as client:
        await client.create_topic("t", schema=schema)
        async with client.producer("t") as producer:          # or: producer = await client.producer("t")
            appended = await producer.send(batch)               # on disk
        async for batch in client.read("t"):
            ...

The I/O thread of the synchronous client does the work; here its futures become awaitable, and what waits
(requests, room in the producer) waits in a worker thread; a reader takes one only to decode what has come. An
`await` that is cancelled goes on there: rows that were sent stay sent. For many sends at once:
`outcome = await producer.submit(batch)` waits for room only, and `parts = await outcome` gives what `send`
would have given. Arguments and errors are those of `ringfence.client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from ringfence import client as sync
from ringfence.aio_scopes import Scopes
from ringfence.arrow.batches import is_stream
from ringfence.cluster.offsets import Position
from ringfence.common.process_local import Local
from ringfence.common.serial_executor import Turns
from ringfence.native.errors import OverloadedError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Generator, Iterable
    from types import TracebackType

    import pyarrow as pa

    from ringfence.arrow.decode import Place
    from ringfence.cluster.offsets import Ends
    from ringfence.common.routing import Layout
    from ringfence.native.messages import ResumePoint, Status, TopicInfo
    from ringfence.producer import Producer as SyncProducer
    from ringfence.reader import Reader as SyncReader
    from ringfence.send.outcomes import Failure
    from ringfence.send.send_future import Appended
    from ringfence.transaction import Transaction as SyncTransaction


class Entered(Protocol):
    """What an `async with` block ends."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Opened = TypeVar("Opened", bound=Entered)


def connect(address: str | None = None, **options: Any) -> Client:
    """As `ringfence.connect`; nothing is sent yet, so there is nothing to await."""
    return Client(sync.connect(address, **options))


class Client(Local):
    """As `ringfence.Client`."""

    def __init__(self, client: sync.Client) -> None:
        self._client = client
        self._turns: WeakValueDictionary[tuple[str | None, ...], Turns] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._client.__exit__, kind, error, trace)

    async def close(self) -> None:
        """Close the producers and the connections."""
        await asyncio.to_thread(self._client.close)

    async def create_topic(self, name: str, *, schema: Any, **options: Any) -> TopicInfo:
        """As `ringfence.Client.create_topic`."""
        return await asyncio.to_thread(self._client.create_topic, name, schema=schema, **options)

    async def topics(self, prefix: str = "") -> list[TopicInfo]:
        """All topics whose full name begins with `prefix`."""
        return await asyncio.to_thread(self._client.topics, prefix)

    async def topic(self, name: str) -> TopicInfo:
        """One topic with its partitions."""
        return await asyncio.to_thread(self._client.topic, name)

    async def truncate(
        self, name: str, *, partition: int | None = None, before_offset: int | None = None
    ) -> None:
        """Give up rows for good."""
        await asyncio.to_thread(self._client.truncate, name, partition=partition, before_offset=before_offset)

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic and its rows."""
        await asyncio.to_thread(self._client.delete_topic, name, missing_ok=missing_ok)

    async def layout(self, topic: str) -> Layout:
        """Partitions, owners and schemas of a topic, as producers use them."""
        return await asyncio.to_thread(self._client.layout, topic)

    async def add_schema(self, name: str, schema: Any) -> int:
        """Append a schema with further nullable columns at its end."""
        return await asyncio.to_thread(self._client.add_schema, name, schema)

    async def status(self) -> Status:
        """What the node is, and how it fares."""
        return await asyncio.to_thread(self._client.status)

    async def count(self, topic: str, *, partition: int | Iterable[int] | None = None) -> int:
        """Rows that can be read now."""
        return await asyncio.to_thread(self._client.count, topic, partition=partition)

    async def end_offsets(
        self, topic: str, *, partition: int | Iterable[int] | None = None
    ) -> dict[int, Ends]:
        """Log start and mark of each partition, by its id."""
        return await asyncio.to_thread(self._client.end_offsets, topic, partition=partition)

    async def offsets_at(self, topic: str, time: dt.datetime) -> dict[int, int]:
        """By partition: the first offset of a batch at or after a time with zone; the mark if none is."""
        return await asyncio.to_thread(self._client.offsets_at, topic, time)

    async def positions_at(self, topic: str, time: dt.datetime) -> list[Position]:
        """As `offsets_at`, to be kept: with the epoch, by which a later `read` knows the log again."""
        return await asyncio.to_thread(self._client.positions_at, topic, time)

    def producer(self, topic: str, **options: Any) -> Opening[Producer]:
        """As `ringfence.Client.producer`: for `await`, or at once for `async with`."""
        make = partial(self._client.producer, topic, **options)
        return Opening(lambda: Producer(make()), self._turns_of("producer", topic, options.get("name")))

    @property
    def scopes(self) -> Scopes:
        """As `ringfence.Client.scopes`: atomic writes in parts."""
        return Scopes(self._client.scopes)

    def transaction(self, topic: str | None = None, *, scope: str, **options: Any) -> Opening[Transaction]:
        """As `ringfence.Client.transaction`: for `await`, or at once for `async with`."""
        make = partial(self._client.transaction, topic, scope=scope, **options)
        return Opening(lambda: Transaction(make()), self._turns_of("scope", scope))

    def _turns_of(self, *name: str | None) -> Turns:
        """Who opens a name fences whoever had it: an opening that was cancelled must not come last."""
        return self._turns.setdefault(name, Turns()) if None not in name else Turns()

    def read(self, topic: str, **options: Any) -> Reader:
        """As `ringfence.Client.read`, for `async for`; the topic is looked up with the first batch."""
        return Reader(self._client, topic, options)


class Opening(Generic[Opened]):
    """A producer or transaction that is opened when it is awaited or entered; once."""

    def __init__(self, make: Callable[[], Opened], turns: Turns) -> None:
        self._make, self._turns = make, turns
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._open().__await__()

    async def __aenter__(self) -> Opened:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    async def _open(self) -> Opened:
        if self._opened is None:
            self._opened = await self._turns.run(self._make)
        return self._opened


class Producer(Local):
    """As `ringfence.Producer`."""

    def __init__(self, producer: SyncProducer) -> None:
        self._producer = producer

    @property
    def resume(self) -> dict[int, ResumePoint]:
        """Partition -> what the predecessor of this name left there."""
        return self._producer.resume

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The sends that were not stored, or may not be."""
        return self._producer.failures

    async def submit(
        self, batch: Any, note: bytes | None = None, *, number: int | None = None
    ) -> asyncio.Future[tuple[Appended, ...]]:
        """Hand rows over, waiting only for room; the result is awaited apart."""
        send = self._producer.try_send
        try:
            if is_stream(batch):  # what a try takes from it would be gone
                future = await asyncio.to_thread(self._producer.send, batch, note, number=number)
            else:
                future = send(batch, note, number=number)
        except OverloadedError:
            if self._producer.raises_when_full or is_stream(batch):
                raise
            future = await asyncio.to_thread(self._producer.send, batch, note, number=number)
        return asyncio.wrap_future(future)

    async def send(
        self, batch: Any, note: bytes | None = None, *, number: int | None = None
    ) -> tuple[Appended, ...]:
        """Append rows; where they are on disk."""
        return await (await self.submit(batch, note, number=number))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every send so far has its outcome."""
        await asyncio.to_thread(self._producer.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end."""
        await asyncio.to_thread(self._producer.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._producer.__exit__, kind, error, trace)


class Transaction(Local):
    """As `ringfence.transaction.Transaction`; for one task.

    An `await` that is cancelled goes on in its thread, and what comes next waits for it.
    """

    def __init__(self, transaction: SyncTransaction) -> None:
        self._transaction = transaction
        self._turns = Turns()

    @property
    def epoch(self) -> int:
        """Its number within the scope."""
        return self._transaction.epoch

    @property
    def already(self) -> bool:
        """True if this epoch was committed before: nothing of this block was stored."""
        return self._transaction.already

    @property
    def rows(self) -> int:
        """Rows that this block has put into the log; 0 until it is committed."""
        return self._transaction.rows

    async def send(self, batch: Any, *, topic: str | None = None) -> None:
        """Stage rows."""
        await self._turns.run(partial(self._transaction.send, batch, topic=topic))

    async def flush(self) -> None:
        """Wait until everything that was sent is on disk; no reader sees it yet."""
        await self._turns.run(self._transaction.flush)

    async def commit(self) -> None:
        """Put all of it into the log."""
        await self._turns.run(self._transaction.commit)

    async def abort(self) -> None:
        """Give up all of it."""
        await self._turns.run(self._transaction.abort)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._turns.run(partial(self._transaction.__exit__, kind, error, trace))


class Reader(Local):
    """As `ringfence.Reader`, for one task at a time.

    No thread waits for rows. An `async for` step that is cancelled takes no batch away: the next one has it.
    """

    def __init__(self, client: sync.Client, topic: str, options: dict[str, Any]) -> None:
        self._client, self._topic, self._options = client, topic, options
        self._reader: SyncReader | None = None
        self._look_alone = threading.Lock()  # a step that was cancelled may still be in its thread
        self._looking = False
        self._kept: deque[tuple[Place, pa.RecordBatch] | None] = deque()  # None: the end; one, as a rule
        self._arrivals: set[Callable[[], object]] = set()  # one a waiting task
        self._place: Place | None = None
        self._begin: dict[int, Position] = {}
        self._behind: dict[int, Position] = {}  # by partition: the row behind what was handed out

    @property
    def place(self) -> Place | None:
        """Where the last batch stands."""
        return self._place

    def positions(self) -> list[Position]:
        """Where to go on; empty before the first batch."""
        found = [] if self._reader is None else self._reader.positions()
        # What nobody has got yet is still to come, though the reader may be past it.
        first = self._begin if self._looking or self._kept else {}
        return [self._behind.get(each.partition) or first.get(each.partition) or each for each in found]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(arrived.set)

        self._arrivals.add(wake)
        try:
            while not self._kept:
                arrived.clear()
                await asyncio.to_thread(self._look)
                if not self._kept:
                    assert self._reader is not None
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._reader.idle_s):
                            await arrived.wait()
        finally:
            self._arrivals.discard(wake)
        if (found := self._kept[0]) is None:
            raise StopAsyncIteration  # it stays: whoever asks next ends, too
        self._kept.popleft()
        self._place, batch = found
        begin, rows, epoch = self._place.first_offset, self._place.rows, self._place.epoch
        self._behind[self._place.partition] = Position(self._place.partition, begin + rows, epoch)
        return batch

    def _look(self) -> None:
        """Keep the next batch if there is one."""
        with self._look_alone:
            if self._kept:
                return
            if self._reader is None:
                reader = self._client.read(self._topic, **self._options)
                reader.on_arrival = self._wake
                self._begin = {each.partition: each for each in reader.positions()}
                self._reader = reader
            self._looking = True
            try:
                batch = self._reader.try_next()
                if batch is not None:
                    assert self._reader.place is not None
                    self._kept.append((self._reader.place, batch))
            except StopIteration:
                self._kept.append(None)
                self._wake()
            finally:
                self._looking = False

    def _wake(self) -> None:
        for wake in tuple(self._arrivals):
            wake()

    async def close(self) -> None:
        """Fetch no more."""
        self._kept.clear()
        self._kept.append(None)
        self._wake()
        if self._reader is not None:
            self._reader.close()

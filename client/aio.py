"""START HERE: the same client for asyncio.

    async with ringfence.aio.connect() as client:
        await client.create_topic("t", schema=schema)
        async with client.producer("t") as producer:          # or: producer = await client.producer("t")
            appended = await producer.send(batch)               # on disk
        async for batch in client.read("t"):
            ...

The I/O thread of the synchronous client does the work, and this module makes its futures awaitable. Calls
that wait (requests, room in the producer) run in a worker thread; a reader uses one only to decode answers. A
cancelled `await` continues there: rows that were sent stay sent. For many concurrent sends: `outcome = await
producer.submit(batch)` waits for room only, and `parts = await outcome` returns the result of `send`.
Arguments and errors are those of `ringfence.client`.
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
from ringfence.aio_admin import ClientAdmin
from ringfence.aio_scopes import Scopes
from ringfence.aio_watch import Watch
from ringfence.arrow.batches import is_stream
from ringfence.cluster.offsets import Position
from ringfence.common.process_local import ProcessLocal
from ringfence.common.serial_executor import SerialExecutor
from ringfence.consumer.aio_consumer import Consumer
from ringfence.native.errors import OverloadedError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Generator, Iterable
    from types import TracebackType

    import pyarrow as pa

    from ringfence.arrow.decode import Place
    from ringfence.cluster.offsets import Ends
    from ringfence.common.cluster_info import ClusterInfo
    from ringfence.common.routing import Layout
    from ringfence.native.messages import ResumePoint, Status
    from ringfence.producer import Producer as SyncProducer
    from ringfence.reader import Reader as SyncReader
    from ringfence.send.outcomes import Failure
    from ringfence.send.resume import ResumeFrom
    from ringfence.send.send_future import Appended
    from ringfence.topic_info import TopicInfo
    from ringfence.transaction import Transaction as SyncTransaction


class Entered(Protocol):
    """An object that an `async with` block closes."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Opened = TypeVar("Opened", bound=Entered)


def connect(address: str | None = None, **options: Any) -> Client:
    """Like `ringfence.connect`. Sends nothing yet, so there is nothing to await."""
    return Client(sync.connect(address, **options))


def shown(of: object) -> str:
    """The representation of an object of this module, from that of the object that it wraps."""
    return repr(of).replace("<ringfence.", "<ringfence.aio.", 1)


class Client(ProcessLocal):
    """Like `ringfence.Client`."""

    def __init__(self, client: sync.Client) -> None:
        self._client = client
        self._executors: WeakValueDictionary[tuple[str | None, ...], SerialExecutor] = WeakValueDictionary()

    def __repr__(self) -> str:
        return shown(self._client)

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
        """Like `ringfence.Client.create_topic`."""
        return await asyncio.to_thread(self._client.create_topic, name, schema=schema, **options)

    async def topics(self, prefix: str = "") -> list[TopicInfo]:
        """All topics whose full name begins with `prefix`."""
        return await asyncio.to_thread(self._client.topics, prefix)

    async def cluster(self) -> ClusterInfo:
        """The nodes with their addresses, and all topics that the client may read."""
        return await asyncio.to_thread(self._client.cluster)

    def watch(self, topic: str | None = None, **options: Any) -> Watch:
        """Events of a topic or of a prefix: `async for event in client.watch("t")`."""
        return Watch(partial(self._client.watch, topic, **options), options.get("timeout_s"))

    async def topic(self, name: str) -> TopicInfo:
        """One topic with its partitions."""
        return await asyncio.to_thread(self._client.topic, name)

    async def truncate(
        self, name: str, *, partition: int | None = None, before_offset: int | None = None
    ) -> None:
        """Delete rows permanently."""
        await asyncio.to_thread(self._client.truncate, name, partition=partition, before_offset=before_offset)

    async def delete_topic(self, name: str, *, missing_ok: bool = False, force: bool = False) -> None:
        """Delete a topic and its rows."""
        await asyncio.to_thread(self._client.delete_topic, name, missing_ok=missing_ok, force=force)

    @property
    def admin(self) -> ClientAdmin:
        """Changes of layouts: split, merge, repartition, settings of automatic changes. Parked rows."""
        return ClientAdmin(self._client.admin)

    async def layout(self, topic: str) -> Layout:
        """Partitions, owners and schemas of a topic, as in the routing table."""
        return await asyncio.to_thread(self._client.layout, topic)

    async def add_schema(self, name: str, schema: Any) -> int:
        """Add a schema with additional nullable columns at its end."""
        return await asyncio.to_thread(self._client.add_schema, name, schema)

    async def status(self) -> Status:
        """Identity and state of the node."""
        return await asyncio.to_thread(self._client.status)

    async def count(self, topic: str, *, partition: int | Iterable[int] | None = None) -> int:
        """Number of rows that can be read now."""
        return await asyncio.to_thread(self._client.count, topic, partition=partition)

    async def end_offsets(
        self, topic: str, *, partition: int | Iterable[int] | None = None
    ) -> dict[int, Ends]:
        """Log start and mark of each partition, by partition id."""
        return await asyncio.to_thread(self._client.end_offsets, topic, partition=partition)

    async def offsets_at(self, topic: str, time: dt.datetime) -> dict[int, int]:
        """By partition: first offset of a batch at or after a time with zone; the mark if there is none."""
        return await asyncio.to_thread(self._client.offsets_at, topic, time)

    async def positions_at(self, topic: str, time: dt.datetime) -> list[Position]:
        """Like `offsets_at`, with the epoch by which a later `read` recognizes the log."""
        return await asyncio.to_thread(self._client.positions_at, topic, time)

    def producer(self, topic: str, **options: Any) -> Opening[Producer]:
        """Like `ringfence.Client.producer`; for `await` or `async with`."""
        make = partial(self._client.producer, topic, **options)
        return Opening(lambda: Producer(make()), self._executor_of("producer", topic, options.get("name")))

    @property
    def scopes(self) -> Scopes:
        """Like `ringfence.Client.scopes`."""
        return Scopes(self._client.scopes)

    def transaction(
        self,
        topic: str | None = None,
        *,
        scope: str | None = None,
        consumed: Consumer | None = None,
        **options: Any,
    ) -> Opening[Transaction]:
        """Like `ringfence.Client.transaction`; for `await` or `async with`."""
        taken = consumed.sync if isinstance(consumed, Consumer) else consumed
        make = partial(self._client.transaction, topic, scope=scope, consumed=taken, **options)
        return Opening(lambda: Transaction(make()), self._executor_of("scope", scope))

    def _executor_of(self, *name: str | None) -> SerialExecutor:
        """Open a name one at a time: an opening fences the last one, so a cancelled one must not be last."""
        return self._executors.setdefault(name, SerialExecutor()) if None not in name else SerialExecutor()

    def consumer(self, topic: str, *, cohort: str, **options: Any) -> Opening[Consumer]:
        """Like `ringfence.Client.consumer`; for `await` or `async with`."""
        make = partial(self._client.consumer, topic, cohort=cohort, **options)
        return Opening(lambda: Consumer(make()), SerialExecutor())

    def read(self, topic: str, **options: Any) -> Reader:
        """Like `ringfence.Client.read`, for `async for`; the first batch looks up the topic."""
        return Reader(self._client, topic, options)


class Opening(Generic[Opened]):
    """A producer or transaction that is opened, once, when it is awaited or entered."""

    def __init__(self, make: Callable[[], Opened], executor: SerialExecutor) -> None:
        self._make, self._executors = make, executor
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
            self._opened = await self._executors.run(self._make)
        return self._opened


class Producer(ProcessLocal):
    """Like `ringfence.Producer`."""

    def __init__(self, producer: SyncProducer) -> None:
        self._producer = producer

    def __repr__(self) -> str:
        return shown(self._producer)

    @property
    def resume(self) -> dict[int, ResumePoint]:
        """Partition -> resume point of the predecessor of this name."""
        return self._producer.resume

    @property
    def resume_points(self) -> tuple[ResumePoint, ...]:
        """All resume points, in the order of slots."""
        return self._producer.resume_points

    @property
    def resume_from(self) -> ResumeFrom | None:
        """The send up to which everything is stored, and its note."""
        return self._producer.resume_from

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The sends that are not stored, or whose outcome is unknown."""
        return self._producer.failures

    async def submit(
        self, batch: Any, note: bytes | None = None, *, number: int | None = None
    ) -> asyncio.Future[tuple[Appended, ...]]:
        """Send rows, waiting only for room; returns a future of the result."""
        send = self._producer.try_send
        try:
            if is_stream(batch):  # a refused try would already have consumed part of it
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
        """Append rows; returns their offsets once they are on disk."""
        return await (await self.submit(batch, note, number=number))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all sends so far have an outcome."""
        await asyncio.to_thread(self._producer.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close."""
        await asyncio.to_thread(self._producer.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._producer.__exit__, kind, error, trace)


class Transaction(ProcessLocal):
    """Like `ringfence.transaction.Transaction`; for one task.

    A cancelled `await` continues in its thread, and the next call waits for it.
    """

    def __init__(self, transaction: SyncTransaction) -> None:
        self._transaction = transaction
        self._executors = SerialExecutor()

    def __repr__(self) -> str:
        return shown(self._transaction)

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
        """Rows that this block has committed; 0 before."""
        return self._transaction.rows

    async def send(self, batch: Any, *, topic: str | None = None) -> None:
        """Stage rows."""
        await self._executors.run(partial(self._transaction.send, batch, topic=topic))

    async def flush(self) -> None:
        """Wait until all rows are on disk; readers do not see them yet."""
        await self._executors.run(self._transaction.flush)

    async def commit(self) -> None:
        """Commit all rows."""
        await self._executors.run(self._transaction.commit)

    async def abort(self) -> None:
        """Discard all rows of the transaction."""
        await self._executors.run(self._transaction.abort)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._executors.run(partial(self._transaction.__exit__, kind, error, trace))


class Reader(ProcessLocal):
    """Like `ringfence.Reader`, for one task at a time.

    No thread waits for rows. A cancelled step of `async for` loses no batch: the next step returns it.
    """

    def __init__(self, client: sync.Client, topic: str, options: dict[str, Any]) -> None:
        self._client, self._topic, self._options = client, topic, options
        self._reader: SyncReader | None = None
        self._look_lock = threading.Lock()  # a cancelled step may still run in its thread
        self._looking = False
        self._ready: deque[tuple[Place, pa.RecordBatch] | None] = deque()  # usually one batch; None: the end
        self._arrivals: set[Callable[[], object]] = set()  # one for each waiting task
        self._place: Place | None = None
        self._next: dict[int, Position] = {}  # by partition: the row after the last returned batch

    def __repr__(self) -> str:
        last = self._place
        at = "" if last is None else f": last batch: partition {last.partition}, offset {last.first_offset}"
        return f"<ringfence.aio.Reader of {self._topic}{at}>"

    @property
    def place(self) -> Place | None:
        """Partition and offsets of the last batch."""
        return self._place

    def positions(self) -> list[Position]:
        """The position after the last returned batch, for each partition; empty before the first batch."""
        if self._reader is None:
            return []
        positions = self._reader.positions()
        # Batches that were fetched but not returned yet do not count, though the reader is past them.
        first = self._reader.begun if self._looking or self._ready else {}
        return [self._next.get(each.partition) or first.get(each.partition) or each for each in positions]

    @property
    def ended(self) -> frozenset[int]:
        """The partitions that were split or merged, and of which this reader has returned the last row."""
        return frozenset() if self._reader is None else self._reader.ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits there any more
                loop.call_soon_threadsafe(arrived.set)

        self._arrivals.add(wake)
        try:
            while not self._ready:
                arrived.clear()
                await asyncio.to_thread(self._look)
                if not self._ready:
                    assert self._reader is not None
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._reader.idle_s):
                            await arrived.wait()
        finally:
            self._arrivals.discard(wake)
        if (item := self._ready[0]) is None:
            raise StopAsyncIteration  # the None stays, so that later steps end, too
        self._ready.popleft()
        self._place, batch = item
        begin, rows, epoch = self._place.first_offset, self._place.rows, self._place.epoch
        self._next[self._place.partition] = Position(self._place.partition, begin + rows, epoch)
        return batch

    def _look(self) -> None:
        """Fetch the next batch, if there is one, and queue it."""
        with self._look_lock:
            if self._ready:
                return
            if self._reader is None:
                reader = self._client.read(self._topic, **self._options)
                reader.on_arrival = self._wake
                self._reader = reader
            self._looking = True
            try:
                batch = self._reader.try_next()
                if batch is not None:
                    assert self._reader.place is not None
                    self._ready.append((self._reader.place, batch))
            except StopIteration:
                self._ready.append(None)
                self._wake()
            finally:
                self._looking = False

    def _wake(self) -> None:
        for wake in tuple(self._arrivals):
            wake()

    async def close(self) -> None:
        """Stop fetching."""
        self._ready.clear()
        self._ready.append(None)
        self._wake()
        if self._reader is not None:
            self._reader.close()

"""The consumer for asyncio: no thread waits for rows."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from ringfence.common.process_local import ProcessLocal
from ringfence.consumer.any_core import Batch
from ringfence.consumer.consumer import LOCATED, check_has_deliveries, delivery_of
from ringfence.native.errors import ClosedError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from types import TracebackType

    import pyarrow as pa

    from ringfence.consumer.consumer import Consumer as SyncConsumer
    from ringfence.consumer.delivery import Delivery
    from ringfence.consumer.values import ConsumerPlace, Task


class Consumer(ProcessLocal):
    """Like `ringfence.Consumer`, for one task at a time. Callbacks may be coroutine functions.

    A cancelled step loses no batch: the next step returns it, and until then neither `ack` nor a transaction
    settles its rows.
    """

    def __init__(self, consumer: SyncConsumer) -> None:
        self._consumer = consumer
        self._core, self._bell = consumer.core, consumer.bell
        self._look_lock = threading.Lock()  # a cancelled step may still run in its thread
        self._ready: deque[Task | Batch] = deque()  # one at most
        self._has_come_back = False  # for the batch that is returned next
        self._place: ConsumerPlace | None = None
        self._delivery: Delivery | None = None

    @property
    def sync(self) -> SyncConsumer:
        """The consumer that this one asks, for a transaction that takes part in it."""
        return self._consumer

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<ringfence.", "<ringfence.aio.", 1)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch | None:
        try:
            return await self.next(self._consumer.idle_s)
        except ClosedError:
            if self._core.is_closed:
                raise StopAsyncIteration from None
            raise

    async def next(self, timeout_s: float | None = None) -> pa.RecordBatch | None:
        """The next batch; None: nothing came in time. The time does not bound callbacks.

        A callback that is cancelled from outside is called again by the next step.
        """
        loop, rung = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits there any more
                loop.call_soon_threadsafe(rung.set)

        deadline = None if timeout_s is None else loop.time() + timeout_s
        self._bell.listeners.add(wake)
        try:
            return await self._next(rung, deadline)
        finally:
            self._bell.listeners.discard(wake)

    async def _next(self, rung: asyncio.Event, deadline: float | None) -> pa.RecordBatch | None:
        while True:
            bound = asyncio.timeout_at(deadline)
            try:
                async with bound:
                    await self._wait(rung)
            except TimeoutError:
                if not bound.expired():
                    raise  # the step's own
                return None
            found = self._ready.popleft()
            if isinstance(found, Batch):
                if not self._core.seen():
                    continue
                self._has_come_back, self._place = False, found.place
                self._delivery = delivery_of(self._core, found)
                return found.rows
            await self._run(found)

    async def _wait(self, rung: asyncio.Event) -> None:
        """Until there is a batch or a task."""
        while not self._ready:
            rung.clear()
            await asyncio.to_thread(self._look)
            if not self._ready:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), 1.0)

    def _look(self) -> None:
        """Take the next step, unless a cancelled one left its result."""
        with self._look_lock:
            if self._ready:
                return
            comes_back, self._has_come_back = not self._has_come_back, True
            found = self._core.step(comes_back=comes_back, is_seen=False)
            if found is not None:
                self._ready.append(found)

    async def _run(self, task: Task) -> None:
        try:
            await self._call(task)
        except asyncio.CancelledError:
            self._core.again(task)
            raise
        except BaseException:
            self._core.done(task)
            raise
        self._core.done(task)

    async def _call(self, task: Task) -> None:
        settings = self._consumer.settings
        if task.kind in LOCATED and settings.positions is not None:
            await asyncio.to_thread(self._core.locate, task, settings)
        callback = settings.callback(task.kind)
        if callback is not None:
            result = callback(list(task.partitions))
            if inspect.isawaitable(result):
                await result

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        return self._consumer.schema

    @property
    def place(self) -> ConsumerPlace | None:
        """Where the last batch is; None before the first."""
        return self._place

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Like `ringfence.Consumer.deliveries`."""
        check_has_deliveries(self._core)
        async for batch in self:
            if batch is not None:
                assert self._delivery is not None, "a batch of a queue is a delivery"
                yield self._delivery

    @property
    def delivery(self) -> Delivery | None:
        """QUEUE: the last batch, with what one can say of it; None before the first."""
        return self._delivery

    @property
    def waits_for(self) -> list[int]:
        """Sealed partitions whose children wait for an acknowledgement."""
        return self._consumer.waits_for

    @property
    def member(self) -> str:
        """The name of this member."""
        return self._consumer.member

    async def ack(
        self, place: ConsumerPlace | None = None, *, wait: bool = False, timeout_s: float = 30.0
    ) -> None:
        """Like `ringfence.Consumer.ack`."""
        if not wait:
            self._core.acknowledge(place)
            return
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Exception | None] = loop.create_future()

        def settled(error: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_set, outcome, error)

        self._core.acknowledge(place, settled)
        try:
            async with asyncio.timeout(timeout_s):
                error = await outcome
        except TimeoutError:
            raise WaitTimeoutError(
                f"the acknowledgement was not confirmed within {timeout_s:g} s; it is repeated until it is",
                topic=self._core.topic,
            ) from None
        if error is not None:
            raise error

    async def ack_through(self, place: ConsumerPlace, rows: int, *, wait: bool = False) -> None:
        """Like `ack`, for the first `rows` rows of a place."""
        await self.ack(self._consumer.cut(place, rows), wait=wait)

    async def report(self, place: ConsumerPlace | None = None, *, wait: bool = False) -> None:
        """Like `ringfence.Consumer.report`."""
        await self.ack(place, wait=wait)

    async def seek(self, to: Any, **options: Any) -> int:
        """Let the whole cohort begin again elsewhere."""
        return await asyncio.to_thread(self._consumer.seek, to, **options)

    async def skip_all(self) -> int:
        """Go on with rows that are published from now on."""
        return await asyncio.to_thread(self._consumer.skip_all)

    def pause(self, partitions: Iterable[int]) -> None:
        """Give no rows of these partitions. They stay with this member."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[int]) -> None:
        """Undo `pause`."""
        self._consumer.resume(partitions)

    def assignment(self) -> list[int]:
        """The partitions of this member."""
        return self._consumer.assignment()

    def lag(self) -> dict[int, int]:
        """By partition that this member holds: rows that are not acknowledged."""
        return self._consumer.lag()

    def fencing_token(self, partition: int) -> int | None:
        """The number of the hold; None: this member does not hold the partition."""
        return self._consumer.fencing_token(partition)

    async def close(self, *, leave: bool = True, timeout_s: float = 10.0) -> None:
        """Release the partitions with what was acknowledged, and leave the cohort."""
        await asyncio.to_thread(self._consumer.close, leave=leave, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._core.interrupted(error)
        await self.close()


def _set(outcome: asyncio.Future[Exception | None], error: Exception | None) -> None:
    """Set the outcome, unless its task does not wait any more."""
    if not outcome.done():
        outcome.set_result(error)

"""START HERE: the consumer that `client.consumer(topic, cohort=...)` gives.

with client.consumer("trips", cohort="etl") as consumer:
    for batch in consumer:              # pyarrow.RecordBatch, in order for each key
        write(batch)                    # asking for the next batch acknowledges this one
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from ringfence.common.arguments import seconds, whole
from ringfence.common.codec import control_body
from ringfence.common.process_local import ProcessLocal
from ringfence.consumer.any_core import Batch
from ringfence.consumer.delivery import Delivery
from ringfence.consumer.queue_core import QueueCore
from ringfence.consumer.settings import seek_request
from ringfence.consumer.values import ConsumerPlace, TaskKind
from ringfence.native import cohort_messages, wire
from ringfence.native.errors import ClosedError, InvalidArgumentError, WaitTimeoutError
from ringfence.network.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    import pyarrow as pa

    from ringfence.cluster.offsets import Position
    from ringfence.consumer.any_core import AnyCore
    from ringfence.consumer.bell import Bell
    from ringfence.consumer.dead_letter_thread import DeadLetterThread
    from ringfence.consumer.settings import Settings
    from ringfence.consumer.values import Task

PositionsAt = Callable[[str, dt.datetime], "list[Position]"]
CLOSE_S = 10.0
ACK_S = 30.0
LOCATED = frozenset({TaskKind.ASSIGNED, TaskKind.POSITION})
SEEK_S = 60.0
CHUNK_ROWS = 100_000
CHUNK_BYTES = 64 << 20


class Consumer(ProcessLocal):
    """Iterates record batches of the partitions that this member of a cohort holds. For one thread at a time.

    Callbacks run on the thread that iterates, when it asks for the next batch.

    Attributes:
        schema: of every batch.
    """

    def __init__(
        self,
        core: AnyCore,
        settings: Settings,
        bell: Bell,
        positions_at: PositionsAt,
        letters: DeadLetterThread | None = None,
    ) -> None:
        """`positions_at`: of the client that created it; this reference keeps the client alive."""
        self._positions_at, self.settings, self._letters = positions_at, settings, letters
        self.core, self.bell = core, bell
        self._delivery: Delivery | None = None
        self.schema: pa.Schema = core.schema

    def __repr__(self) -> str:
        core = self.core
        state = "closed" if core.is_closed else f"{len(core.assignment())} partitions"
        return f"<ringfence.Consumer of {core.topic}, cohort {core.identity.cohort}, {state}>"

    # ---- iteration ---------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch | None:
        """The next batch; None if nothing came for `idle_s`. Ends when the consumer is closed.

        Raises:
            FencedError: a newer process has this member's name.
            TruncatedError: rows were removed before the cohort had read them.
            MemberExistsError: another process has this member's name.
        """
        try:
            return self.next(self.idle_s)
        except ClosedError:
            if self.core.is_closed:
                raise StopIteration from None
            raise

    def next(self, timeout_s: float | None = None) -> pa.RecordBatch | None:
        """The next batch; None: nothing came in time.

        Asking acknowledges the batches before with `ack="auto"`, and reports them in "checkpoint".

        Args:
            timeout_s: seconds; None waits without end.
        """
        return self._next(timeout_s, comes_back=True)

    def _next(
        self, timeout_s: float | None, *, comes_back: bool, is_seen: bool = True
    ) -> pa.RecordBatch | None:
        """`comes_back`: the application is done with the batches before. `is_seen`: see `AnyCore.step`."""
        deadline = None if timeout_s is None else time.monotonic() + seconds("timeout_s", timeout_s)
        while True:
            self.bell.flag.clear()
            found = self.core.step(comes_back=comes_back, is_seen=is_seen)
            comes_back = False
            if isinstance(found, Batch):
                self._delivery = delivery_of(self.core, found)
                return found.rows
            if found is not None:
                self._run(found)
                continue
            left_s = 1.0 if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return None
            self.core.io_thread.check_outside("next")
            self.bell.flag.wait(min(left_s, 1.0))

    def deliveries(self) -> Iterator[Delivery]:
        """QUEUE: batches with what one can say of them. Waits for rows; ends when the consumer is closed.

        Raises:
            InvalidArgumentError: the mode is another one.
        """
        check_has_deliveries(self.core)
        for batch in self:
            if batch is not None:
                assert self._delivery is not None, "a batch of a queue is a delivery"
                yield self._delivery

    @property
    def delivery(self) -> Delivery | None:
        """QUEUE: the last batch, with what one can say of it; None before the first."""
        return self._delivery

    def chunks(
        self, rows: int = CHUNK_ROWS, *, bytes_max: int = CHUNK_BYTES, wait_s: float = 1.0
    ) -> Iterator[list[pa.RecordBatch]]:
        """Lists of batches, each for one transaction. Ends when the consumer is closed.

        A list ends at the first of the three bounds, so the last rows of a partition never wait for a full
        one. With `idle_s=` of the consumer an empty list says that nothing came for so long; without it the
        iteration waits. An error after the first batch of a list is raised when the next list is asked for.

        Args:
            rows: a list ends with the batch that reaches so many.
            bytes_max: the same, of the batches in memory.
            wait_s: it ends so long after its first batch.
        """
        rows, bytes_max = whole("rows", rows, 1), whole("bytes_max", bytes_max, 1)
        wait_s = seconds("wait_s", wait_s)
        while True:
            chunk = Chunk(rows, bytes_max)
            error: Exception | None = None
            try:
                # The default of `idle_s` is for loops that gather rows; these would commit empty lists.
                batch = self._next(self.settings.idle_s, comes_back=True, is_seen=False)
                deadline = time.monotonic() + wait_s
                while batch is not None:
                    chunk.add(batch)
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or chunk.is_full:
                        break
                    # The application has not got the batches of this list: asking for more acknowledges none.
                    batch = self._next(left_s, comes_back=False, is_seen=False)
            except Exception as caught:  # noqa: BLE001  # it is raised below
                error = caught
            except BaseException:  # an interrupt
                self.core.take_back()
                raise
            self.core.seen()
            # The batches were given: the next acknowledgement settles them.
            if chunk.batches or error is None:
                yield chunk.batches
            if isinstance(error, ClosedError) and self.core.is_closed:
                return
            if error is not None:
                raise error

    def _run(self, task: Task) -> None:
        """Call the application, and tell the member that it came back."""
        settings = self.settings
        if task.kind in LOCATED and settings.positions is not None:
            try:
                self.core.locate(task, settings)
            except BaseException:  # an interrupt, too: else the partitions wait for it for ever
                self.core.again(task)
                raise
        callback = settings.callback(task.kind)
        try:
            if callback is not None:
                callback(list(task.partitions))
        finally:
            self.core.done(task)

    @property
    def idle_s(self) -> float | None:
        """Iteration gives None after so long without a batch; None: it waits."""
        return self.settings.idle

    @property
    def place(self) -> ConsumerPlace | None:
        """Where the last batch is; None before the first."""
        return self.core.place

    # ---- acknowledgements --------------------------------------------------------------------------------

    def ack(
        self, place: ConsumerPlace | None = None, *, wait: bool = False, timeout_s: float = ACK_S
    ) -> None:
        """The rows of a place and all before it in its partition are done; without one, all that was given.

        In "queue" the rows of the place are done, and no others.

        Acknowledgements are combined and sent in the background, at most one each `ack_interval_s`.

        Args:
            place: of a batch, as `consumer.place` named it.
            wait: wait until the owners have it: then no other member gets these rows.
            timeout_s: of waiting.

        Raises:
            InvalidArgumentError: the place is behind what was given.
            LostRowsError: with `wait`: some of the rows went to another member before; the others are done.
            WaitTimeoutError: with `wait`: the owner did not answer in time. It may have it.
        """
        if not wait:
            self.core.acknowledge(place)
            return
        self.core.io_thread.check_outside("ack(wait=True)")
        waiting = Waiting()
        self.core.acknowledge(place, waiting)
        waiting.wait(seconds("timeout_s", timeout_s), self.core.topic)

    def ack_through(
        self, place: ConsumerPlace, rows: int, *, wait: bool = False, timeout_s: float = ACK_S
    ) -> None:
        """Like `ack`, for the first `rows` rows of a place."""
        self.ack(self.cut(place, rows), wait=wait, timeout_s=timeout_s)

    @staticmethod
    def cut(place: ConsumerPlace, rows: int) -> ConsumerPlace:
        """The first rows of a place."""
        return place._replace(end_offset=place.first_offset + whole("rows", rows, 0, place.rows))

    def report(self, place: ConsumerPlace | None = None, *, wait: bool = False) -> None:
        """CHECKPOINT: tell how far the application's store is, for lag and for children of splits."""
        self.ack(place, wait=wait)

    # ---- control -----------------------------------------------------------------------------------------

    def seek(
        self,
        to: Any,
        *,
        rest: str | None = None,
        forget_parked: bool = False,
        wait: bool = True,
        timeout_s: float = SEEK_S,
    ) -> int:
        """Let the whole cohort begin again elsewhere. Returns the number of the new beginning.

        Args:
            to: "earliest", "latest", a datetime with time zone, {partition: offset}, or tokens of places.
            rest: where partitions begin that positions do not tell: "earliest" or "latest".
            forget_parked: give parked ranges up.
            wait: until all partitions have begun.
            timeout_s: of waiting.

        Rows that were given before and not acknowledged cannot be acknowledged any more.
        """
        self.core.check()
        if isinstance(to, dt.datetime):
            # Rows that come later are newer than every time that was resolved.
            to, rest = self._positions_at(self.core.topic, to), rest or "latest"
        body = seek_request(
            self.core.topic, self.core.identity.cohort, to, rest=rest, forget_parked=forget_parked, wait=wait
        )
        deadline = time.monotonic() + seconds("timeout_s", timeout_s)
        request = Request(wire.Opcode.COHORT_SEEK, control_body(body), deadline, topic=self.core.topic)
        answer = self.core.io_thread.request(request).result()
        return answer.control(cohort_messages.CohortSought).incarnation

    def skip_all(self) -> int:
        """Go on with rows that are published from now on: a seek to "latest"."""
        return self.seek("latest")

    def pause(self, partitions: Iterable[int]) -> None:
        """Give no rows of these partitions. They stay with this member."""
        self.core.pause(partitions, is_paused=True)

    def resume(self, partitions: Iterable[int]) -> None:
        """Undo `pause`."""
        self.core.pause(partitions, is_paused=False)

    def assignment(self) -> list[int]:
        """The partitions that the plan gives to this member, and those that it has not released yet."""
        return self.core.assignment()

    def lag(self) -> dict[int, int]:
        """By partition that this member holds: rows that are not acknowledged."""
        return self.core.lag()

    def fencing_token(self, partition: int) -> int | None:
        """The number of the hold; None: this member does not hold the partition."""
        return self.core.fencing_token(partition)

    @property
    def waits_for(self) -> list[int]:
        """Sealed partitions of which all rows were given; their children wait for the acknowledgement."""
        return self.core.waits_for()

    @property
    def member(self) -> str:
        """The name of this member."""
        return self.core.identity.member

    # ---- the end -----------------------------------------------------------------------------------------

    def close(self, *, leave: bool = True, timeout_s: float = CLOSE_S) -> None:
        """Release the partitions with what was acknowledged, and leave the cohort. From any thread.

        Args:
            leave: False for a restart under the same name: its partitions wait for it.
            timeout_s: after it the cluster notices by itself that the member is gone.
        """
        self.core.close(leave=leave, timeout_s=seconds("timeout_s", timeout_s))
        self.bell.ring()
        if self._letters is not None:
            self._letters.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.core.interrupted(error)
        self.close()


def delivery_of(core: AnyCore, given: Batch) -> Delivery | None:
    """A batch as a delivery; None if the mode has none."""
    return Delivery(core, given) if isinstance(core, QueueCore) else None


def check_has_deliveries(core: AnyCore) -> None:
    """InvalidArgumentError unless the mode is QUEUE."""
    if not isinstance(core, QueueCore):
        raise InvalidArgumentError(
            'deliveries are for mode="queue"; iterate the consumer itself', mode=core.identity.mode
        )


class Chunk:
    """Batches of one list. Each is measured once: a list may have thousands of small ones."""

    def __init__(self, rows: int, bytes_max: int) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._rows_left, self._bytes_left = rows, bytes_max

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self._rows_left -= batch.num_rows
        self._bytes_left -= batch.nbytes

    @property
    def is_full(self) -> bool:
        return self._rows_left <= 0 or self._bytes_left <= 0


class Waiting:
    """Waits for the outcome of an acknowledgement."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: Exception | None = None

    def __call__(self, error: Exception | None) -> None:
        self._error = error
        self._ended.set()

    def wait(self, timeout_s: float, topic: str) -> None:
        """Raises the error of the outcome, or WaitTimeoutError."""
        if not self._ended.wait(timeout_s):
            raise WaitTimeoutError(
                f"the acknowledgement was not confirmed within {timeout_s:g} s; it is repeated until it is",
                topic=topic,
            )
        if self._error is not None:
            raise self._error

"""START HERE: the reader that `client.read(topic)` gives. It iterates prefetched batches, partitions in turn.

Partitions that were split or merged come before their children: `Lineage` says which ones may be fetched.

    for batch in reader:                 # pyarrow.RecordBatch, columns are views into the received frames
        reader.place                     # partition and offsets of this batch
    reader.positions()                   # the next rows: client.read(topic, start=positions)

One FETCH for each partition is pending while the batches of the previous answer are returned. So at most two
answers of `fetch_bytes` are in memory for each of `_fetches_max` partitions: `prefetch_bytes` in total (one
record may be larger). For staged rows an answer has only a list of records, which are fetched as the rows are
returned: two more answers for a partition, or three if scopes staged in parallel.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

from ringfence.answer_batches import AnswerBatches
from ringfence.cluster.cursor import Cursors, ended_early_error, truncated_error
from ringfence.cluster.offsets import REDIRECT_S_MAX, TRY_S, Position, has_ended, redirect_delay_s
from ringfence.cluster.read_plan import lost_error
from ringfence.common.fork import guard
from ringfence.common.lineage import view_of
from ringfence.common.process_local import ProcessLocal
from ringfence.native import wire
from ringfence.native.errors import (
    ClosedError,
    NotFoundError,
    RerouteError,
    RetriableError,
    RingfenceError,
    TruncatedError,
)
from ringfence.network.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import pyarrow as pa

    from ringfence.arrow.decode import Decoder, Place
    from ringfence.cluster.cursor import Applied, Cursor
    from ringfence.cluster.read_plan import Plan
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.lineage import Effect
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread

PREFETCH_BYTES = 67_108_864  # 64 MiB: eight partitions with two answers of 4 MiB
FETCH_BYTES = 4_194_304  # of one answer: the round trip is then short compared with the transfer
POLL_S = 5.0  # one long poll
VERSION_S = 1.0  # one request for a table of a newer version
POLL_SHORT_S = 0.05  # one long poll if there are more partitions than concurrent fetches


class Reader(ProcessLocal):
    """Iterates record batches; created by `Client.read`. For one thread at a time.

    Attributes:
        schema: of every batch.
        place: partition and offsets of the last batch; None before the first.
        on_arrival: called, on any thread, when an answer arrived or the reader was closed.
    """

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        plan: Plan,
        decoder: Decoder,
        *,
        follow: bool,
        batch_rows: int | None,
        prefetch_bytes: int,
        timeout_s: float,
        on_truncated: str = "raise",
        client: object = None,
    ) -> None:
        """`client`: the owner of the connections; kept alive by this reference."""
        self._client = client
        self.schema = decoder.schema
        self.place: Place | None = None
        self.on_arrival: Callable[[], None] = lambda: None
        self._io_thread, self._tables, self._layout = io_thread, tables, plan.layout
        self._timeout_s, self._prefetch_bytes = timeout_s, prefetch_bytes
        self._follow, self._skips = follow, on_truncated == "skip"
        self._cursors = Cursors(plan, skips=self._skips)
        self._lineage = plan.lineage
        self._answers = AnswerBatches(
            io_thread,
            tables,
            plan.layout,
            decoder,
            batch_rows=batch_rows,
            fetch_bytes=FETCH_BYTES,
            timeout_s=timeout_s,
        )
        self._to_fetch: deque[Cursor] = deque()
        self._paused: list[Cursor] = []  # redirected: fetched again at `resume_s`
        self._fetches = 0
        self._arrived: queue.SimpleQueue[tuple[Cursor, Future[Answer]] | None] = queue.SimpleQueue()
        # Answers that follow batches of the same partition.
        self._waiting: deque[tuple[Cursor, Answer]] = deque()
        self._returning: deque[Cursor] = deque()
        self._closed = self._at_end = False
        self._iterating = threading.Lock()  # protects the queues
        self._owner = guard("reader")
        self._unfollow = tables.follow(plan.layout, self._arrive) if follow else None
        self._resize()
        self._carry_out(self._cursors.begin())

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ", at its end" if self._at_end else ""
        place, count = self.place, len(self._cursors.by_partition)
        last = (
            "" if place is None else f", last batch: partition {place.partition}, offset {place.first_offset}"
        )
        return f"<ringfence.Reader of {self._layout.name}: {count} partitions{last}{state}>"

    # ---- iteration ----------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        if self._closed:
            raise ClosedError(
                "the reader is closed; start a new read at its positions()", topic=self._layout.name
            )
        return self

    def __next__(self) -> pa.RecordBatch:
        """The next batch of the next partition in turn.

        Raises:
            TruncatedError: retention removed rows before they were read, or rows were lost because an owner
                was chosen by force; the error names them.
            ConnectError: no node answered within the reader's `timeout_s`.
            RerouteError: a partition had no owner for that time.

        After an error the next call continues with the row after the last one that was returned.
        """
        self._owner.check()
        with self._iterating:
            while (batch := self._step(wait=True)) is None:
                pass
            return batch

    def try_next(self) -> pa.RecordBatch | None:
        """Like `next`, but None instead of waiting: call it again after `on_arrival` or `idle_s`."""
        self._owner.check()
        with self._iterating:
            return self._step(wait=False)

    @property
    def idle_s(self) -> float | None:
        """Seconds until `try_next` fetches a redirected partition again; None: wait for an answer."""
        paused = list(self._paused)
        if not paused:
            return None
        return max(0.0, min(cursor.resume_s for cursor in paused) - time.monotonic())

    def _step(self, *, wait: bool) -> pa.RecordBatch | None:
        while not self._closed:
            while self._returning:
                cursor = self._returning.popleft()
                assert cursor.batches is not None
                try:
                    item = next(cursor.batches, None)
                except BaseException:
                    self._rewind(cursor)
                    raise
                if item is None:
                    cursor.batches = None
                    if not self._take_waiting(cursor):
                        self._drained(cursor)
                    continue
                self._returning.append(cursor)
                self.place, batch = item
                cursor.offset, cursor.epoch = self.place.first_offset + self.place.rows, self.place.epoch
                return batch
            self._fetch()
            if not self._fetches and not self._paused:
                if self._to_fetch:  # `_fetch` has admitted further partitions
                    continue
                break
            try:
                arrived = self._arrived.get(wait, self.idle_s)
            except queue.Empty:
                if wait:
                    continue
                return None
            if arrived is not None:  # else: closed, or a newer table
                self._take(*arrived)
        self._at_end = not self._closed
        self._forget()
        raise StopIteration

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All further rows as an Arrow C stream, for polars, DuckDB, pandas and pyarrow.

        The consumer pulls batch by batch. An error ends its stream, with the text of the error.

        Raises:
            ClosedError: the reader is at its end, so another query would find no rows.
        """
        if self._at_end:
            raise ClosedError(
                "the reader is at its end, and returns each row once: read the topic again for another "
                "query, or keep the rows in a table (`pyarrow.table(reader)`)",
                topic=self._layout.name,
            )
        import pyarrow as pa  # noqa: PLC0415 - the module imports it for types only

        return pa.RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)

    def _take_waiting(self, cursor: Cursor) -> bool:
        """Use an answer that arrived while the batches of the previous one were returned, if any."""
        for index, (other, answer) in enumerate(self._waiting):
            if other is cursor:
                del self._waiting[index]
                self._return_batches(cursor, answer)
                return True
        return False

    def _rewind(self, cursor: Cursor) -> None:
        """Fetch again what could not be returned because of an error, so that no row is skipped."""
        cursor.batches = None
        cursor.fetched, cursor.fetched_epoch = cursor.offset, cursor.epoch
        self._waiting = deque(pair for pair in self._waiting if pair[0] is not cursor)
        if not cursor.pending and cursor not in self._to_fetch:
            self._to_fetch.append(cursor)

    def positions(self) -> list[Position]:
        """The position after the last returned batch, for each partition; an argument for `start=`.

        Partitions that were split or merged are left out once all of their rows were returned; a reader of
        named partitions lists all of these.
        """
        cursors = self._cursors.by_partition.values()
        return [Position(cursor.partition, cursor.offset, cursor.epoch) for cursor in cursors]

    @property
    def ended(self) -> frozenset[int]:
        """The partitions that were split or merged, and of which this reader has returned the last row."""
        return frozenset(self._cursors.ended)

    @property
    def begun(self) -> dict[int, Position]:
        """By partition that `positions` lists: where this reader began."""
        return {partition: cursor.begin for partition, cursor in self._cursors.by_partition.items()}

    def close(self) -> None:
        """Stop fetching; from any thread. Answers that are pending are dropped.

        A loop in another thread ends after its current batch; a new loop raises ClosedError.
        """
        self._closed = True
        if self._unfollow is not None:
            self._unfollow()
        self._arrive()
        if self._iterating.acquire(blocking=False):  # else the loop in the other thread does it
            try:
                self._forget()
            finally:
                self._iterating.release()

    def _forget(self) -> None:
        self._to_fetch.clear()
        self._paused.clear()
        self._returning.clear()
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- lineage ------------------------------------------------------------------------------------------

    def _apply(self, effects: list[Effect]) -> None:
        if effects:
            self._carry_out(self._cursors.apply(effects))

    def _carry_out(self, applied: Applied) -> None:
        self._to_fetch.extend(cursor for cursor in applied.admitted if cursor.wants_more)
        for cursor in applied.finished:
            self._paused = [one for one in self._paused if one is not cursor]
            if cursor in self._to_fetch:
                self._to_fetch.remove(cursor)
        self._resize()
        for cursor, lost in applied.lost:
            self._fail(cursor, lost_error(self._layout.name, lost))
        for cursor in applied.unknown:
            message = "the partition was split or merged, and no node has told what replaced it"
            reason, partition = wire.RedirectReason.SEALED, cursor.partition
            name = self._layout.name
            self._redirected(cursor, RerouteError(message, reason=reason, topic=name, partition=partition))

    def _drained(self, cursor: Cursor) -> None:
        """All fetched rows of a partition were returned."""
        if cursor.is_at_last and cursor.is_admitted:
            self._apply(self._lineage.ended(cursor.partition))

    def _hold(self, layout: Layout) -> None:
        """Use a table, if it is newer than the held one."""
        if layout.history == self._layout.history and layout.generation <= self._layout.generation:
            return
        self._layout = self._answers.layout = layout
        self._apply(self._lineage.table(view_of(layout)))

    def _fail(self, cursor: Cursor, error: RingfenceError) -> None:
        """Let an error arrive like the answer to a request, so that other partitions are served meanwhile."""
        failed: Future[Answer] = Future()
        failed.set_exception(error)
        self._fetches += 1
        cursor.requested, cursor.pending = cursor.fetched, True
        self._arrive((cursor, failed))

    def _resize(self) -> None:
        """Share the memory among the partitions that are fetched."""
        count = len(self._lineage.admitted)
        self._fetches_max = max(1, min(count, self._prefetch_bytes // (2 * FETCH_BYTES), 512))
        self._fetch_bytes = self._answers.fetch_bytes = max(
            65_536, min(wire.FETCH_BYTES_MAX, FETCH_BYTES, self._prefetch_bytes // (2 * self._fetches_max))
        )
        is_shared = count > self._fetches_max
        self._poll_s = (POLL_SHORT_S if is_shared else POLL_S) if self._follow else 0.0

    # ---- fetching -----------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Start as many fetches as allowed. A partition with two answers in memory fetches no further."""
        newer = self._tables.newer(self._layout)
        if newer is not None:
            self._hold(newer)
        if self.idle_s == 0.0:
            now = time.monotonic()
            self._to_fetch.extend(cursor for cursor in self._paused if cursor.resume_s <= now)
            self._paused = [cursor for cursor in self._paused if cursor.resume_s > now]
        for _ in range(len(self._to_fetch)):
            if self._fetches >= self._fetches_max:
                return
            self._request(self._to_fetch.popleft())

    def _request(self, cursor: Cursor) -> None:
        if cursor.is_at_last:
            self._drained(cursor)
            return
        if cursor.partition not in self._layout.partitions:
            if cursor.batches is None:  # else these rows come first
                self._apply(self._lineage.missing(cursor.partition, cursor.offset))
            else:
                self._pause(cursor, REDIRECT_S_MAX)
            return
        fields = {
            "topic": self._layout.topic,
            "partition": cursor.partition,
            "sequence": cursor.fetched,
            "send": self._fetch_bytes,
            "owner_epoch": cursor.fetched_epoch,
            "layout_version": self._layout.version,
        }
        deadline = time.monotonic() + min(self._timeout_s, self._poll_s + TRY_S)
        request = Request(
            wire.Opcode.FETCH,
            b"",
            deadline,
            topic=self._layout.name,
            wait_s=self._poll_s,
            fields=fields,
            held=self._layout.generation,
        )
        request.future.add_done_callback(lambda future: self._arrive((cursor, future)))
        self._fetches += 1
        cursor.requested, cursor.pending = cursor.fetched, True
        cursor.generation = self._layout.generation
        try:
            self._io_thread.request_owner(request, self._layout, cursor.partition)
        except RingfenceError:
            self._fetches -= 1
            cursor.pending = False
            self._to_fetch.append(cursor)
            raise

    def _arrive(self, what: tuple[Cursor, Future[Answer]] | None = None) -> None:
        """Wake the reader for an answer; for a newer table or the end without one."""
        self._arrived.put(what)
        self.on_arrival()

    def _take(self, cursor: Cursor, future: Future[Answer]) -> None:
        self._fetches -= 1
        cursor.pending = False
        if cursor.requested != cursor.fetched:  # rewound meanwhile
            self._to_fetch.append(cursor)
            return
        try:
            answer = future.result()
        except TruncatedError as error:
            self._truncated(cursor, error)
            return
        except (RerouteError, RetriableError) as error:
            self._redirected(cursor, error)
            return
        except NotFoundError as error:
            if error.code != wire.Code.UNKNOWN_PARTITION:
                self._to_fetch.append(cursor)
                raise
            self._redirected(cursor, error)  # it was pruned if the table does not have it either
            return
        except Exception:  # the next call retries: an error never ends a partition
            self._to_fetch.append(cursor)
            raise
        if not answer.header.rows and cursor.end is not None and answer.header.end_offset < cursor.end:
            early = ended_early_error(self._layout.name, cursor, answer.header.end_offset)
            self._redirected(cursor, early)
            return
        cursor.redirects = 0
        cursor.version = answer.header.layout_version
        if answer.header.rows:
            cursor.first = False
            cursor.fetched = answer.header.first_offset + answer.header.rows
            cursor.fetched_epoch = answer.header.owner_epoch
        if has_ended(answer.header):
            cursor.last = cursor.fetched
        if cursor.batches is None:
            self._return_batches(cursor, answer)
        else:
            self._waiting.append((cursor, answer))

    def _redirected(self, cursor: Cursor, error: RingfenceError) -> None:
        """Fetch from the owner in a newer table; other partitions continue meanwhile."""
        now = time.monotonic()
        if not cursor.redirects:
            cursor.redirected_s = now
        elif now - cursor.redirected_s > self._timeout_s:
            cursor.redirects = 0
            self._to_fetch.append(cursor)
            raise error
        cursor.redirects += 1
        self._pause(cursor, redirect_delay_s(cursor.redirects, error))
        if cursor.generation < self._layout.generation:
            return  # it was routed by an older table
        self._refresh(cursor.version if cursor.version > self._layout.version else 0)

    def _refresh(self, version: int) -> None:
        """Fetch a table. A node that has not this version yet may wait for it, but not for long."""
        seconds = min(VERSION_S, self._timeout_s) if version else self._timeout_s
        deadline, layout = time.monotonic() + seconds, self._layout
        try:
            self._hold(self._tables.get_by_id(layout.topic, deadline, layout.name, version))
        except (RetriableError, RerouteError):
            if not version:
                raise  # else the partition is paused, and others are served meanwhile

    def _pause(self, cursor: Cursor, seconds: float) -> None:
        cursor.resume_s = time.monotonic() + seconds
        self._paused.append(cursor)

    def _return_batches(self, cursor: Cursor, answer: Answer) -> None:
        if answer.body:
            cursor.batches = self._answers.of(cursor, answer)
            self._returning.append(cursor)
        if cursor.wants_more:
            self._to_fetch.append(cursor)
            self._fetch()
        elif cursor.batches is None:
            self._drained(cursor)

    def _truncated(self, cursor: Cursor, error: TruncatedError) -> None:
        if error.details.get("pruned"):
            self._to_fetch.append(cursor)
            raise error
        start = int(error.details.get("start_offset", 0))
        part = self._lineage.view.parts.get(cursor.partition)
        if start > cursor.fetched and (cursor.first or self._skips):
            # Retention moved the log start before the first row was read, or the caller skips lost rows.
            cursor.skip_to(start)
            if cursor.wants_more:
                self._to_fetch.append(cursor)
            else:
                self._drained(cursor)
            return
        if start <= cursor.fetched and self._skips and part is not None and part.is_sealed:
            # An operator accepted that its last rows are lost; a sealed partition never gets others.
            self._apply(self._lineage.skip(cursor.partition))
            return
        self._to_fetch.append(cursor)
        raise truncated_error(self._layout.name, cursor, error) from error

"""START HERE: the reader that `client.read(topic)` gives. It iterates prefetched batches, partitions in turn.

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
from itertools import islice
from typing import TYPE_CHECKING, Self

from ringfence.arrow.decode import Decoder, Place
from ringfence.cluster.cursor import Cursor
from ringfence.cluster.offsets import TRY_S, Position, Span, redirect_delay_s
from ringfence.common.fork import guard
from ringfence.common.process_local import ProcessLocal
from ringfence.native import wire
from ringfence.native.errors import (
    ClosedError,
    ProtocolError,
    RecordError,
    RerouteError,
    RetriableError,
    RingfenceError,
    TruncatedError,
)
from ringfence.network.request import Request
from ringfence.staged_reader import StagedFetch, places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread
    from ringfence.staged_reader import StagedPlace

    Staged = Iterator[tuple[StagedPlace, wire.RecordHeader, memoryview]]

PREFETCH_BYTES = 67_108_864  # 64 MiB: eight partitions with two answers of 4 MiB
FETCH_BYTES = 4_194_304  # of one answer: the round trip is then short compared with the transfer
PLACES_AHEAD = 16_384  # places of staged records in memory: a few megabytes
POLL_S = 5.0  # one long poll
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
        layout: Layout,
        spans: list[Span],
        decoder: Decoder,
        *,
        follow: bool,
        batch_rows: int | None,
        prefetch_bytes: int,
        timeout_s: float,
        client: object = None,
    ) -> None:
        """`client`: the owner of the connections; kept alive by this reference."""
        self._client = client
        self.schema = decoder.schema
        self.place: Place | None = None
        self.on_arrival: Callable[[], None] = lambda: None
        self._io_thread, self._tables, self._layout, self._decoder = io_thread, tables, layout, decoder
        self._batch_rows, self._timeout_s = batch_rows, timeout_s
        self._cursors = {span.partition: Cursor(span) for span in spans}
        self._fetches_max = max(1, min(len(spans), prefetch_bytes // (2 * FETCH_BYTES), 512))
        self._fetch_bytes = max(
            65_536, min(wire.FETCH_BYTES_MAX, FETCH_BYTES, prefetch_bytes // (2 * self._fetches_max))
        )
        self._poll_s = (POLL_S if len(spans) <= self._fetches_max else POLL_SHORT_S) if follow else 0.0
        self._to_fetch = deque(cursor for cursor in self._cursors.values() if cursor.wants_more)
        self._paused: list[Cursor] = []  # redirected: fetched again at `resume_s`
        self._fetches = 0
        self._arrived: queue.SimpleQueue[tuple[Cursor, Future[Answer]] | None] = queue.SimpleQueue()
        # Answers that follow batches of the same partition.
        self._waiting: deque[tuple[Cursor, Answer]] = deque()
        self._returning: deque[Cursor] = deque()
        self._closed = self._at_end = False
        self._iterating = threading.Lock()  # protects the queues
        self._owner = guard("reader")

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ", at its end" if self._at_end else ""
        place = self.place
        last = (
            "" if place is None else f", last batch: partition {place.partition}, offset {place.first_offset}"
        )
        return f"<ringfence.Reader of {self._layout.name}: {len(self._cursors)} partitions{last}{state}>"

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
                    self._take_waiting(cursor)
                    continue
                self._returning.append(cursor)
                self.place, batch = item
                cursor.offset, cursor.epoch = self.place.first_offset + self.place.rows, self.place.epoch
                return batch
            self._fetch()
            if not self._fetches and not self._paused:
                break
            try:
                arrived = self._arrived.get(wait, self.idle_s)
            except queue.Empty:
                if wait:
                    continue
                return None
            if arrived is not None:  # else: closed
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

    def _take_waiting(self, cursor: Cursor) -> None:
        """Use the answer that arrived while the batches of the previous one were returned."""
        for index, (other, answer) in enumerate(self._waiting):
            if other is cursor:
                del self._waiting[index]
                self._return_batches(cursor, answer)
                break

    def _rewind(self, cursor: Cursor) -> None:
        """Fetch again what could not be returned because of an error, so that no row is skipped."""
        cursor.batches = None
        cursor.fetched, cursor.fetched_epoch = cursor.offset, cursor.epoch
        self._waiting = deque(pair for pair in self._waiting if pair[0] is not cursor)
        if not cursor.pending and cursor not in self._to_fetch:
            self._to_fetch.append(cursor)

    def positions(self) -> list[Position]:
        """The position after the last returned batch, for each partition; an argument for `start=`."""
        return [Position(cursor.partition, cursor.offset, cursor.epoch) for cursor in self._cursors.values()]

    def close(self) -> None:
        """Stop fetching; from any thread. Answers that are pending are dropped.

        A loop in another thread ends after its current batch; a new loop raises ClosedError.
        """
        self._closed = True
        self._arrive(None)
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

    # ---- fetching -----------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Start as many fetches as allowed. A partition with two answers in memory fetches no further."""
        if self.idle_s == 0.0:
            now = time.monotonic()
            self._to_fetch.extend(cursor for cursor in self._paused if cursor.resume_s <= now)
            self._paused = [cursor for cursor in self._paused if cursor.resume_s > now]
        for _ in range(len(self._to_fetch)):
            if self._fetches >= self._fetches_max:
                return
            self._request(self._to_fetch.popleft())

    def _request(self, cursor: Cursor) -> None:
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
        try:
            self._io_thread.request_owner(request, self._layout, cursor.partition)
        except RingfenceError:
            self._fetches -= 1
            cursor.pending = False
            self._to_fetch.append(cursor)
            raise

    def _arrive(self, what: tuple[Cursor, Future[Answer]] | None) -> None:
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
        except Exception:  # the next call retries: an error never ends a partition
            self._to_fetch.append(cursor)
            raise
        if not answer.header.rows and cursor.end is not None and answer.header.end_offset < cursor.end:
            self._redirected(cursor, self._ended_early(cursor, answer.header.end_offset))
            return
        cursor.redirects = 0
        if answer.header.rows:
            cursor.first = False
            cursor.fetched = answer.header.first_offset + answer.header.rows
            cursor.fetched_epoch = answer.header.owner_epoch
        if cursor.batches is None:
            self._return_batches(cursor, answer)
        else:
            self._waiting.append((cursor, answer))

    def _ended_early(self, cursor: Cursor, end: int) -> TruncatedError:
        """The error if the log ends earlier: a former owner may report that; a forced owner has lost rows."""
        return TruncatedError(
            f"the log ends at {end}, and ended at {cursor.end} when the read began: rows were lost",
            topic=self._layout.name,
            partition=cursor.partition,
            offset=cursor.fetched,
            rows_lost=0 if cursor.end is None else cursor.end - end,
        )

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
        cursor.resume_s = now + redirect_delay_s(cursor.redirects, error)
        self._paused.append(cursor)
        self._layout = self._tables.get_by_id(self._layout.topic, now + self._timeout_s, self._layout.name)

    def _return_batches(self, cursor: Cursor, answer: Answer) -> None:
        if answer.body:
            cursor.batches = self._batches(cursor, answer)
            self._returning.append(cursor)
        if cursor.wants_more:
            self._to_fetch.append(cursor)
            self._fetch()

    def _truncated(self, cursor: Cursor, error: TruncatedError) -> None:
        start = int(error.details.get("start_offset", 0))
        self._to_fetch.append(cursor)
        if cursor.first and start > cursor.fetched:
            # Retention moved the log start before the first row was read.
            cursor.offset = cursor.fetched = start
            return
        lost = max(0, start - cursor.fetched)
        why = (
            f"rows {cursor.fetched} to {start - 1} were removed by retention"
            if lost
            else "the log was truncated and rewritten there"
        )
        raise TruncatedError(
            f"{why}; continue at the log start, or at another offset",
            topic=self._layout.name,
            partition=cursor.partition,
            code=error.code,
            offset=cursor.fetched,
            start_offset=start,
            rows_lost=lost,
        ) from error

    # ---- decoding -----------------------------------------------------------------------------------------

    def _batches(self, cursor: Cursor, answer: Answer) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """The batches of one answer, without rows before the position or after the end."""
        lists: deque[list[StagedPlace]] = deque()  # of this publish record and the next ones
        staged: Staged = iter(())
        for record, message in self._decoder.records(answer.body):
            first, last = cursor.rows_of(record)
            if first >= last:
                continue
            if record.kind == wire.RecordKind.PUBLISH:
                if not lists:
                    lists = self._lists_ahead(cursor, answer, record.record_number)
                    staged = self._staged(record.partition, [place for listed in lists for place in listed])
                yield from self._published(record, lists.popleft(), staged, first, last)
            else:
                yield from self._sliced(record, record.first_offset, record, message, first, last)

    def _lists_ahead(self, cursor: Cursor, answer: Answer, number: int) -> deque[list[StagedPlace]]:
        """The staged records to read of publish record `number` and the next ones in the answer."""
        lists: deque[list[StagedPlace]] = deque()
        count = 0
        try:
            for record, message in self._decoder.records(answer.body):
                first, last = cursor.rows_of(record)
                if record.kind != wire.RecordKind.PUBLISH or record.record_number < number or first >= last:
                    continue
                listed = places(record, message)
                lists.append([at for at in listed if at.offset < last and at.offset + at.rows > first])
                count += len(lists[-1])
                if count >= PLACES_AHEAD:
                    break
        except (ProtocolError, RecordError):
            if not lists:  # else the valid ones are returned first
                raise
        return lists

    def _staged(self, partition: int, listed: list[StagedPlace]) -> Staged:
        fetch = StagedFetch(
            self._io_thread,
            self._layout,
            self._refreshed,
            partition,
            fetch_bytes=self._fetch_bytes,
            timeout_s=self._timeout_s,
        )
        return fetch.records(listed)

    def _published(
        self, published: wire.RecordHeader, listed: list[StagedPlace], staged: Staged, first: int, last: int
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """Rows first .. last - 1 of the records that `published` lists, taken from `staged`."""
        for place, record, message in islice(staged, len(listed)):
            begin, end = max(first, place.offset), min(last, place.offset + place.rows)
            yield from self._sliced(published, place.offset, record, message, begin, end)

    def _sliced(
        self,
        placed: wire.RecordHeader,
        offset: int,
        record: wire.RecordHeader,
        message: memoryview,
        first: int,
        last: int,
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """Rows first .. last - 1 of a record that begins at `offset`, with epoch and time of `placed`."""
        if not self._decoder.knows(record.schema_id):
            self._decoder.learn(self._refreshed().schemas)
        batch = self._decoder.batch(record, message, offset)
        step = self._batch_rows or record.rows
        for start in range(first, last, step):
            rows = min(step, last - start)
            place = Place(record.partition, start, rows, placed.owner_epoch, placed.time_ms)
            whole = rows == record.rows
            yield place, (batch if whole else batch.slice(start - offset, rows))

    def _refreshed(self) -> Layout:
        return self._tables.get_by_id(
            self._layout.topic, time.monotonic() + self._timeout_s, self._layout.name
        )

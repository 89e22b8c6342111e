"""START HERE: what `client.read(topic)` gives: an iterator of record batches, prefetched, partitions in turn.

    for batch in reader:                 # pyarrow.RecordBatch, columns are views into what was received
        reader.place                     # where this batch stands
    reader.positions()                   # where to go on: client.read(topic, start=positions)

One FETCH per partition is under way while the batches of the one before are handed out, so at most two
answers of `fetch_bytes` are held for each of `lanes` partitions: `prefetch_bytes` in all (one record may be
larger). Of staged rows an answer has a list only; what it lists is fetched while it is handed out: two more
answers for a partition, three where scopes staged side by side.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Self

from ringfence.arrow.decode import Decoder, Place
from ringfence.cluster.offsets import TRY_S, Position, Span, redirect_delay_s
from ringfence.common.fork import guard
from ringfence.common.process_local import Local
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
from ringfence.network.request import Ask
from ringfence.staged_reader import StagedFetch, places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from ringfence.cluster.table_cache import Tables
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import Link
    from ringfence.staged_reader import StagedPlace

    Staged = Iterator[tuple[StagedPlace, wire.RecordHeader, memoryview]]

PREFETCH_BYTES = 67_108_864  # 64 MiB: eight partitions with two answers of 4 MiB
FETCH_BYTES = 4_194_304  # one answer: large enough that its round trip is small beside its bytes
PLACES_AHEAD = 16_384  # staged records whose places are held as objects: some megabytes
POLL_S = 5.0  # a long poll; the node confirms what is older than 2 s
POLL_SHORT_S = 0.05  # when there are more partitions than lanes, none may hold its lane for long


class Cursor:
    """One partition's way through its log."""

    __slots__ = (
        "asked",
        "batches",
        "end",
        "epoch",
        "fetched",
        "fetched_epoch",
        "first",
        "offset",
        "partition",
        "redirected_s",
        "redirects",
        "resume_s",
        "under_way",
    )

    def __init__(self, span: Span) -> None:
        self.partition = span.partition
        self.offset, self.epoch = span.start, span.epoch  # of the next row to hand out
        self.fetched, self.fetched_epoch = span.start, span.epoch  # of the next row to fetch
        self.end = span.end  # None: never
        self.first = span.from_log_start  # nothing read yet: a log start that moves on is followed
        self.redirects = 0  # in a row, since `redirected_s`
        self.redirected_s = self.resume_s = 0.0
        self.batches: Iterator[tuple[Place, pa.RecordBatch]] | None = None
        self.asked, self.under_way = span.start, False  # the offset of the last FETCH; it has no answer yet

    @property
    def wants_more(self) -> bool:
        return self.end is None or self.fetched < self.end


class Reader(Local):
    """Iterates record batches; made by `Client.read`. For one thread at a time.

    Attributes:
        schema: of every batch.
        place: where the last batch stands; None before the first.
        on_arrival: called, on any thread, when an answer has come or the reader was closed.
    """

    def __init__(
        self,
        link: Link,
        tables: Tables,
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
        """`client`: whose connections these are; it ends with the last that refers to it."""
        self._client = client
        self.schema = decoder.schema
        self.place: Place | None = None
        self.on_arrival: Callable[[], None] = lambda: None
        self._link, self._tables, self._layout, self._decoder = link, tables, layout, decoder
        self._batch_rows, self._timeout_s = batch_rows, timeout_s
        self._cursors = {span.partition: Cursor(span) for span in spans}
        self._lanes = max(1, min(len(spans), prefetch_bytes // (2 * FETCH_BYTES), 512))
        self._fetch_bytes = max(
            65_536, min(wire.FETCH_BYTES_MAX, FETCH_BYTES, prefetch_bytes // (2 * self._lanes))
        )
        self._poll_s = (POLL_S if len(spans) <= self._lanes else POLL_SHORT_S) if follow else 0.0
        self._to_fetch = deque(cursor for cursor in self._cursors.values() if cursor.wants_more)
        self._paused: list[Cursor] = []  # redirected: asked again at their `resume_s`
        self._under_way = 0
        self._arrived: queue.SimpleQueue[tuple[Cursor, Future[Answer]] | None] = queue.SimpleQueue()
        self._waiting: deque[tuple[Cursor, Answer]] = deque()  # answers behind batches of the same partition
        self._handing_out: deque[Cursor] = deque()
        self._closed = self._at_end = False
        self._iterating = threading.Lock()  # whoever holds it has the queues
        self._owner = guard("reader")

    # ---- iteration ----------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        if self._closed:
            raise ClosedError("the reader is closed; read anew from its positions()", topic=self._layout.name)
        return self

    def __next__(self) -> pa.RecordBatch:
        """The next batch, of the partition whose turn it is.

        Raises:
            TruncatedError: rows were given up by retention before they were read, or lost (an owner was
            chosen by force); it says which.
            ConnectError: no node answered within the reader's `timeout_s`.
            RerouteError: a partition had no owner for so long.

        After an error the next call tries again, from the row behind the last one that was handed out.
        """
        self._owner.check()
        with self._iterating:
            while (batch := self._step(wait=True)) is None:
                pass
            return batch

    def try_next(self) -> pa.RecordBatch | None:
        """As `next`, but None where that would wait: `on_arrival` tells when to ask again, or `idle_s`."""
        self._owner.check()
        with self._iterating:
            return self._step(wait=False)

    @property
    def idle_s(self) -> float | None:
        """Seconds until `try_next` asks a redirected partition again; None: only an answer brings more."""
        paused = list(self._paused)
        if not paused:
            return None
        return max(0.0, min(cursor.resume_s for cursor in paused) - time.monotonic())

    def _step(self, *, wait: bool) -> pa.RecordBatch | None:
        while not self._closed:
            while self._handing_out:
                cursor = self._handing_out.popleft()
                assert cursor.batches is not None
                try:
                    found = next(cursor.batches, None)
                except BaseException:
                    self._rewind(cursor)
                    raise
                if found is None:
                    cursor.batches = None
                    self._take_waiting(cursor)
                    continue
                self._handing_out.append(cursor)
                self.place, batch = found
                cursor.offset, cursor.epoch = self.place.first_offset + self.place.rows, self.place.epoch
                return batch
            self._fetch()
            if not self._under_way and not self._paused:
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
        """All rows from here on as an Arrow C stream: polars, DuckDB, pandas, pyarrow take it as it is.

        They pull batch by batch. An error ends their stream, with its text.

        Raises:
            ClosedError: it has come to its end, so a second query of it would find no rows.
        """
        if self._at_end:
            raise ClosedError(
                "the reader is at its end, and gives each row once: read the topic again for another query, "
                "or keep the rows in a table (`pyarrow.table(reader)`)",
                topic=self._layout.name,
            )
        import pyarrow as pa  # noqa: PLC0415 - the module has it for types only

        return pa.RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)

    def _take_waiting(self, cursor: Cursor) -> None:
        """The answer that came while the one before was handed out."""
        for index, (other, answer) in enumerate(self._waiting):
            if other is cursor:
                del self._waiting[index]
                self._hand_out(cursor, answer)
                break

    def _rewind(self, cursor: Cursor) -> None:
        """What was fetched could not be handed out: the next call fetches it again, and skips nothing."""
        cursor.batches = None
        cursor.fetched, cursor.fetched_epoch = cursor.offset, cursor.epoch
        self._waiting = deque(kept for kept in self._waiting if kept[0] is not cursor)
        if not cursor.under_way and cursor not in self._to_fetch:
            self._to_fetch.append(cursor)

    def positions(self) -> list[Position]:
        """Where to go on in every partition: behind the last batch that was handed out.

        `start=` takes them.
        """
        return [Position(cursor.partition, cursor.offset, cursor.epoch) for cursor in self._cursors.values()]

    def close(self) -> None:
        """Fetch no more; from any thread. What is under way is dropped when it comes.

        A loop that another thread runs ends with the batch that it has; a new one raises ClosedError.
        """
        self._closed = True
        self._arrive(None)
        if self._iterating.acquire(blocking=False):  # else the loop that is woken does it
            try:
                self._forget()
            finally:
                self._iterating.release()

    def _forget(self) -> None:
        self._to_fetch.clear()
        self._paused.clear()
        self._handing_out.clear()
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- fetching -----------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Keep every lane busy. A partition whose answers wait to be handed out fetches no further."""
        if self.idle_s == 0.0:
            now = time.monotonic()
            self._to_fetch.extend(cursor for cursor in self._paused if cursor.resume_s <= now)
            self._paused = [cursor for cursor in self._paused if cursor.resume_s > now]
        for _ in range(len(self._to_fetch)):
            if self._under_way >= self._lanes:
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
        ask = Ask(
            wire.Opcode.FETCH, b"", deadline, topic=self._layout.name, wait_s=self._poll_s, fields=fields,
            held=self._layout.generation,
        )  # fmt: skip
        ask.future.add_done_callback(lambda future: self._arrive((cursor, future)))
        self._under_way += 1
        cursor.asked, cursor.under_way = cursor.fetched, True
        try:
            self._link.ask_owner(ask, self._layout, cursor.partition)
        except RingfenceError:
            self._under_way -= 1
            cursor.under_way = False
            self._to_fetch.append(cursor)
            raise

    def _arrive(self, what: tuple[Cursor, Future[Answer]] | None) -> None:
        self._arrived.put(what)
        self.on_arrival()

    def _take(self, cursor: Cursor, future: Future[Answer]) -> None:
        self._under_way -= 1
        cursor.under_way = False
        if cursor.asked != cursor.fetched:  # rewound in the meantime
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
        except Exception:  # the next call tries again: a partition never ends because of an error
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
            self._hand_out(cursor, answer)
        else:
            self._waiting.append((cursor, answer))

    def _ended_early(self, cursor: Cursor, end: int) -> TruncatedError:
        """A former owner may say so for a while; one that stays was chosen by force, without these rows."""
        return TruncatedError(
            f"the log ends at {end}, and ended at {cursor.end} when the read began: rows were lost",
            topic=self._layout.name,
            partition=cursor.partition,
            offset=cursor.fetched,
            rows_lost=0 if cursor.end is None else cursor.end - end,
        )

    def _redirected(self, cursor: Cursor, error: RingfenceError) -> None:
        """Ask the owner that a newer table names; the other partitions go on meanwhile."""
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

    def _hand_out(self, cursor: Cursor, answer: Answer) -> None:
        if answer.body:
            cursor.batches = self._batches(cursor, answer)
            self._handing_out.append(cursor)
        if cursor.wants_more:
            self._to_fetch.append(cursor)
            self._fetch()

    def _truncated(self, cursor: Cursor, error: TruncatedError) -> None:
        start = int(error.details.get("start_offset", 0))
        self._to_fetch.append(cursor)
        if cursor.first and start > cursor.fetched:  # the log start moved on before the first row was read
            cursor.offset = cursor.fetched = start
            return
        lost = max(0, start - cursor.fetched)
        why = (
            f"rows {cursor.fetched} to {start - 1} were given up"
            if lost
            else "the log was cut and written anew there"
        )
        raise TruncatedError(
            f"{why}; go on at the log start, or at a place of your own",
            topic=self._layout.name,
            partition=cursor.partition,
            code=error.code,
            offset=cursor.fetched,
            start_offset=start,
            rows_lost=lost,
        ) from error

    # ---- decoding -----------------------------------------------------------------------------------------

    def _batches(self, cursor: Cursor, answer: Answer) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """The batches of one answer, without rows that were read before or are behind the end."""
        lists: deque[list[StagedPlace]] = deque()  # of this publish record and those behind it
        staged: Staged = iter(())
        for record, message in self._decoder.records(answer.body):
            first, last = _span(cursor, record)
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
        """What publish record `number` and those behind it in the answer list, of the rows that are read."""
        lists: deque[list[StagedPlace]] = deque()
        count = 0
        try:
            for record, message in self._decoder.records(answer.body):
                first, last = _span(cursor, record)
                if record.kind != wire.RecordKind.PUBLISH or record.record_number < number or first >= last:
                    continue
                found = places(record, message)
                lists.append([at for at in found if at.offset < last and at.offset + at.rows > first])
                count += len(lists[-1])
                if count >= PLACES_AHEAD:
                    break
        except (ProtocolError, RecordError):
            if not lists:  # else those before it are handed out first
                raise
        return lists

    def _staged(self, partition: int, wanted: list[StagedPlace]) -> Staged:
        fetch = StagedFetch(
            self._link,
            self._layout,
            self._refreshed,
            partition,
            fetch_bytes=self._fetch_bytes,
            timeout_s=self._timeout_s,
        )
        return fetch.records(wanted)

    def _published(
        self, published: wire.RecordHeader, listed: list[StagedPlace], staged: Staged, first: int, last: int
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """Rows first .. last - 1 of those that were staged before this record: the next of `staged`."""
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
        """Rows first .. last - 1 of a record that begins at `offset`; `placed` has their epoch and time."""
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


def _span(cursor: Cursor, record: wire.RecordHeader) -> tuple[int, int]:
    """Rows first .. last - 1 of a record are wanted; none if first >= last."""
    last = record.first_offset + record.rows
    return max(record.first_offset, cursor.offset), last if cursor.end is None else min(last, cursor.end)

"""Decode the answers to FETCH, with staged rows in the place of the publish records that list them."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from ringfence.arrow.decode import Place
from ringfence.native import wire
from ringfence.native.errors import ProtocolError, RecordError
from ringfence.staged_reader import StagedFetch, places

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ringfence.arrow.decode import Decoder
    from ringfence.cluster.cursor import Cursor
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread
    from ringfence.staged_reader import StagedPlace

    Staged = Iterator[tuple[StagedPlace, wire.RecordHeader, memoryview]]

PLACES_AHEAD = 16_384  # places of staged records in memory: a few megabytes


class AnswerBatches:
    """Decodes answers of one topic.

    Attributes:
        layout: the newest one that the reader holds.
        fetch_bytes: maximum size of one answer with staged rows.
    """

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        decoder: Decoder,
        *,
        batch_rows: int | None,
        fetch_bytes: int,
        timeout_s: float,
    ) -> None:
        self.layout, self.fetch_bytes = layout, fetch_bytes
        self._io_thread, self._tables, self._decoder = io_thread, tables, decoder
        self._batch_rows, self._timeout_s = batch_rows, timeout_s

    def of(self, cursor: Cursor, answer: Answer) -> Iterator[tuple[Place, pa.RecordBatch]]:
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
            self.layout,
            self.refreshed,
            partition,
            fetch_bytes=self.fetch_bytes,
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
            self._decoder.learn(self.refreshed().schemas)
        batch = self._decoder.batch(record, message, offset)
        step = self._batch_rows or record.rows
        for start in range(first, last, step):
            rows = min(step, last - start)
            place = Place(record.partition, start, rows, placed.owner_epoch, placed.time_ms)
            whole = rows == record.rows
            yield place, (batch if whole else batch.slice(start - offset, rows))

    def refreshed(self) -> Layout:
        """The newest table of a node."""
        return self._tables.get_by_id(self.layout.topic, time.monotonic() + self._timeout_s, self.layout.name)

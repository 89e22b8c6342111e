"""Read staged rows through the publish record that gives them offsets.

A publish record lists staged records in the order of their numbers. These are fetched by number, in long
runs, one request ahead of the rows that are returned. The publish records of one FETCH answer share the runs,
so many small epochs cost one request for each `fetch_bytes` of rows.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ringfence.cluster.offsets import TRY_S, redirect_delay_s
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.errors import (
    ProtocolError,
    RerouteError,
    RetriableError,
    RingfenceError,
    TruncatedError,
)
from ringfence.network.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread

HEAD = struct.Struct("<QQQ")  # scope, epoch, number of batches
ENTRY = struct.Struct("<QII")  # record number, rows, zero
# Minimum size of an answer: a smaller one takes less time than its round trip.
FETCH_BYTES_MIN = 65_536
# Answers that are stored for later epochs: scopes that stage in parallel publish across the end of a run.
RUNS_MAX = 2


def may_pass(error: RingfenceError) -> bool:
    """Whether staged rows that could not be read may be read later.

    Also of a disk that fails a read: "unknown" is the outcome of a write only.
    """
    return error.retriable or isinstance(error, RerouteError | RetriableError)


class StagedPlace(NamedTuple):
    """A staged record, the offset of its first row, and the epoch of the record that published it."""

    record: int
    offset: int
    rows: int
    epoch: int


def places(published: wire.RecordHeader, body: memoryview) -> list[StagedPlace]:
    """The staged records that a publish record lists.

    Raises:
        ProtocolError: its body is invalid.
    """
    try:
        _, _, count = HEAD.unpack_from(body)
        listed, offset = [], published.first_offset
        for index in range(count):
            record, rows, _ = ENTRY.unpack_from(body, HEAD.size + index * ENTRY.size)
            listed.append(StagedPlace(record, offset, rows, published.owner_epoch))
            offset += rows
    except struct.error as error:
        raise ProtocolError(f"a publish record is damaged: {error}", partition=published.partition) from error
    if offset != published.first_offset + published.rows:
        raise ProtocolError(
            "the rows that a publish record lists differ from the rows in its header",
            partition=published.partition,
            listed=offset - published.first_offset,
            rows=published.rows,
        )
    return listed


class _StagedRecord(NamedTuple):
    header: wire.RecordHeader
    message: memoryview  # Arrow message; keeps the whole answer in memory


class StagedFetch:
    """Fetches staged records of one partition.

    All requested records are listed by publish records that were read before. The log up to these is
    confirmed, so records stored for a later epoch cannot change; other records are not stored.
    """

    def __init__(
        self,
        io_thread: IoThread,
        layout: Layout,
        refreshed: Callable[[], Layout],
        partition: int,
        *,
        fetch_bytes: int,
        timeout_s: float,
    ) -> None:
        """`refreshed` fetches the topic's newest layout."""
        self._io_thread, self._layout, self._refreshed = io_thread, layout, refreshed
        self._partition, self._fetch_bytes, self._timeout_s = partition, fetch_bytes, timeout_s
        # Requested records of each answer, by number. Records that were dropped are fetched again.
        self._runs: deque[dict[int, _StagedRecord]] = deque(maxlen=RUNS_MAX)
        self._last = 0  # number of the last requested record
        self._bytes_each: float | None = None  # mean bytes of one record number in the newest answer

    def records(
        self, requested: Sequence[StagedPlace]
    ) -> Iterator[tuple[StagedPlace, wire.RecordHeader, memoryview]]:
        """(place, header, Arrow message) of each requested record, in their order.

        Raises:
            TruncatedError: retention removed them meanwhile, or the number belongs to another history now.
            ProtocolError: a record is missing.
        """
        left = {place.record for place in requested}
        self._last = max(left, default=0)
        future: Future[Answer] | None = None
        ahead = 0  # index of the record with which the answer of `future` begins
        for index, place in enumerate(requested):
            if not self._has(place.record):
                if future is None or ahead != index:
                    ahead, future = index, self._request(place.record)
                self._store(self._answer(future, place.record), place.record, left)
                while ahead < len(requested) and self._has(requested[ahead].record):
                    ahead += 1
                future = self._request(requested[ahead].record) if ahead < len(requested) else None
            left.discard(place.record)
            staged = self._take(place.record)
            self._check_history(place, staged.header)
            if staged.header.rows != place.rows:
                raise self._not_published(place.record, staged.header.record_number)
            yield place, staged.header, staged.message

    def _has(self, record: int) -> bool:
        return any(record in run for run in self._runs)

    def _take(self, record: int) -> _StagedRecord:
        """Take a record out of its run. An empty run is dropped, and with it the answer."""
        run = next(run for run in self._runs if record in run)
        staged = run.pop(record)
        if not run:
            self._runs.remove(run)
        return staged

    def _store(self, answer: Answer, record: int, left: set[int]) -> None:
        """Store the requested records of an answer that must begin with `record`.

        It may also contain records of other scopes and of aborted attempts.
        """
        first: int | None = None
        last = record
        run: dict[int, _StagedRecord] = {}
        for packed, start, length in RecordReader(answer.body):
            header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(packed))
            last = header.record_number
            if first is None:
                first = last
            if last in left:
                run[last] = _StagedRecord(
                    header, answer.body[start + header.extension_bytes : start + length]
                )
        if first is None:
            raise ProtocolError("a staged record is not in the log", partition=self._partition, record=record)
        if record not in run:
            raise self._not_published(record, first)
        self._bytes_each = answer.body.nbytes / (last + 1 - record)
        self._runs.append(run)

    def _check_history(self, place: StagedPlace, header: wire.RecordHeader) -> None:
        """Epochs never descend: a record of a newer epoch than its publish record took a lost one's number.

        Only an owner that was chosen by force can have appended it, after the publish record was fetched.
        """
        if header.owner_epoch > place.epoch:
            raise TruncatedError(
                f"the log has another history now: record {place.record} is of epoch {header.owner_epoch}, "
                f"and was published under epoch {place.epoch}; continue at the log start, or at another "
                "offset",
                topic=self._layout.name,
                partition=self._partition,
                offset=place.offset,
                epoch=place.epoch,
            )

    def _not_published(self, record: int, found: int) -> ProtocolError:
        return ProtocolError(
            "a staged record differs from the published one",
            partition=self._partition,
            record=record,
            found=found,
        )

    def _request(self, record: int) -> Future[Answer]:
        request = Request(
            wire.Opcode.FETCH,
            b"",
            time.monotonic() + min(TRY_S, self._timeout_s),
            topic=self._layout.name,
            fields={
                "topic": self._layout.topic,
                "partition": self._partition,
                "sequence": record,
                "send": self._bytes_from(record),
                "layout_version": self._layout.version,
                "flags": wire.RequestFlags.STAGED,
            },
        )
        # No long poll: published records exist.
        request.wait_s = 0.0
        return self._io_thread.request_owner(request, self._layout, self._partition)

    def _bytes_from(self, record: int) -> int:
        """Estimated size of the requested records. Later records belong to epochs without a request yet."""
        if self._bytes_each is None:
            return self._fetch_bytes
        estimate = int(self._bytes_each * (self._last + 1 - record) * 1.25)
        return min(self._fetch_bytes, max(FETCH_BYTES_MIN, estimate))

    def _answer(self, future: Future[Answer], record: int) -> Answer:
        """Wait for the answer; follow redirects to new owners until the deadline."""
        deadline = time.monotonic() + self._timeout_s
        redirects = 0
        while True:
            try:
                return future.result()
            except RingfenceError as error:
                if not may_pass(error):
                    raise
                redirects += 1
                delay_s = redirect_delay_s(redirects, error)
                if time.monotonic() + delay_s >= deadline:
                    raise
                time.sleep(delay_s)
                self._layout = self._refreshed()
                future = self._request(record)

"""Rows that were staged, read through the record that published them.

A publish record lists the staged records that it gives offsets to, in the order of their numbers. They are
fetched by number, in long runs, one request ahead of what is handed out. The publish records of one FETCH
answer share their runs: many small epochs cost one request for each `fetch_bytes` of rows.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ringfence.cluster.offsets import TRY_S, redirect_delay_s
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.errors import ProtocolError, RerouteError, RetriableError, TruncatedError
from ringfence.network.request import Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import Link

HEAD = struct.Struct("<QQQ")  # scope, epoch, number of batches
ENTRY = struct.Struct("<QII")  # record number, rows, zero
FETCH_BYTES_MIN = 65_536  # below it a round trip costs more than its bytes
RUNS_HELD = 2  # with rows of later epochs: scopes that stage side by side publish across the end of a run


class StagedPlace(NamedTuple):
    """A staged record, the offset of its first row, and the epoch of the record that published it."""

    record: int
    offset: int
    rows: int
    epoch: int


def places(published: wire.RecordHeader, body: memoryview) -> list[StagedPlace]:
    """What a publish record gives offsets to.

    Raises:
        ProtocolError: its body is not of this form.
    """
    try:
        _, _, count = HEAD.unpack_from(body)
        found, offset = [], published.first_offset
        for at in range(count):
            record, rows, _ = ENTRY.unpack_from(body, HEAD.size + at * ENTRY.size)
            found.append(StagedPlace(record, offset, rows, published.owner_epoch))
            offset += rows
    except struct.error as error:
        raise ProtocolError(f"a publish record is damaged: {error}", partition=published.partition) from error
    if offset != published.first_offset + published.rows:
        raise ProtocolError(
            "a publish record does not list as many rows as its header",
            partition=published.partition,
            listed=offset - published.first_offset,
            rows=published.rows,
        )
    return found


class _Found(NamedTuple):
    header: wire.RecordHeader
    message: memoryview  # of Arrow; keeps the whole answer


class StagedFetch:
    """Fetches staged records of one partition.

    What it is asked for was listed by publish records that came before. The log up to them is confirmed, so
    what is held for a later epoch is what stands there for ever; nothing else is held.
    """

    def __init__(
        self,
        link: Link,
        layout: Layout,
        refreshed: Callable[[], Layout],
        partition: int,
        *,
        fetch_bytes: int,
        timeout_s: float,
    ) -> None:
        """`refreshed` fetches the topic's newest layout."""
        self._link, self._layout, self._refreshed = link, layout, refreshed
        self._partition, self._fetch_bytes, self._timeout_s = partition, fetch_bytes, timeout_s
        # What is still wanted of each answer, by number. One that was forgotten is asked for again.
        self._runs: deque[dict[int, _Found]] = deque(maxlen=RUNS_HELD)
        self._last = 0  # number of the last record that is wanted
        self._bytes_each: float | None = None  # of one number's, in the newest answer

    def records(
        self, wanted: Sequence[StagedPlace]
    ) -> Iterator[tuple[StagedPlace, wire.RecordHeader, memoryview]]:
        """(place, header, Arrow message) of each wanted record, in their order.

        Raises:
            TruncatedError: retention gave them up meanwhile, or another history has the number by now.
            ProtocolError: one is not there.
        """
        left = {place.record for place in wanted}
        self._last = max(left, default=0)
        asked: Future[Answer] | None = None
        ahead = 0  # place of the record that `asked` begins with
        for index, place in enumerate(wanted):
            if not self._holds(place.record):
                if asked is None or ahead != index:
                    ahead, asked = index, self._ask(place.record)
                self._take(self._answer(asked, place.record), place.record, left)
                while ahead < len(wanted) and self._holds(wanted[ahead].record):
                    ahead += 1
                asked = self._ask(wanted[ahead].record) if ahead < len(wanted) else None
            left.discard(place.record)
            found = self._give(place.record)
            self._check_history(place, found.header)
            if found.header.rows != place.rows:
                raise self._not_published(place.record, found.header.record_number)
            yield place, found.header, found.message

    def _holds(self, record: int) -> bool:
        return any(record in run for run in self._runs)

    def _give(self, record: int) -> _Found:
        """Out of the run that has it. A run that nobody wants any more keeps no answer in memory."""
        run = next(run for run in self._runs if record in run)
        found = run.pop(record)
        if not run:
            self._runs.remove(run)
        return found

    def _take(self, answer: Answer, record: int, left: set[int]) -> None:
        """Hold what is wanted of an answer that must begin with `record`.

        Between may be records of other scopes, and of attempts that were given up.
        """
        first: int | None = None
        last = record
        run: dict[int, _Found] = {}
        for packed, start, length in RecordReader(answer.body):
            header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(packed))
            last = header.record_number
            if first is None:
                first = last
            if last in left:
                run[last] = _Found(header, answer.body[start + header.extension_bytes : start + length])
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
                f"and was published under epoch {place.epoch}; go on at the log start, or at a place of your "
                "own",
                topic=self._layout.name,
                partition=self._partition,
                offset=place.offset,
                epoch=place.epoch,
            )

    def _not_published(self, record: int, found: int) -> ProtocolError:
        return ProtocolError(
            "a staged record is not the one that was published",
            partition=self._partition,
            record=record,
            found=found,
        )

    def _ask(self, record: int) -> Future[Answer]:
        ask = Ask(
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
        # Without a long poll: what was published is there.
        ask.wait_s = 0.0
        return self._link.ask_owner(ask, self._layout, self._partition)

    def _bytes_from(self, record: int) -> int:
        """About as many as are wanted: what is behind them belongs to epochs that are not asked for yet."""
        if self._bytes_each is None:
            return self._fetch_bytes
        wanted = int(self._bytes_each * (self._last + 1 - record) * 1.25)
        return min(self._fetch_bytes, max(FETCH_BYTES_MIN, wanted))

    def _answer(self, asked: Future[Answer], record: int) -> Answer:
        """Follows a partition that moves until the caller's deadline."""
        deadline = time.monotonic() + self._timeout_s
        redirects = 0
        while True:
            try:
                return asked.result()
            except (RerouteError, RetriableError) as error:
                redirects += 1
                delay_s = redirect_delay_s(redirects, error)
                if time.monotonic() + delay_s >= deadline:
                    raise
                time.sleep(delay_s)
                self._layout = self._refreshed()
                asked = self._ask(record)

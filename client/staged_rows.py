"""Rows that were staged, read through the record that published them.

A publish record lists the staged records that it gives offsets to, in the order of their numbers. They are
fetched by number, in long runs, one request ahead of what is handed out.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from ringfence.ask import Ask
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.errors import ProtocolError, RerouteError, RetriableError
from ringfence.places import TRY_S, redirect_delay_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from ringfence.codec import Answer
    from ringfence.link import Link
    from ringfence.routing import Layout

HEAD = struct.Struct("<QQQ")  # scope, epoch, number of batches
ENTRY = struct.Struct("<QII")  # record number, rows, zero


class StagedPlace(NamedTuple):
    """A staged record and the offset of its first row."""

    record: int
    offset: int
    rows: int


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
            found.append(StagedPlace(record, offset, rows))
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


class StagedFetch:
    """Fetches staged records of one partition."""

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

    def records(
        self, wanted: list[StagedPlace]
    ) -> Iterator[tuple[StagedPlace, wire.RecordHeader, memoryview]]:
        """(place, header, Arrow message) of each wanted record, in their order.

        Raises:
            TruncatedError: retention gave them up meanwhile. ProtocolError: one is not there.
        """
        left = iter(wanted)
        place = next(left, None)
        if place is None:
            return
        last = wanted[-1].record
        asked = self._ask(place.record)
        while place is not None:
            answer = self._answer(asked, place.record)
            found = [
                (wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(header)), start, length)
                for header, start, length in RecordReader(answer.body)
            ]
            if not found:
                raise ProtocolError(
                    "a staged record is not in the log", partition=self._partition, record=place.record
                )
            behind = found[-1][0].record_number + 1
            if behind <= last:
                asked = self._ask(behind)
            for record, start, length in found:
                if place is None or record.record_number < place.record:
                    continue  # of another scope, or of an attempt that was given up
                if record.record_number > place.record or record.rows != place.rows:
                    raise ProtocolError(
                        "a staged record is not the one that was published",
                        partition=self._partition,
                        record=place.record,
                        found=record.record_number,
                    )
                yield place, record, answer.body[start + record.extension_bytes : start + length]
                place = next(left, None)

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
                "send": self._fetch_bytes,
                "layout_version": self._layout.version,
                "flags": wire.RequestFlags.STAGED,
            },
        )
        # Without a long poll: what was published is there.
        ask.wait_s = 0.0
        return self._link.ask_owner(ask, self._layout, self._partition)

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

"""The bytes of what a member of a QUEUE asks for, and of the replies. Pure.

line of an ACKNOWLEDGE: u64 first | u64 epoch | u32 rows | u8 what | u8 count | u16 reason bytes
                        | u32 delay_ms | u32 zero, and the reasons after all lines
trailer of a FETCH:     u32 version | u32 lines | u64 floor | u64 zero | u64 zero
                        | lines of u64 first | u32 rows | u8 again | u8 count | u16 zero
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ringfence.common.codec import Answer
from ringfence.consumer.bodies import STANDS, Sent
from ringfence.consumer.queue_calls import (
    Leased,
    Line,
    NotTakenBecause,
    QueueFetch,
    QueueSettle,
    QueueSettled,
    RowsNotTaken,
)
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.errors import ProtocolError, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.consumer.queue_calls import Told

TOLD: Final = struct.Struct("<QQIBBHII")
NOT_TAKEN: Final = struct.Struct("<QII")  # first, rows, why
TRAILER: Final = struct.Struct("<IIQQQ")  # version, lines, floor, zero, zero
LEASED: Final = struct.Struct("<QIBBH")  # first, rows, again, count, zero
TRAILER_VERSION: Final = 1
REASONS_ALIGN: Final = 8


def sent(call: QueueFetch | QueueSettle, topic: int, session: int, version: int) -> Sent:
    """The request of a call. `version`: of the layout that it was routed by."""
    match call:
        case QueueFetch():
            fields = {
                "topic": topic,
                "layout_version": version,
                "flags": int(wire.RequestFlags.COHORT),
                "producer_id": session,
                "sequence": STANDS,
                "send": call.bytes_max,
                "rows": call.rows_max,
            }
            return Sent(wire.Opcode.FETCH, fields)
        case QueueSettle():
            fields = {
                "topic": topic,
                "partition": call.partition,
                "layout_version": version,
                "producer_id": session,
                "producer_epoch": call.incarnation,
                "rows": len(call.lines),
            }
            return Sent(wire.Opcode.ACKNOWLEDGE, fields, _packed(call))


def _packed(call: QueueSettle) -> bytes:
    lines = b"".join(_line(one) for one in call.lines)
    body = lines + b"".join(one.reason for one in call.lines)
    return body + bytes(-len(body) % REASONS_ALIGN)


def _line(told: Told) -> bytes:
    rows, reason_bytes = told.end - told.first, len(told.reason)
    return TOLD.pack(told.first, told.epoch, rows, told.what, told.failures, reason_bytes, told.delay_ms, 0)


def settled_of(answer: Answer) -> QueueSettled:
    """The answer to an ACKNOWLEDGE of rows: the body lists what was not taken."""
    return QueueSettled(tuple(_not_taken(answer)))


def _not_taken(answer: Answer) -> Iterator[RowsNotTaken]:
    if answer.body.nbytes % NOT_TAKEN.size:
        raise ProtocolError(
            "the body of an answer has a part of an entry",
            opcode=answer.header.opcode,
            bytes=answer.body.nbytes,
        )
    for first, rows, why in NOT_TAKEN.iter_unpack(answer.body):
        try:
            yield RowsNotTaken(first, first + rows, NotTakenBecause(why))
        except ValueError as error:
            raise ProtocolError("rows were not taken for an unknown reason", why=why) from error


def leased_of(answer: Answer) -> Leased:
    """The answer to a FETCH of a QUEUE: records, and after them the ranges of their rows on lease."""
    header = answer.header
    partition, incarnation = header.partition, header.sequence
    trailer_bytes = header.send
    if not trailer_bytes:
        return Leased(partition, incarnation, header.first_offset, header.first_offset)
    if trailer_bytes > answer.body.nbytes:
        raise ProtocolError(
            f"a trailer of {trailer_bytes} bytes is longer than the answer with it", bytes=answer.body.nbytes
        )
    records = answer.body[: answer.body.nbytes - trailer_bytes]
    lines = lines_of(answer.body[answer.body.nbytes - trailer_bytes :])
    if header.flags & wire.AnswerFlags.ELSEWHERE:
        end = lines[-1].end if lines else header.first_offset
        return Leased(partition, incarnation, header.first_offset, end, lines, is_elsewhere=True)
    return Leased(
        partition,
        incarnation,
        header.first_offset,
        header.first_offset + header.rows,
        with_epochs(lines, records, header.owner_epoch),
        bytes=records.nbytes,
        body=Answer(header, records),
    )


def lines_of(trailer: memoryview) -> tuple[Line, ...]:
    """The ranges of a trailer, ascending.

    Raises:
        ProtocolError: it is not one.
    """
    if trailer.nbytes < TRAILER.size:
        raise ProtocolError("the trailer of an answer is cut", bytes=trailer.nbytes)
    version, count, *_ = TRAILER.unpack_from(trailer)
    if version != TRAILER_VERSION or trailer.nbytes < TRAILER.size + count * LEASED.size:
        raise ProtocolError(
            f"a trailer of version {version} with {count} lines in {trailer.nbytes} bytes is not one of "
            f"version {TRAILER_VERSION}",
            bytes=trailer.nbytes,
        )
    lines = LEASED.iter_unpack(trailer[TRAILER.size : TRAILER.size + count * LEASED.size])
    return tuple(Line(first, first + rows, 0, tries, bool(again)) for first, rows, again, tries, _ in lines)


def with_epochs(lines: Iterable[Line], records: memoryview, last_epoch: int) -> tuple[Line, ...]:
    """The lines with the epoch of their last row; one with rows of several epochs becomes several.

    Epochs ascend, so all are the last one if the first one is.
    """
    if _first_epoch(records) == last_epoch:
        return tuple(line._replace(epoch=last_epoch) for line in lines)
    spans = list(_spans(records))
    return tuple(part for line in lines for part in _cut(line, spans, last_epoch))


def _first_epoch(records: memoryview) -> int | None:
    if records.nbytes < wire.RECORD_STRUCT.size:
        return None
    header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(records))
    return header.owner_epoch


def _spans(records: memoryview) -> Iterator[tuple[int, int]]:
    """(end offset, epoch) of runs of records of one epoch. What is damaged is told when it is decoded."""
    try:
        for header, _, _ in RecordReader(records):
            record = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(header))
            yield record.first_offset + record.rows, record.owner_epoch
    except RecordError:
        return


def _cut(line: Line, spans: list[tuple[int, int]], last_epoch: int) -> Iterator[Line]:
    first, epoch, end = line.first, None, line.first
    for span_end, span_epoch in spans:
        if span_end <= first:
            continue
        if epoch is not None and span_epoch != epoch:
            yield line._replace(first=first, end=end, epoch=epoch)
            first = end
        epoch, end = span_epoch, min(span_end, line.end)
        if end == line.end:
            break
    yield line._replace(first=first, end=line.end, epoch=last_epoch if epoch is None else epoch)

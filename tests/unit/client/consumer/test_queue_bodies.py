"""The bytes of rows on lease, and of what became of them."""

from __future__ import annotations

import struct

import pytest

from ringfence.common.codec import Answer
from ringfence.consumer.queue_bodies import _cut, leased_of, lines_of, sent, settled_of, with_epochs
from ringfence.consumer.queue_calls import (
    Line,
    NotTakenBecause,
    QueueFetch,
    QueueSettle,
    RowsNotTaken,
    Told,
    What,
)
from ringfence.native import wire
from ringfence.native.errors import ProtocolError


def trailer(*lines: tuple[int, int, int, int], version: int = 1) -> bytes:
    """(first, rows, again, count) a line."""
    head = struct.pack("<IIQQQ", version, len(lines), 0, 0, 0)
    body = head + b"".join(struct.pack("<QIBBH", *line, 0) for line in lines)
    return body + bytes(-len(body) % 64)


def test_a_fetch_names_no_partition_and_an_acknowledge_has_its_lines_and_reasons() -> None:
    fetch = sent(QueueFetch(1, 2, 4096, 16, 5.0), 3, 7, 4)
    assert fetch.opcode is wire.Opcode.FETCH
    assert fetch.fields == {
        "topic": 3, "layout_version": 4, "flags": int(wire.RequestFlags.COHORT), "producer_id": 7,
        "sequence": 2**64 - 1, "send": 4096, "rows": 16,
    }  # fmt: skip
    lines = (Told(5, 9, 2, What.DONE), Told(9, 10, 2, What.FAILED, 3, 1500, b"bad"))
    said = sent(QueueSettle(1, 2, 6, 11, lines), 3, 7, 4)
    assert (said.fields["partition"], said.fields["producer_epoch"], said.fields["rows"]) == (6, 11, 2)
    first, second = struct.iter_unpack("<QQIBBHII", said.body[:64])
    assert first == (5, 2, 4, 0, 0, 0, 0, 0)
    assert second == (9, 2, 1, 1, 3, 3, 1500, 0)
    assert said.body[64:] == b"bad" + bytes(5)


def answer(body: bytes, **fields: int) -> Answer:
    return Answer(wire.AnswerHeader(**fields), memoryview(body))


def test_rows_elsewhere_are_a_trailer_alone() -> None:
    body = trailer((5, 3, 0, 0), (9, 2, 1, 4))
    flags = int(wire.AnswerFlags.ELSEWHERE)
    reply = leased_of(answer(body, partition=6, sequence=11, send=len(body), first_offset=5, flags=flags))
    assert (reply.partition, reply.incarnation, reply.start, reply.end) == (6, 11, 5, 11)
    assert reply.is_elsewhere
    assert reply.lines == (Line(5, 8, 0, 0, False), Line(9, 11, 0, 4, True))


def test_no_rows_are_no_lines() -> None:
    assert leased_of(answer(b"", partition=0, sequence=11)).lines == ()


@pytest.mark.parametrize("body", [b"", trailer(version=2), trailer((0, 1, 0, 0))[:40]])
def test_a_trailer_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        lines_of(memoryview(body))


def test_a_trailer_longer_than_the_answer_is_refused() -> None:
    with pytest.raises(ProtocolError, match="longer than the answer"):
        leased_of(answer(b"1234", send=64))


def test_lines_have_the_epoch_of_their_last_row() -> None:
    spans = [(10, 3), (20, 3), (30, 5)]
    line = Line(5, 25, 0, 0, False)
    assert list(_cut(line, spans, 5)) == [line._replace(end=20, epoch=3), line._replace(first=20, epoch=5)]
    assert list(_cut(line._replace(end=15), spans, 5)) == [line._replace(end=15, epoch=3)]
    assert with_epochs([line], memoryview(b""), 7) == (line._replace(epoch=7),)


def test_what_was_not_taken_is_listed() -> None:
    body = struct.pack("<QII", 5, 3, 1) + struct.pack("<QII", 9, 1, 5)
    assert settled_of(answer(body)).not_taken == (
        RowsNotTaken(5, 8, NotTakenBecause.ON_LEASE),
        RowsNotTaken(9, 10, NotTakenBecause.PARKED),
    )
    for damaged in (body[:20], struct.pack("<QII", 5, 3, 77)):
        with pytest.raises(ProtocolError):
            settled_of(answer(damaged))

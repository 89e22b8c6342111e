"""Staged records are fetched by number: one that another history put there is not handed out."""

from __future__ import annotations

import struct
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.common.codec import Answer
from ringfence.native import wire
from ringfence.native._node import crc32c
from ringfence.native.errors import BatchError, ProtocolError, TruncatedError, UnknownOutcomeError
from ringfence.staged_reader import ENTRY, HEAD, StagedFetch, StagedPlace, places

LAYOUT: Any = SimpleNamespace(name="t", topic=7, version=0)


def staged(number: int, rows: int, epoch: int) -> bytes:
    zero = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(bytes(wire.RECORD_HEADER_BYTES)))
    header = zero._replace(
        magic=wire.RECORD_MAGIC,
        kind=wire.RecordKind.STAGED,
        span_bytes=wire.RECORD_HEADER_BYTES,
        rows=rows,
        partition=9,
        record_number=number,
        owner_epoch=epoch,
    )
    head = wire.RECORD_STRUCT.pack(*header)
    return head[:4] + struct.pack("<I", crc32c(head[8:])) + head[8:]


class Owner:
    """Answers each FETCH with the same records."""

    def __init__(self, *records: bytes) -> None:
        self._body = b"".join(records)

    def request_owner(self, *_: object) -> Future[Answer]:
        answered: Future[Answer] = Future()
        header: Any = None
        answered.set_result(Answer(header, memoryview(self._body)))
        return answered


def fetch(*records: bytes) -> StagedFetch:
    owner: Any = Owner(*records)
    return StagedFetch(owner, LAYOUT, lambda: LAYOUT, 9, fetch_bytes=1 << 20, timeout_s=1.0)


def test_a_record_of_a_newer_epoch_than_its_publish_record_is_of_another_history() -> None:
    place = StagedPlace(record=4, offset=100, rows=3, epoch=5)
    [(same, header, _)] = fetch(staged(4, 3, epoch=5)).records([place])
    assert (same, header.rows) == (place, 3)
    assert [found.rows for _, found, _ in fetch(staged(4, 3, epoch=2)).records([place])] == [3]
    with pytest.raises(TruncatedError, match="another history now: record 4 is of epoch 6") as caught:
        list(fetch(staged(4, 3, epoch=6)).records([place]))
    assert caught.value.details["offset"] == 100
    with pytest.raises(ProtocolError, match="differs from the published one"):
        list(fetch(staged(4, 2, epoch=5)).records([place]))


def test_a_disk_that_fails_to_read_is_asked_again() -> None:
    refused = UnknownOutcomeError("reading failed", code=wire.Code.STORAGE_FAILED)
    owner: Any = Owner(staged(4, 3, epoch=5))
    answers = [owner.request_owner(), Future[Answer]()]
    answers[1].set_exception(refused)
    failing: Any = SimpleNamespace(request_owner=lambda *_: answers.pop())
    place = StagedPlace(record=4, offset=100, rows=3, epoch=5)
    found = StagedFetch(failing, LAYOUT, lambda: LAYOUT, 9, fetch_bytes=1 << 20, timeout_s=30.0).records(
        [place]
    )
    assert [record.rows for _, record, _ in found] == [3]
    answers = [Future[Answer]()]
    answers[0].set_exception(BatchError("not retriable"))
    with pytest.raises(BatchError):
        list(
            StagedFetch(failing, LAYOUT, lambda: LAYOUT, 9, fetch_bytes=1 << 20, timeout_s=30.0).records(
                [place]
            )
        )


def test_places_have_the_epoch_of_their_publish_record() -> None:
    body = HEAD.pack(1, 1, 2) + ENTRY.pack(4, 3, 0) + ENTRY.pack(6, 2, 0)
    published: Any = SimpleNamespace(first_offset=100, rows=5, owner_epoch=8, partition=9)
    assert places(published, memoryview(body)) == [StagedPlace(4, 100, 3, 8), StagedPlace(6, 103, 2, 8)]

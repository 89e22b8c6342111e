"""Records of a FETCH body are walked whole, and any damage is named before it is handed out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.native import _node, wire
from ringfence.native.errors import InvalidArgumentError, RecordError


def record(body: bytes, number: int) -> bytes:
    """One record as the log writes it: header, body, zeros up to a multiple of 64."""
    span = -(-(wire.RECORD_HEADER_BYTES + len(body)) // 64) * 64
    fields = wire.RecordHeader(
        magic=wire.RECORD_MAGIC,
        span_bytes=span,
        kind=wire.RecordKind.ROWS,
        record_number=number,
        body_bytes=len(body),
        body_crc=_node.crc32c(body),
    )
    header = bytearray(wire.RECORD_STRUCT.pack(*fields))
    header[4:8] = _node.crc32c(header[8:]).to_bytes(4, "little")
    return (bytes(header) + body).ljust(span, b"\0")


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_each_record_comes_with_its_header_and_the_place_of_its_body(bodies: list[bytes]) -> None:
    whole = b"".join(record(body, number) for number, body in enumerate(bodies))
    seen = []
    for header, start, length in _node.RecordReader(whole):
        fields = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(header))
        seen.append((fields.record_number, whole[start : start + length]))
    assert seen == list(enumerate(bodies))


@settings(max_examples=200)
@given(st.integers(0, 2 * 320 * 8 - 1))
def test_a_flipped_bit_is_damage_unless_it_lies_in_the_padding(bit: int) -> None:
    whole = bytearray(record(b"a" * 100, 0) + record(b"b" * 100, 1))
    assert len(whole) == 2 * 320
    whole[bit // 8] ^= 1 << (bit % 8)
    at = bit // 8 % 320
    if at >= wire.RECORD_HEADER_BYTES + 100:
        assert len(list(_node.RecordReader(whole))) == 2
        return
    with pytest.raises(RecordError) as caught:
        list(_node.RecordReader(whole))
    assert caught.value.position == bit // 8 // 320 * 320


@pytest.mark.parametrize("cut", [1, 100, 191, 192, 300, 319])
def test_a_body_that_ends_too_early_is_damage(cut: int) -> None:
    with pytest.raises(RecordError, match="the record at 0 of the body is damaged"):
        list(_node.RecordReader(record(b"a" * 100, 0)[:cut]))


def test_a_span_that_leads_back_or_out_is_damage() -> None:
    for span in (0, 64, 128, 192, 1 << 31):
        header = bytearray(record(b"a" * 100, 0))
        header[wire.RECORD_SPAN_BYTES_AT : wire.RECORD_SPAN_BYTES_AT + 4] = span.to_bytes(4, "little")
        header[4:8] = _node.crc32c(header[8:192]).to_bytes(4, "little")
        with pytest.raises(RecordError, match=f"span {span} and body 100 do not fit"):
            list(_node.RecordReader(header))


def test_a_body_is_held_while_it_is_read() -> None:
    wrong: Any = 5
    whole = bytearray(record(b"a" * 100, 0))
    reader = _node.RecordReader(whole)
    with pytest.raises(BufferError):
        whole.clear()
    del reader
    whole.clear()
    with pytest.raises(InvalidArgumentError, match="body must be a buffer"):
        _node.RecordReader(wrong)

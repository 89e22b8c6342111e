"""Headers packed by Cython are those of the definition, and a damaged one is never believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.native import _node, wire
from ringfence.native.errors import InvalidArgumentError, ProtocolError
from ringfence.native.frame import (
    header_crc,
    open_answer,
    open_request,
    open_stored,
    pack_answer,
    pack_publish,
    pack_request,
)

SEALED = {"magic", "version", "header_crc"}
WIDTHS = {"B": 8, "H": 16, "I": 32, "Q": 64}


def values(kind: type, layout: str) -> st.SearchStrategy[dict[str, int]]:
    """Every field that a caller gives, over its whole range; the layout has one code a field, in order."""
    codes = [code for code in layout.lstrip("<") if code in WIDTHS]
    names = kind._fields  # type: ignore[attr-defined]
    widths = dict(zip(names, (WIDTHS[code] for code in codes), strict=True))
    return st.fixed_dictionaries(
        {name: st.integers(0, (1 << bits) - 1) for name, bits in widths.items() if name not in SEALED}
    )


@given(values(wire.RequestHeader, wire.REQUEST_STRUCT.format))
def test_a_packed_request_has_every_field_where_the_definition_says(fields: dict[str, int]) -> None:
    out = bytearray(b"\xee" * 200)
    pack_request(out, 8, **fields)
    header = bytes(out[8:136])
    crc = header_crc(header[: wire.REQUEST_HEADER_CRC_AT])
    expected = wire.RequestHeader(magic=wire.MAGIC, version=wire.PROTOCOL_VERSION, header_crc=crc, **fields)
    assert header == wire.REQUEST_STRUCT.pack(*expected)
    assert out[:8] == b"\xee" * 8 and out[136:] == b"\xee" * 64
    assert open_request(header) == expected


VARYING = (
    "request_id",
    "sequence",
    "send",
    "rows",
    "schema_id",
    "deadline_ms",
    "extension_bytes",
    "body_bytes",
    "body_crc",
)


@given(values(wire.RequestHeader, wire.REQUEST_STRUCT.format))
def test_a_batch_header_made_of_a_kept_one_is_the_packed_one(fields: dict[str, int]) -> None:
    whole, kept = bytearray(128), bytearray(128)
    pack_request(whole, 0, **fields)
    pack_request(kept, 0, **{name: 1 if name in VARYING else value for name, value in fields.items()})
    before = bytes(kept)
    assert pack_publish(kept, *(fields[name] for name in VARYING)) == whole
    assert kept == before


def test_a_batch_header_is_made_of_a_header_and_of_values_that_fit() -> None:
    kept = bytearray(128)
    pack_request(kept, 0, wire.Opcode.PUBLISH, 0)
    with pytest.raises(ProtocolError, match="128 bytes, this one 127"):
        pack_publish(bytes(kept[:127]), *[1] * 9)
    for place, bits in enumerate([64, 64, 64, 32, 32, 32, 32, 32, 32]):
        for wrong in (-1, 1 << bits):
            with pytest.raises(OverflowError):
                pack_publish(kept, *[wrong if at == place else 1 for at in range(9)])


@given(values(wire.AnswerHeader, wire.ANSWER_STRUCT.format), st.booleans(), st.booleans(), st.booleans())
def test_a_stored_batch_is_told_in_short_and_nothing_else_is(
    fields: dict[str, int], publish: bool, ok: bool, bare: bool
) -> None:
    fields |= {"opcode": wire.Opcode.PUBLISH} if publish else {}
    fields |= {"status": wire.Status.OK} if ok else {}
    fields |= {"body_bytes": 0} if bare else {}
    out = bytearray(128)
    pack_answer(out, 0, **fields)
    answer = open_answer(out)
    stored = (
        answer.opcode == wire.Opcode.PUBLISH and answer.status == wire.Status.OK and not answer.body_bytes
    )
    expected = (answer.request_id, answer.first_offset, answer.credit_bytes) if stored else None
    assert open_stored(out) == expected


def test_no_damaged_answer_is_taken_for_a_stored_batch() -> None:
    out = bytearray(128)
    pack_answer(out, 0, wire.Opcode.PUBLISH, wire.Status.OK, 7, first_offset=3, credit_bytes=5)
    assert open_stored(out) == (7, 3, 5)
    for bit in range(128 * 8):
        damaged = bytearray(out)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert open_stored(damaged) is None
    assert open_stored(out[:127]) is None
    newer = bytearray(out)
    newer[4] = wire.PROTOCOL_VERSION + 1
    newer[wire.ANSWER_HEADER_CRC_AT :] = header_crc(newer[: wire.ANSWER_HEADER_CRC_AT]).to_bytes(4, "little")
    assert open_stored(newer) is None


@given(values(wire.AnswerHeader, wire.ANSWER_STRUCT.format))
def test_a_packed_answer_has_every_field_where_the_definition_says(fields: dict[str, int]) -> None:
    out = bytearray(128)
    pack_answer(out, 0, **fields)
    crc = header_crc(out[: wire.ANSWER_HEADER_CRC_AT])
    expected = wire.AnswerHeader(magic=wire.MAGIC, version=wire.PROTOCOL_VERSION, header_crc=crc, **fields)
    assert bytes(out) == wire.ANSWER_STRUCT.pack(*expected)
    assert open_answer(out) == expected


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    out = bytearray(128)
    pack_request(out, 0, wire.Opcode.PUBLISH, 7, rows=3, body_bytes=128)
    for bit in range(128 * 8):
        damaged = bytearray(out)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(ProtocolError):
            open_request(damaged)
        with pytest.raises(ProtocolError):
            open_answer(damaged)


def test_a_header_of_another_version_or_length_is_refused_with_the_values() -> None:
    newer = bytearray(wire.REQUEST_STRUCT.pack(*wire.RequestHeader(magic=wire.MAGIC, version=9)))
    newer[124:] = header_crc(newer[:124]).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match=r"version 9 is outside 1\.\.1"):
        open_request(newer)
    with pytest.raises(ProtocolError, match="128 bytes, this one 127"):
        open_request(newer[:127])
    with pytest.raises(ProtocolError, match=r"magic is 0x00000000.*not a ringfence peer"):
        open_answer(bytes(128))


@pytest.mark.parametrize(("size", "at"), [(127, 0), (128, 1), (256, -1), (256, 129)])
def test_no_header_is_written_beyond_a_buffer(size: int, at: int) -> None:
    out = bytearray(size)
    with pytest.raises(InvalidArgumentError, match=f"128 bytes at {at}, but the buffer has {size}"):
        pack_request(out, at, 1, 1)
    assert out == bytes(size)
    with pytest.raises(BufferError):
        pack_request(bytes(128), 0, 1, 1)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_value_that_does_not_fit_its_field_is_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        pack_request(bytearray(128), 0, 1, 1, rows=value)


def test_rust_seals_the_same_header() -> None:
    packed = bytearray(128)
    pack_request(packed, 0, wire.Opcode.FETCH, 5, topic=7)
    bare = bytearray(packed)
    bare[:6], bare[124:] = bytes(6), bytes(4)
    _node.crc32c_seal(bare)
    assert bare == packed
    with pytest.raises(InvalidArgumentError, match="128 bytes, this buffer has 3"):
        _node.crc32c_seal(bytearray(3))

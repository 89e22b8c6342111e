"""Spark SQL's xxhash64 in slow, plain Python: the rules of its documentation over the `xxhash` package."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import xxhash

SEED = 42
MASK = (1 << 64) - 1
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - Arrow's timestamps count from it in UTC
INTS = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.date32())
NAN_BITS = {"<f": 0x7FC00000, "<d": 0x7FF8000000000000}


def xxh(data: bytes, seed: int) -> int:
    return int(xxhash.xxh64_intdigest(data, seed))


def float_bytes(value: float, code: str) -> bytes:
    if value != value:  # noqa: PLR0124 - NaN
        return NAN_BITS[code].to_bytes(4 if code == "<f" else 8, "little")
    return struct.pack(code, value if value != 0 else 0.0)


def shortest_big_endian(value: int) -> bytes:
    """Java's BigInteger.toByteArray."""
    size = 1
    while not -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
        size += 1
    return value.to_bytes(size, "big", signed=True)


def unscaled(value: Any, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -int(whole) if sign else int(whole)


def hash_value(kind: pa.DataType, value: Any, seed: int) -> int:
    """`value` as `to_pylist` gives it."""
    if value is None or pa.types.is_null(kind):
        return seed
    if isinstance(value, datetime.datetime):
        value = (value.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1)
    elif isinstance(value, datetime.date):
        value = (value - EPOCH.date()).days
    if pa.types.is_dictionary(kind):
        return hash_value(kind.value_type, value, seed)
    if kind in INTS:
        return xxh(struct.pack("<i", int(value)), seed)
    if kind == pa.int64() or pa.types.is_timestamp(kind):
        return xxh(struct.pack("<q", value), seed)
    if kind == pa.float32():
        return xxh(float_bytes(value, "<f"), seed)
    if kind == pa.float64():
        return xxh(float_bytes(value, "<d"), seed)
    if pa.types.is_decimal(kind):
        number = unscaled(value, kind.scale)
        return xxh(struct.pack("<q", number) if kind.precision <= 18 else shortest_big_endian(number), seed)
    if pa.types.is_struct(kind):
        for field in kind:
            seed = hash_value(field.type, value[field.name], seed)
        return seed
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        for element in value:
            seed = hash_value(kind.value_type, element, seed)
        return seed
    return xxh(value.encode() if isinstance(value, str) else value, seed)


def hash_rows(columns: Sequence[pa.Array]) -> list[int]:
    """Signed 64-bit hashes, one a row."""
    values = [column.to_pylist() for column in columns]
    hashes = []
    for row in zip(*values, strict=True):
        h = SEED
        for column, value in zip(columns, row, strict=True):
            h = hash_value(column.type, value, h)
        hashes.append(h - (1 << 64) if h >> 63 else h)
    return hashes


def slot_of(signed: int) -> int:
    return (signed & MASK) >> 48

"""Convert Arrow arrays into values for tables and JSON, with one form for all types of a kind.

Instants are ISO 8601 in UTC with a Z; timestamps without a time zone have no Z; durations are ISO 8601. The
fraction of a second has the digits of the column's unit and is omitted if it is zero. Arrow formats the
texts, because Python's types support neither nanoseconds nor years outside 1 to 9999.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86_400
UNITS_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
LIMITS = {math.inf: "Infinity", -math.inf: "-Infinity"}


def rows_of(batch: pa.RecordBatch, *, as_json: bool = False) -> list[dict[str, Any]]:
    """Return the rows as dicts by column. `as_json`: replace NaN and infinities by texts."""
    columns = [_values(column, as_json) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(array: pa.Array, as_json: bool) -> list[Any]:  # noqa: FBT001 - passed on at each level
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _values(array.storage, as_json) if _is_special(kind.storage_type, as_json) else _as_is(array)
    if not _is_special(kind, as_json):
        return _as_is(array)
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode(), as_json)
    if types.is_run_end_encoded(kind):
        return _values(pc.run_end_decode(array), as_json)
    if types.is_struct(kind):
        return _structs(array, as_json)
    if types.is_map(kind):
        keys = _spans(array, array.keys, as_json)
        items = _spans(array, array.items, as_json)
        return [
            None if names is None else list(zip(names, values, strict=True))
            for names, values in zip(keys, items, strict=True)
        ]
    if types.is_list(kind) or types.is_large_list(kind):
        return _spans(array, array.values, as_json)
    if types.is_fixed_size_list(kind):
        return _fixed_lists(array, as_json)
    if types.is_temporal(kind):
        return _texts(array)
    if types.is_floating(kind):
        return [_json_float(value) for value in array.to_pylist()]
    return _as_is(array)


def _is_special(kind: pa.DataType, as_json: bool) -> bool:  # noqa: FBT001 - as above
    """Return whether values of this type, at any depth, need conversion beyond `to_pylist`."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _is_special(kind.storage_type, as_json)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _is_special(kind.value_type, as_json)
    if kind.num_fields:
        return any(_is_special(kind.field(place).type, as_json) for place in range(kind.num_fields))
    is_interval = kind == pa.month_day_nano_interval()
    return bool((types.is_temporal(kind) and not is_interval) or (as_json and types.is_floating(kind)))


def _as_is(array: pa.Array) -> list[Any]:
    """Return Python values; a value without a Python equivalent becomes the text that pyarrow prints."""
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError, ImportError, pa.ArrowException):
        values = [str(scalar) if scalar.is_valid else None for scalar in array]
    return values


def _structs(array: pa.StructArray, as_json: bool) -> list[Any]:  # noqa: FBT001 - as above
    names = [array.type.field(place).name for place in range(array.type.num_fields)]
    columns = [_values(column, as_json) for column in array.flatten()]
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for is_valid, row in zip(valid, zip(*columns, strict=True), strict=True)
    ]


def _spans(array: Any, child: pa.Array, as_json: bool) -> list[Any]:  # noqa: FBT001 - as above
    """Return the lists of an array with offsets, which may be a slice; `child` has all values."""
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    values = _values(child.slice(first, offsets[-1] - first), as_json)
    return [
        values[begin - first : end - first] if is_valid else None
        for is_valid, begin, end in zip(array.is_valid().to_pylist(), offsets[:-1], offsets[1:], strict=True)
    ]


def _fixed_lists(array: pa.FixedSizeListArray, as_json: bool) -> list[Any]:  # noqa: FBT001 - as above
    size = array.type.list_size
    values = _values(array.values.slice(array.offset * size, len(array) * size), as_json)
    return [
        values[place * size : (place + 1) * size] if is_valid else None
        for place, is_valid in enumerate(array.is_valid().to_pylist())
    ]


def _texts(array: pa.Array) -> list[str | None]:
    kind, types = array.type, pa.types
    if types.is_duration(kind):
        return _each(array.view(pa.int64()), lambda number: duration_text(number, kind.unit))
    if not types.is_timestamp(kind):
        return _each(_text(array), lambda text: text)
    # Drop the zone's name: producers may send zones that pyarrow and Python do not know.
    texts = _text(array.view(pa.int64()).view(pa.timestamp(kind.unit)))
    zone = "" if kind.tz is None else "Z"
    return _each(texts, lambda text: f"{text.replace(' ', 'T', 1)}{zone}" if text[0] != "<" else text)


def _text(array: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(array.cast(pa.string()), r"\.0+$", "")


def _each(array: pa.Array, change: Callable[[Any], str]) -> list[str | None]:
    return [None if value is None else change(value) for value in array.to_pylist()]


def duration_text(number: int, unit: str) -> str:
    """Return a duration as ISO 8601 in days and seconds, as `P1DT2.5S`, without timedelta's limits."""
    second = UNITS_A_SECOND[unit]
    seconds, fraction = divmod(abs(number), second)
    days, seconds = divmod(seconds, DAY_S)
    sign = "-" if number < 0 else ""
    digits = f"{fraction:0{len(str(second)) - 1}d}".rstrip("0") if fraction else ""
    time = f"T{seconds}{'.' if digits else ''}{digits}S" if seconds or digits else ""
    day = f"{days}D" if days or not time else ""
    return f"{sign}P{day}{time}"


def _json_float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return LIMITS.get(value, "NaN")

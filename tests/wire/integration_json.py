"""Arrow's JSON integration format to pyarrow arrays, buffer by buffer, to hold golden streams against it.

Format: https://arrow.apache.org/docs/format/Integration.html
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

Column = dict[str, Any]
Dictionaries = dict[int, Column]


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        return dict(json.load(file))


def bits(values: list[int]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(values, np.uint8), bitorder="little").tobytes())


def validity(column: Column) -> pa.Buffer | None:
    return bits(column["VALIDITY"]) if "VALIDITY" in column else None


def numbers(values: list[Any], dtype: str) -> pa.Buffer:
    return pa.py_buffer(np.array([int(value) for value in values], dtype).tobytes())


def integers(values: list[Any], width_bytes: int, signed: bool = True) -> pa.Buffer:
    return pa.py_buffer(
        b"".join(int(value).to_bytes(width_bytes, "little", signed=signed) for value in values)
    )


def varied(column: Column, dtype: str, encode: Any) -> list[pa.Buffer | None]:
    """Validity, offsets, data: values of null slots are cut to the length that the offsets say."""
    offsets = [int(value) for value in column["OFFSET"]]
    data = b"".join(
        encode(value)[: end - start].ljust(end - start, b"\0")
        for value, start, end in zip(column["DATA"], offsets, offsets[1:], strict=False)
    )
    return [validity(column), numbers(offsets, dtype), pa.py_buffer(data)]


def views(column: Column, text: bool) -> list[pa.Buffer | None]:
    packed = b""
    for view in column["VIEWS"]:
        size = int(view["SIZE"])
        if "INLINED" in view:
            value = view["INLINED"].encode() if text else bytes.fromhex(view["INLINED"])
            packed += size.to_bytes(4, "little") + value.ljust(12, b"\0")
        else:
            packed += size.to_bytes(4, "little") + bytes.fromhex(view["PREFIX_HEX"])
            packed += int(view["BUFFER_INDEX"]).to_bytes(4, "little") + int(view["OFFSET"]).to_bytes(
                4, "little"
            )
    return [
        validity(column),
        pa.py_buffer(packed),
        *(pa.py_buffer(bytes.fromhex(data)) for data in column["VARIADIC_DATA_BUFFERS"]),
    ]


def interval(value: Any, kind: str) -> bytes:
    if kind == "month_interval":
        return int(value).to_bytes(4, "little", signed=True)
    if kind == "day_time_interval":
        return b"".join(
            int(value[key]).to_bytes(4, "little", signed=True) for key in ("days", "milliseconds")
        )
    head = b"".join(int(value[key]).to_bytes(4, "little", signed=True) for key in ("months", "days"))
    return head + int(value["nanoseconds"]).to_bytes(8, "little", signed=True)


def fixed(kind: pa.DataType, column: Column) -> pa.Buffer:
    """The data buffer of a type whose values all have one width."""
    data, name = column["DATA"], str(kind)
    if pa.types.is_boolean(kind):
        return bits(data)
    if pa.types.is_floating(kind):
        return pa.py_buffer(np.array(data, kind.to_pandas_dtype()).tobytes())
    if pa.types.is_fixed_size_binary(kind):
        return pa.py_buffer(b"".join(bytes.fromhex(value) for value in data))
    if "interval" in name:
        return pa.py_buffer(b"".join(interval(value, name) for value in data))
    return integers(data, kind.bit_width // 8, signed=not pa.types.is_unsigned_integer(kind))


def nested(kind: pa.DataType, column: Column, dictionaries: Dictionaries) -> pa.Array:
    count, parts = column["count"], column.get("children", [])
    children = [array(kind.field(at).type, part, dictionaries) for at, part in enumerate(parts)]
    buffers: list[pa.Buffer | None] = [validity(column)]
    if pa.types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays(*children)
    if pa.types.is_union(kind):
        buffers = [None, numbers(column["TYPE_ID"], "i1")]
        if kind.mode == "dense":
            buffers.append(numbers(column["OFFSET"], "<i4"))
    elif "OFFSET" in column:
        large = "large" in str(kind)
        buffers.append(numbers(column["OFFSET"], "<i8" if large else "<i4"))
        if "SIZE" in column:
            buffers.append(numbers(column["SIZE"], "<i8" if large else "<i4"))
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def array(kind: pa.DataType, column: Column, dictionaries: Dictionaries) -> pa.Array:
    """`column` as an array of type `kind`."""
    count = column["count"]
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, array(kind.storage_type, column, dictionaries))
    if pa.types.is_dictionary(kind):
        indices = array(kind.index_type, column, dictionaries)
        values = array(kind.value_type, dictionaries[column["_dictionary"]], dictionaries)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered, safe=False)
    if pa.types.is_null(kind):
        return pa.nulls(count)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.Array.from_buffers(kind, count, views(column, pa.types.is_string_view(kind)))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.Array.from_buffers(
            kind, count, varied(column, "<i4" if pa.types.is_string(kind) else "<i8", str.encode)
        )
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.Array.from_buffers(
            kind, count, varied(column, "<i4" if pa.types.is_binary(kind) else "<i8", bytes.fromhex)
        )
    if pa.types.is_nested(kind):
        return nested(kind, column, dictionaries)
    return pa.Array.from_buffers(kind, count, [validity(column), fixed(kind, column)])


def mark_dictionaries(field: dict[str, Any], column: Column) -> None:
    """Write each dictionary-encoded column's dictionary id beside its data, children too."""
    if "dictionary" in field:
        column["_dictionary"] = field["dictionary"]["id"]
    for inner, part in zip(field.get("children", []), column.get("children", []), strict=False):
        mark_dictionaries(inner, part)


def dictionary_fields(field: dict[str, Any], found: dict[int, dict[str, Any]]) -> None:
    if "dictionary" in field:
        found[field["dictionary"]["id"]] = field
    for inner in field.get("children", []):
        dictionary_fields(inner, found)


def batches(document: dict[str, Any], schema: pa.Schema) -> list[pa.RecordBatch]:
    """The document's batches under the schema that the stream gave."""
    fields = document["schema"]["fields"]
    by_id: dict[int, dict[str, Any]] = {}
    for field in fields:
        dictionary_fields(field, by_id)
    dictionaries = {item["id"]: item["data"]["columns"][0] for item in document.get("dictionaries", [])}
    for number, column in dictionaries.items():
        # A dictionary's own values have the field's children; its own encoding is not nested in itself.
        for inner, part in zip(by_id[number].get("children", []), column.get("children", []), strict=False):
            mark_dictionaries(inner, part)
    made = []
    for batch in document["batches"]:
        for field, column in zip(fields, batch["columns"], strict=True):
            mark_dictionaries(field, column)
        arrays = [
            array(kind, column, dictionaries)
            for kind, column in zip(schema.types, batch["columns"], strict=True)
        ]
        made.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return made

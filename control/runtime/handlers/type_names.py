"""Parse names of column types: those that pyarrow prints, and a few common ones."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

# Lists of lists in one name.
NESTED_MAX: Final = 8
_DECIMAL: Final = re.compile(r"decimal(?:128)?\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)")
_ZONED: Final = re.compile(r"timestamp\[(s|ms|us|ns),\s*(?:tz=)?([A-Za-z0-9_+:/-]+)\]")
_LIST: Final = re.compile(r"list<(?:\w+: )?(.+)>")
_ALIASES: Final = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "bytes": pa.binary(),
    "str": pa.string(),
}
# Names of SQL, pandas and Spark, for hints only: their widths differ between these systems.
_SUGGESTIONS: Final = {
    "int": "int64",
    "integer": "int64",
    "long": "int64",
    "bigint": "int64",
    "smallint": "int16",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "object": "string",
    "boolean": "bool",
    "real": "float",
    "number": "decimal(15,2)",
    "numeric": "decimal(15,2)",
    "decimal256": "decimal(38,0)",
    "datetime": "timestamp[us]",
    "timestamptz": "timestamp[us, UTC]",
    "blob": "binary",
    "bytea": "binary",
    "array": "list<string>",
}


def parse_type(text: str, depth: int = 0) -> pa.DataType:
    """A type by its name. ValueError for an unknown name; the text has examples."""
    try:
        if match := _DECIMAL.fullmatch(text):
            return pa.decimal128(int(match[1]), int(match[2]))
        if match := _ZONED.fullmatch(text):
            return pa.timestamp(match[1], tz=match[2])
        if (match := _LIST.fullmatch(text)) and depth < NESTED_MAX:
            return pa.list_(parse_type(match[1], depth + 1))
        if text in _ALIASES:
            return _ALIASES[text]
        return pa.type_for_alias(text)
    except ValueError:
        suggestion = _SUGGESTIONS.get(text.partition("(")[0].strip().lower())
        hint = f" (did you mean {suggestion}?)" if suggestion else ""
        raise ValueError(
            f"type {text[:100]!r} is unknown{hint}: int64, string, double, bool, date32, timestamp[us], "
            "timestamp[us, UTC], decimal(15,2), list<string>"
        ) from None

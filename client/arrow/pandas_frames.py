"""Convert pandas DataFrames to Arrow tables; columns are matched by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ringfence.native.errors import BatchError, SchemaError


def pandas_class(data: Any) -> str | None:
    """The pandas class of the object, or the pandas base of its class, as in geopandas; else None."""
    for base in type(data).__mro__:
        if base.__module__.partition(".")[0] == "pandas" and base.__name__ in {"DataFrame", "Series"}:
            return str(base.__name__)
    return type(data).__name__ if type(data).__module__.partition(".")[0] == "pandas" else None


def from_pandas(frame: Any, schema: pa.Schema, kind: str = "DataFrame") -> pa.Table:
    """The columns and named index levels of the frame, in the topic's types.

    With the whole schema pyarrow would refuse a frame that lacks a nullable column, and drop additional
    columns. An index without a name is left out.

    Args:
        frame: the object.
        schema: of the topic.
        kind: `pandas_class(frame)`.

    Raises:
        BatchError: it is not a DataFrame, or Arrow cannot represent a column.
        SchemaError: the topic has no such column.
        ValueError, KeyError: raised by pyarrow's conversion.
    """
    if kind != "DataFrame":
        raise BatchError(
            f"a pandas {kind} has no named columns; send a DataFrame, for example by `to_frame()`"
        )
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    for name, where in (*((name, "column") for name in frame.columns), *((name, "index") for name in levels)):
        if name not in schema.names:
            drop = "drop it" if where == "column" else "drop it (`reset_index(drop=True)`)"
            raise SchemaError(
                f'{where} "{name}" of the DataFrame is not in the topic; {drop} or add it to the topic\'s '
                "schema" + other_case(str(name), schema.names),
                column=str(name),
            )
    # pyarrow converts either the whole index or nothing of it.
    if levels:
        frame = frame.reset_index(levels)
    known = set(frame.columns)
    fields = [field for field in schema if field.name in known]
    try:
        return pa.Table.from_pandas(frame, schema=pa.schema(fields), preserve_index=False)
    except (TypeError, AttributeError) as error:  # raised by pyarrow, for example for sparse columns
        raise BatchError(
            f"the DataFrame cannot be read as rows: {error}; convert its columns to plain types"
        ) from error


def other_case(name: str, known: list[str]) -> str:
    """A clause about a column whose name differs only in upper and lower case; else empty."""
    found = next((one for one in known if one.lower() == name.lower()), None)
    return "" if found is None else f'; the topic has "{found}": names differ by upper and lower case'

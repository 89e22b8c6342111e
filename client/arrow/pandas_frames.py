"""Reads pandas DataFrames as rows: columns matched by name, as those of everything else that is sent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ringfence.native.errors import BatchError, SchemaError


def pandas_class(data: Any) -> str | None:
    """The name of pandas' own class that the object is of, or derived from, as geopandas' frames are."""
    for base in type(data).__mro__:
        if base.__module__.partition(".")[0] == "pandas" and base.__name__ in {"DataFrame", "Series"}:
            return str(base.__name__)
    return type(data).__name__ if type(data).__module__.partition(".")[0] == "pandas" else None


def from_pandas(frame: Any, schema: pa.Schema, kind: str = "DataFrame") -> pa.Table:
    """The columns and named index levels of the frame, in the topic's types.

    pyarrow, given the whole schema, refuses a frame without a nullable column and drops columns beyond it. An
    index without a name is left out.

    Args:
        frame: the object.
        schema: of the topic.
        kind: `pandas_class(frame)`.

    Raises:
        BatchError: it is no DataFrame, or a column is of a kind that Arrow has not.
        SchemaError: the topic has no such column.
        ValueError, KeyError: as pyarrow's conversion.
    """
    if kind != "DataFrame":
        raise BatchError(f"a pandas {kind} has no columns with names; send a DataFrame (`to_frame()`, say)")
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    for name, where in (*((name, "column") for name in frame.columns), *((name, "index") for name in levels)):
        if name not in schema.names:
            drop = "drop it" if where == "column" else "drop it (`reset_index(drop=True)`)"
            raise SchemaError(
                f'{where} "{name}" of the DataFrame is not in the topic; {drop} or add it to the topic\'s '
                "schema" + other_case(str(name), schema.names),
                column=str(name),
            )
    # pyarrow takes an index whole, or nothing of it.
    if levels:
        frame = frame.reset_index(levels)
    known = set(frame.columns)
    fields = [field for field in schema if field.name in known]
    try:
        return pa.Table.from_pandas(frame, schema=pa.schema(fields), preserve_index=False)
    except (TypeError, AttributeError) as error:  # pyarrow's own, for sparse columns and the like
        raise BatchError(
            f"the DataFrame cannot be read as rows: {error}; convert its columns to plain ones"
        ) from error


def other_case(name: str, known: list[str]) -> str:
    """The rest of a sentence that names the column which differs only in upper and lower case."""
    found = next((one for one in known if one.lower() == name.lower()), None)
    return "" if found is None else f'; the topic has "{found}": names differ by upper and lower case'

"""pandas DataFrames as rows: columns matched by name, as those of everything else that is sent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ringfence.native.errors import SchemaError


def from_pandas(frame: Any, schema: pa.Schema) -> pa.Table:
    """The columns and named index levels that the frame has, in the topic's types.

    pyarrow, given the whole schema, refuses a frame without a nullable column and drops columns beyond it.

    Raises:
        SchemaError: the topic has no such column.
        ValueError, KeyError: as pyarrow's conversion.
    """
    extra = [name for name in frame.columns if name not in schema.names]
    if extra:
        raise SchemaError(
            f'column "{extra[0]}" of the DataFrame is not in the topic; drop it or add it to the topic\'s '
            "schema",
            column=str(extra[0]),
        )
    # pyarrow takes an index whole, or nothing of it.
    levels = [name for name in frame.index.names if name in schema.names and name not in frame.columns]
    if levels:
        frame = frame.reset_index(levels)
    known = set(frame.columns)
    fields = [field for field in schema if field.name in known]
    return pa.Table.from_pandas(frame, schema=pa.schema(fields), preserve_index=False)

"""Validate Arrow arrays from callers. pyarrow accepts any buffers and validates them only on request.

The quick check (0.2 us for any number of rows) compares the lengths of all buffers with those of the arrays,
and the last offsets with the buffers that they point into. The native loops check the other offsets as they
follow them. The full check reads every value. It runs before pyarrow casts or joins columns with children or
indices, because pyarrow does not validate them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ringfence.native.errors import BatchError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def require(rows: Any) -> None:
    """Run the quick check on a batch, a table or an array.

    Raises:
        BatchError: a buffer is too short, or a last offset points past its end; it names the column.
    """
    try:
        rows.validate()
    except pa.ArrowException as error:
        raise fault(rows) or BatchError(
            f"the Arrow data of the rows is invalid: {error}; build the arrays again"
        ) from error


def require_valid(name: str, column: pa.Array) -> None:
    """Run the full check on a column with children or indices; other columns need none.

    Raises:
        BatchError: a value is invalid; it names the column.
    """
    _require(name, column, lambda column: column.validate(full=True))


def require_used(name: str, column: pa.Array) -> None:
    """Run the full check on the values that the rows use: enough before pyarrow joins columns.

    A slice keeps the children of the whole column. pyarrow validates all of them each time, but joins only
    those of the slice (its casts use all).

    Raises:
        BatchError: a value is invalid; it names the column.
    """
    _require(name, column, _check_used)


def _require(name: str, column: pa.Array, look: Callable[[pa.Array], None]) -> None:
    if not column.type.num_fields and not pa.types.is_dictionary(column.type):
        return
    try:
        look(column)
    except pa.ArrowException as error:
        raise _invalid(name, error, None) from error


def _check_used(column: pa.Array) -> None:
    """Raises ArrowException for an invalid value. The quick check has verified the buffer lengths."""
    kind = column.type
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _check_used(column.field(place))  # only the used values
        return
    large = pa.types.is_large_list(kind)
    if not len(column) or not (large or pa.types.is_list(kind)):
        column.validate(full=True)
        return
    width = 8 if large else 4
    offsets: np.ndarray[Any, np.dtype[np.signedinteger[Any]]] = np.frombuffer(
        column.buffers()[1], f"i{width}", len(column) + 1, width * column.offset
    )
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > len(column.values) or (offsets[1:] < offsets[:-1]).any():
        column.validate(full=True)  # raises, and names the value
    _check_used(column.values.slice(first, last - first))


def fault(rows: Any, *, full: bool = False, topic: str | None = None) -> BatchError | None:
    """The error of the first invalid column, or None; `full`: use the full check."""
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        return None
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=full)
        except pa.ArrowException as error:
            return _invalid(name, error, topic)
    return None


def _invalid(name: str, why: pa.ArrowException, topic: str | None) -> BatchError:
    return BatchError(
        f'the Arrow data of column "{name}" is invalid: {why}; build the column again',
        topic=topic,
        column=name,
    )


def cut_name(fields: Iterable[pa.Field]) -> str | None:
    """A name with a zero byte, at any depth: Arrow's C interface would cut it there."""
    for field in fields:
        if "\0" in field.name:
            return str(field.name)
        kind = field.type
        below = cut_name(kind.field(place) for place in range(kind.num_fields)) if kind.num_fields else None
        if below is not None:
            return below
    return None


def cut_error(name: str) -> SchemaError:
    """The error for a name that `cut_name` found."""
    return SchemaError(f"a column's name {name!r} has a zero byte; rename it", column=name)

"""Is an Arrow batch what it says? pyarrow makes arrays of any buffers, and looks only when it is asked.

Two looks. The quick one (0.2 us, whatever the rows) compares the lengths of all buffers with those of the
arrays, and last offsets with what they point into. What stands between, the native loops compare themselves
where they follow it. The whole one reads every value: before pyarrow itself casts what has children or
indexes (or joins it: then those that its rows use), for it takes all of that for granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ringfence.native.errors import BatchError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def require(rows: Any) -> None:
    """The quick look at a batch, a table or an array.

    Raises:
        BatchError: a buffer is too short, or a last offset points behind its end; it names the column.
    """
    try:
        rows.validate()
    except pa.ArrowException as error:
        raise fault(rows) or BatchError(f"the rows are not sound: {error}; build them anew") from error


def require_whole(name: str, column: pa.Array) -> None:
    """The whole look at a column with children or indexes; others need none.

    Raises:
        BatchError: a value is not sound; it names the column.
    """
    _require(name, column, lambda column: column.validate(full=True))


def require_used(name: str, column: pa.Array) -> None:
    """The whole look at no more of a column than its rows use: enough before pyarrow joins it.

    A slice carries the children of the whole column. pyarrow looks at all of them each time, but joins only
    those of the slice (its casts do not keep to that).

    Raises:
        BatchError: a value is not sound; it names the column.
    """
    _require(name, column, _look)


def _require(name: str, column: pa.Array, look: Callable[[pa.Array], None]) -> None:
    if not column.type.num_fields and not pa.types.is_dictionary(column.type):
        return
    try:
        look(column)
    except pa.ArrowException as error:
        raise _unsound(name, error, None) from error


def _look(column: pa.Array) -> None:
    """ArrowException if a value is not sound. The quick look found enough bytes in each buffer."""
    kind = column.type
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _look(column.field(place))  # as far as the rows go
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
        column.validate(full=True)  # says which
    _look(column.values.slice(first, last - first))


def fault(rows: Any, *, full: bool = False, topic: str | None = None) -> BatchError | None:
    """The error of the first column that is not sound, if one is; `full`: by the whole look."""
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        return None
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=full)
        except pa.ArrowException as error:
            return _unsound(name, error, topic)
    return None


def _unsound(name: str, why: pa.ArrowException, topic: str | None) -> BatchError:
    return BatchError(f'column "{name}" is not sound: {why}; build it anew', topic=topic, column=name)


def cut_name(fields: Iterable[pa.Field]) -> str | None:
    """A name with a zero byte, at any depth: Arrow's C interface would end it there, as another name."""
    for field in fields:
        if "\0" in field.name:
            return str(field.name)
        kind = field.type
        below = cut_name(kind.field(place) for place in range(kind.num_fields)) if kind.num_fields else None
        if below is not None:
            return below
    return None


def cut_error(name: str) -> SchemaError:
    """For a name that `cut_name` found."""
    return SchemaError(f"a column's name {name!r} has a zero byte; rename it", column=name)

"""Convert rows of the caller to record batches: pyarrow, pandas, or any object with an Arrow interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ringfence.arrow import array_checks
from ringfence.arrow.pandas_frames import from_pandas, pandas_class
from ringfence.native import wire
from ringfence.native.errors import BatchError, InvalidArgumentError, RingfenceError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below this size all buffers of a batch are counted in full, even if a slice uses less: an exact count takes
# 17 us instead of 0.7 us, as long as the encoding of one row.
SMALL_BYTES_MAX = 4096
# Half of the largest message: the result stays below the limit even if the estimate is too low by a factor of
# 2.
CHUNK_BYTES_MAX = wire.MESSAGE_BYTES_MAX // 2
ROWS_MAX = wire.ROWS_MAX  # of one message


def record_batches(data: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Like `each_batch`, as a list. A stream is read to its end."""
    if isinstance(data, pa.RecordBatch):
        return _checked([data])
    return list(each_batch(data, schema))


def each_batch(data: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`data` as record batches with at least one row each; Arrow data is not copied.

    Args:
        data: a pyarrow RecordBatch or Table, anything with `__arrow_c_array__` or `__arrow_c_stream__`
            (polars, duckdb, nanoarrow, ...), or a pandas DataFrame. A stream is read as far as the iterator.
        schema: of the topic; pandas columns are converted to it.

    Raises:
        InvalidArgumentError: `data` is of another type.
        BatchError: `data` cannot be read as rows.
    """
    try:
        for batch in _parts(data, schema):
            yield from _checked([batch])
    except RingfenceError:  # some of these are also ValueErrors
        raise
    except (
        pa.ArrowException,
        ValueError,  # for example pa.ArrowInvalid, or pandas' nulls in a column without nulls
        KeyError,
        OSError,  # a stream that ends early or whose source fails
    ) as error:
        raise BatchError(f"the {type(data).__name__} cannot be read as rows: {error}") from error


def _parts(data: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        yield data
    elif (kind := pandas_class(data)) is not None:
        yield from from_pandas(data, schema, kind).to_batches()
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(data)
    else:
        raise InvalidArgumentError(
            f"a {type(data).__name__} has neither __arrow_c_array__ nor __arrow_c_stream__; pass a "
            "pyarrow, polars, duckdb or pandas object"
        )


def is_stream(data: Any) -> bool:
    """Whether reading may consume the rows or exceed the memory; False only for known in-memory tables."""
    if isinstance(data, pa.RecordBatch | pa.Table) or hasattr(data, "__arrow_c_array__"):
        return False
    module = type(data).__module__.partition(".")[0]
    return hasattr(data, "__arrow_c_stream__") and module != "polars" and pandas_class(data) is None


class _Checked:
    """The last schema whose names were checked; a comparison takes a tenth of a check."""

    schema: ClassVar[pa.Schema | None] = None


def _check_names(schema: pa.Schema) -> None:
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise SchemaError(f'two columns are named "{twice}"; rename or drop one', column=twice)
    if "\0" in "".join(names):
        raise array_checks.cut_error(next(name for name in names if "\0" in name))
    _Checked.schema = schema


def _checked(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches with rows.

    Raises BatchError for invalid ones: later readers do not check buffer lengths.
    """
    for batch in batches:
        if _Checked.schema is None or not batch.schema.equals(_Checked.schema):
            _check_names(batch.schema)
        array_checks.require(batch)
    return [batch for batch in batches if batch.num_rows]


def one_batch(batches: list[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Join batches of one schema; several batches are copied.

    Different dictionaries are unified. If Arrow cannot do that (too many values for the index type, nulls or
    nested values), their plain values are joined, in the column types of the topic's `schema`.

    Raises:
        BatchError: they cannot be joined.
    """
    if len(batches) == 1:
        return batches[0]
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            array_checks.require_used(name, column)
    try:
        table = pa.Table.from_batches(batches).combine_chunks()
    except pa.ArrowException as error:
        try:
            table = _in_plain_values(pa.Table.from_batches(batches), schema)
        except pa.ArrowException:
            raise BatchError(
                f"the rows consist of {len(batches)} parts that cannot be joined ({error}); send each part "
                "separately",
                rows=sum(batch.num_rows for batch in batches),
            ) from error
    found = table.to_batches()
    if len(found) != 1:  # a string column above 2 GiB stays in chunks
        raise BatchError(
            "the rows are too many for one batch; send fewer rows in one call", rows=table.num_rows
        )
    return found[0]


def _in_plain_values(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """One chunk for each column, with dictionaries as plain values or in the column type of the topic."""
    for place, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        stored = -1 if schema is None else schema.get_field_index(field.name)
        chunks = [chunk.dictionary_decode() for chunk in table.column(place).chunks]
        plain = pa.chunked_array(chunks, field.type.value_type).combine_chunks()
        if isinstance(plain, pa.ChunkedArray):
            plain = pa.concat_arrays(plain.chunks)
        if schema is not None and stored >= 0:
            plain = plain.cast(schema.field(stored).type)
        table = table.set_column(place, field.with_type(plain.type), plain)
    return table.combine_chunks()


def bytes_of(batch: pa.RecordBatch) -> int:
    """Approximate size of the rows. For a slice of views it is the size of all buffers."""
    referred = int(batch.get_total_buffer_size())
    if referred <= SMALL_BYTES_MAX:
        return referred + int(batch.num_rows)
    try:
        size = int(batch.nbytes)
    except (TypeError, pa.ArrowNotImplementedError):
        size = referred
    return size + int(batch.num_rows)  # never zero


def in_chunks(batch: pa.RecordBatch, *, split: bool) -> list[tuple[pa.RecordBatch, int]]:
    """Slices well below the limit of a message, with their sizes; the whole batch without `split`."""
    size, rows = bytes_of(batch), batch.num_rows
    if not split or (size <= CHUNK_BYTES_MAX and rows <= ROWS_MAX):
        return [(batch, size)]
    step = max(1, min(rows * CHUNK_BYTES_MAX // size, ROWS_MAX))
    parts = [batch.slice(start, step) for start in range(0, rows, step)]
    for part in parts:
        array_checks.require(part)  # a slice has another last offset
    return [(part, size * part.num_rows // rows) for part in parts]

"""Reads what a caller passes, pyarrow, pandas or anything else that speaks Arrow, as record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ringfence.arrow import array_checks
from ringfence.arrow.pandas_frames import from_pandas, pandas_class
from ringfence.native.errors import BatchError, InvalidArgumentError, RingfenceError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below it all that a batch refers to is counted, also where a slice uses less: the exact count takes 17 us
# instead of 0.7, as long as the encoding of one row.
SMALL_BYTES_MAX = 4096


def record_batches(data: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """As `each_batch`, all of them. A stream is read to its end."""
    if isinstance(data, pa.RecordBatch):
        return _sound([data])
    return list(each_batch(data, schema))


def each_batch(data: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`data` as record batches with at least one row each, without a copy where it is Arrow already.

    Args:
        data: a pyarrow RecordBatch or Table, anything with `__arrow_c_array__` or `__arrow_c_stream__`
            (polars, duckdb, nanoarrow, ...), or a pandas DataFrame. A stream is read as far as the iterator.
        schema: of the topic; pandas columns are converted to it.

    Raises:
        InvalidArgumentError: it is none of these.
        BatchError: it cannot be read as rows.
    """
    try:
        for batch in _parts(data, schema):
            yield from _sound([batch])
    except RingfenceError:  # some of them are ValueErrors, too
        raise
    except (
        pa.ArrowException,
        ValueError,  # pa.ArrowInvalid is one; pandas' nulls for a column without are another
        KeyError,
        OSError,  # a stream that ends early, or whose source breaks off
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
    """Whether reading it may take its rows away, or bring more than memory holds.

    Only tables that are known to be in memory are not.
    """
    if isinstance(data, pa.RecordBatch | pa.Table) or hasattr(data, "__arrow_c_array__"):
        return False
    module = type(data).__module__.partition(".")[0]
    return hasattr(data, "__arrow_c_stream__") and module != "polars" and pandas_class(data) is None


class _Checked:
    """The schema whose names were looked at last; comparing takes a tenth of looking."""

    schema: ClassVar[pa.Schema | None] = None


def _check_names(schema: pa.Schema) -> None:
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise SchemaError(f'two columns are named "{twice}"; rename or drop one', column=twice)
    if "\0" in "".join(names):
        raise array_checks.cut_error(next(name for name in names if "\0" in name))
    _Checked.schema = schema


def _sound(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Those with rows. BatchError if one is not sound: what reads them next knows no lengths of buffers."""
    for batch in batches:
        if _Checked.schema is None or not batch.schema.equals(_Checked.schema):
            _check_names(batch.schema)
        array_checks.require(batch)
    return [batch for batch in batches if batch.num_rows]


def one_batch(batches: list[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Several batches of one schema as one, copied if there are several.

    Dictionaries of different values become one. Where Arrow cannot join them (more values than the index type
    holds, nulls or nested values among them), their plain values are joined, as `schema`, the topic's, has
    the columns.

    Raises:
        BatchError: they cannot be one batch.
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
                f"the rows come in {len(batches)} parts that cannot be one batch ({error}); send each part "
                "by itself",
                rows=sum(batch.num_rows for batch in batches),
            ) from error
    found = table.to_batches()
    if len(found) != 1:  # a string column above 2 GiB stays in chunks
        raise BatchError("the rows are too many for one batch; send fewer at once", rows=table.num_rows)
    return found[0]


def _in_plain_values(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """One chunk a column, dictionaries as their values, or as the topic has the column."""
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
    """About how many bytes the rows take. Views cannot be told apart in a slice.

    Then it is all they refer to.
    """
    referred = int(batch.get_total_buffer_size())
    if referred <= SMALL_BYTES_MAX:
        return referred + int(batch.num_rows)
    try:
        size = int(batch.nbytes)
    except (TypeError, pa.ArrowNotImplementedError):
        size = referred
    return size + int(batch.num_rows)  # never zero

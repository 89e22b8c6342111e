"""Convert rows to the types of a file format, and refuse columns that it cannot hold.

Parquet lacks some types and pyarrow does not write others. Arrow files hold one dictionary for each column.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ringfence.common.type_families import each_leaf, is_bytes, is_text
from ringfence.native.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

# Maximum digits of Arrow's decimals.
DECIMAL128_DIGITS = 38
DECIMAL256_DIGITS = 76


class FileForm:
    """Converts batches of one schema to the schema of a file.

    Attributes:
        schema: of the file.
    """

    def __init__(self, schema: pa.Schema, file_type: Callable[[pa.DataType], pa.DataType]) -> None:
        """`file_type`: the type in the file, by the type of the rows."""
        self.schema = pa.schema(
            [field.with_type(file_type(field.type)) for field in schema], metadata=schema.metadata
        )

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows in the types of the file. Raises SchemaError that names the column."""
        columns = [
            _converted(column, field) for column, field in zip(batch.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def arrow_file_form(schema: pa.Schema) -> FileForm:
    """Dictionaries become their values: an Arrow file cannot replace a dictionary, and batches have several.

    Raises:
        SchemaError: a nested dictionary that pyarrow does not convert to its values.
    """
    form = FileForm(schema, _plain)
    form.convert(_empty(schema))
    return form


def parquet_form(schema: pa.Schema) -> FileForm:
    """The types that Parquet holds.

    Dictionaries of text and bytes stay; other dictionaries and run ends become their values, seconds become
    milliseconds, decimals of negative scale get the scale 0.

    Raises:
        SchemaError: columns that no Parquet file holds. Their names are in `columns`.
    """
    form = FileForm(schema, lambda kind: kind if _stays(kind) else _values(kind))
    unwritable = {
        column.name: str(column.type)
        for column, field in zip(schema, form.schema, strict=True)
        if not _is_writable(column, field)
    }
    if unwritable:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in unwritable.items())
        raise SchemaError(
            f"Parquet files cannot hold the types of these columns: {listed}; read the topic itself, or add "
            "the values in another column of a type that Parquet has",
            columns=list(unwritable),
        )
    return form


def values_form(schema: pa.Schema) -> FileForm:
    """Like `parquet_form`, with dictionaries as plain values. Columns are refused at conversion only."""
    return FileForm(schema, _values)


def _values(kind: pa.DataType) -> pa.DataType:
    return each_leaf(_plain(kind), _in_parquet)


def _is_writable(column: pa.Field, field: pa.Field) -> bool:
    """Whether pyarrow converts the column, writes it, and reads what it wrote."""
    if _has_empty_lists(field.type):
        return False  # pyarrow writes the column, and then cannot read it
    file = io.BytesIO()
    try:
        _converted(_empty(pa.schema([column])).column(0), field)
        pq.write_table(pa.schema([field]).empty_table(), file)
        pq.read_table(file)
    except (pa.ArrowException, OSError):
        return False
    return True


def _has_empty_lists(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 0:
        return True
    return any(_has_empty_lists(kind.field(index).type) for index in range(kind.num_fields))


def _stays(kind: pa.DataType) -> bool:
    """Whether the type is a dictionary that Parquet can hold; other dictionaries become their values."""
    return bool(
        pa.types.is_dictionary(kind)
        and (is_text(kind.value_type) or is_bytes(kind.value_type))
        and not (pa.types.is_string_view(kind.value_type) or pa.types.is_binary_view(kind.value_type))
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values, at any depth, in place of dictionaries."""
    return each_leaf(kind, lambda leaf: _plain(leaf.value_type) if pa.types.is_dictionary(leaf) else leaf)


def _in_parquet(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_run_end_encoded(kind):
        return each_leaf(_plain(kind.value_type), _in_parquet)
    if types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if types.is_decimal(kind) and kind.scale < 0:
        digits = kind.precision - kind.scale
        if digits <= DECIMAL128_DIGITS:
            return pa.decimal128(digits, 0)
        return pa.decimal256(digits, 0) if digits <= DECIMAL256_DIGITS else kind
    return kind


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_dictionary(field.type):
            return array if not array.dictionary.null_count else _without_null_values(array)
        return array if array.type == field.type else _decoded(array).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"column {field.name!r}: the file cannot hold a value of this column ({error})",
            column=field.name,
            type=str(array.type),
        ) from error


def _decoded(array: pa.Array) -> pa.Array:
    """The values of a dictionary or of run ends."""
    import pyarrow.compute as pc  # noqa: PLC0415 - needed for few types only

    if pa.types.is_run_end_encoded(array.type):
        return _decoded(pc.run_end_decode(array))
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _without_null_values(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Equal rows whose nulls stand in the indices: pyarrow writes no null among a dictionary's values."""
    encoded = array.dictionary_decode().dictionary_encode()
    indices = encoded.indices.cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=array.type.ordered)

"""Sort the rows of a file by columns, including types that pyarrow does not sort itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ringfence.common.type_families import without_views
from ringfence.compaction.file_types import FileForm, values_form
from ringfence.native.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Rows of one batch, with a dictionary of its own, after sorting.
ROWS_A_BATCH = 65_536


class Sorting:
    """Sorts rows of one schema by columns, ascending; without columns it keeps the order.

    Raises:
        SchemaError: rows cannot be sorted by one of the columns.
    """

    def __init__(self, schema: pa.Schema, columns: list[str]) -> None:
        self._columns = columns
        unsortable = {
            name: str(schema.field(name).type) for name in columns if not _is_sortable(schema.field(name))
        }
        if unsortable:
            listed = ", ".join(f"{name!r} ({kind})" for name, kind in unsortable.items())
            raise SchemaError(
                f"rows cannot be sorted by these columns: {listed}; leave them out of `sort`",
                columns=list(unsortable),
            )

    def batches(self, rows: Iterable[pa.RecordBatch], form: FileForm) -> Iterator[pa.RecordBatch]:
        """The rows, sorted, in the types of the file."""
        if not self._columns:
            for batch in rows:
                yield form.convert(batch)
            return
        values, batches = None, []
        for batch in rows:
            values = values or values_form(batch.schema)
            batches.append(values.convert(batch))
        assert values is not None, "a file has rows"
        table = pa.Table.from_batches(batches, values.schema)
        order = pc.sort_indices(
            pa.table([_key(table[name]) for name in self._columns], self._columns),
            sort_keys=[(name, "ascending") for name in self._columns],
        )
        takeable = pa.schema([field.with_type(without_views(field.type)) for field in table.schema])
        for batch in table.cast(takeable).take(order).to_batches(ROWS_A_BATCH):
            yield from _encoded(batch, form)


def _encoded(batch: pa.RecordBatch, form: FileForm) -> Iterator[pa.RecordBatch]:
    """Convert to the types of the file. If a dictionary would get too many values, convert two halves."""
    try:
        columns = [
            _in_type(column, field.type) for column, field in zip(batch.columns, form.schema, strict=True)
        ]
    except pa.ArrowInvalid:
        if batch.num_rows == 1:
            raise
        half = batch.num_rows // 2
        yield from _encoded(batch.slice(0, half), form)
        yield from _encoded(batch.slice(half), form)
        return
    yield pa.RecordBatch.from_arrays(columns, schema=form.schema)


def _in_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return column if column.type == kind else column.cast(kind)
    encoded = column.cast(kind.value_type).dictionary_encode()
    indices = encoded.indices.cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=kind.ordered)


def _is_sortable(field: pa.Field) -> bool:
    schema = pa.schema([pa.field("key", field.type)])
    try:
        nulls = pa.record_batch([pa.nulls(2, field.type)], schema=schema)
        keys = pa.Table.from_batches([values_form(schema).convert(nulls)])
        pc.sort_indices(pa.table([_key(keys["key"])], ["key"]), sort_keys=[("key", "ascending")])
    except (pa.ArrowException, SchemaError):
        return False
    return True


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values in the same order, of a type that pyarrow sorts."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return _key(pa.chunked_array(chunks, kind.storage_type))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal(kind) and kind.bit_width < pa.decimal128(1).bit_width:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column.cast(without_views(kind))

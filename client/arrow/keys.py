"""Cast key columns to the topic's types, so that rows hash to the slots of the stored values.

For example int32 values of an int64 key are widened when they are stored, and the two types hash differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ringfence.arrow import array_checks
from ringfence.common.type_families import is_bytes, is_text
from ringfence.native.slots import slots as slots_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def slots(batch: Any, key: str | Sequence[str]) -> NDArray[np.uint16]:
    """Slot of every row, equal to Spark's `shiftrightunsigned(xxhash64(key...), 48)`.

    Args:
        batch: anything with `__arrow_c_array__` (a record batch) or `__arrow_c_stream__` (a table; it is read
            to its end).
        key: names of the key columns, in their order; a str is one name.

    Returns:
        uint16, shape (rows,).

    Raises:
        SchemaError: a key column is missing, or of a type that Spark cannot hash.
        BatchError: the Arrow data is invalid: an offset, view or index is out of bounds, or a buffer is too
            short. Buffer lengths are checked for pyarrow only; other libraries do not tell them.
        InvalidArgumentError: no key column is named, or `batch` is not Arrow data.
    """
    if isinstance(batch, pa.RecordBatchReader):
        parts = [slots(part, key) for part in batch]
        return np.concatenate([*parts, slots_of(batch.schema.empty_table(), key)])
    if isinstance(batch, pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray):
        array_checks.require(batch)
    return slots_of(batch, key)


def in_types_of(schema: pa.Schema, batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """The columns to hash: `batch` itself, or its key columns cast to their types in `schema`.

    A column that is missing, or that cannot be cast, stays: hashing or encoding refuses it.
    """
    if batch.schema.equals(schema):
        return batch
    columns = {name: batch.schema.get_field_index(name) for name in key}
    if min(columns.values()) < 0:
        return batch
    if all(_alike(batch.field(place).type, schema.field(name).type) for name, place in columns.items()):
        return batch
    return pa.record_batch(
        {name: _cast(name, batch.column(place), schema.field(name).type) for name, place in columns.items()}
    )


def _alike(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether equal values of both types have equal hashes: equal types, or both text or bytes."""
    given, stored = _values(given), _values(stored)
    return given == stored or (_is_text(given) and _is_text(stored))


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))


def _cast(name: str, column: pa.Array, stored: pa.DataType) -> pa.Array:
    if _alike(column.type, stored):
        return column
    array_checks.require_valid(name, column)
    try:
        return column.cast(_values(stored))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column

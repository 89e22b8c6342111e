"""Key columns in the topic's types, so that rows hash to the slots of what will be stored.

A column of int32 for a key of int64 is widened when it is stored, and the two hash differently.
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
    """Slot of every row: the same that Spark's `shiftrightunsigned(xxhash64(key...), 48)` gives.

    Args:
        batch: anything with `__arrow_c_array__` (a record batch) or `__arrow_c_stream__` (a table; it is read
            to its end).
        key: names of the key columns, in their order; a str is one name.

    Returns:
        uint16, shape (rows,).

    Raises:
        SchemaError: a key column is missing, or of a type that Spark cannot hash.
        BatchError: the Arrow data is not sound: an offset, view or index points nowhere, or a buffer of
            pyarrow's is too short. How long those of others are, only they know.
        InvalidArgumentError: no key column is named, or this is not Arrow data.
    """
    if isinstance(batch, pa.RecordBatchReader):
        parts = [slots(part, key) for part in batch]
        return np.concatenate([*parts, slots_of(batch.schema.empty_table(), key)])
    if isinstance(batch, pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray):
        array_checks.require(batch)
    return slots_of(batch, key)


def in_types_of(schema: pa.Schema, batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """What to hash: `batch` itself, or its key columns cast to their types in `schema`.

    A column that is missing, or that cannot be cast, stays as it is: hashing or encoding it is refused.
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
    """Whether equal values of both types have equal hashes: the same type, or forms of text or bytes."""
    given, stored = _values(given), _values(stored)
    return given == stored or (_is_text(given) and _is_text(stored))


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))


def _cast(name: str, column: pa.Array, stored: pa.DataType) -> pa.Array:
    if _alike(column.type, stored):
        return column
    array_checks.require_whole(name, column)
    try:
        return column.cast(_values(stored))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column

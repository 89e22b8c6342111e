"""Cast columns to the exact types of the topic where the encoder does not: nested columns, time zones."""

from __future__ import annotations

import pyarrow as pa

from ringfence.arrow import array_checks
from ringfence.common.type_families import has_zone, in_utc, is_bytes, is_text


def exact_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Names of the columns that need an exact type: all if one is nested, else those with a time zone."""
    if any(field.type.num_fields or pa.types.is_dictionary(field.type) for field in schema):
        return tuple(field.name for field in schema)
    return tuple(field.name for field in schema if has_zone(field.type))


def in_exact_types(schema: pa.Schema, batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """`batch` with equal values in exactly the types of `schema`, where only the representation differs.

    The child of a list is called `element` in Parquet, `item` in Arrow and `l` in DuckDB, and Parquet adds
    field ids as metadata. polars uses views for text. Timestamps may have any zone for display. The encoder
    would refuse all of these.

    Args:
        schema: of the topic.
        batch: rows of the caller. Missing columns and columns of other types stay; the encoder refuses them.
        names: `exact_columns(schema)`.
    """
    for name in names:
        place = batch.schema.get_field_index(name)
        if place < 0:
            continue
        given, stored = batch.schema.field(place), schema.field(name).type
        if not _differs_in_representation(given.type, stored):
            continue
        columns = batch.columns
        array_checks.require_valid(name, columns[place])
        try:
            columns[place] = columns[place].cast(stored)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(place, given.with_type(stored)))
    return batch


def _differs_in_representation(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether the types hold the same values, but the encoder would refuse the column."""
    if given == stored:
        return given.num_fields > 0 and not given.equals(stored, check_metadata=True)
    if is_text(given):
        return is_text(stored) or is_bytes(stored)
    if is_bytes(given):
        return is_bytes(stored)
    return bool(in_utc(given) == in_utc(stored))

"""Rows in just the topic's types, where the encoder does not convert them itself: nested columns, zones."""

from __future__ import annotations

import pyarrow as pa

from ringfence.arrow import array_checks
from ringfence.common.type_families import has_zone, in_utc, is_bytes, is_text


def exact_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Names of the columns that need their exact type.

    Beside nested columns all of them; in a schema of flat columns those with a zone, or none, and no work.
    """
    if any(field.type.num_fields or pa.types.is_dictionary(field.type) for field in schema):
        return tuple(field.name for field in schema)
    return tuple(field.name for field in schema if has_zone(field.type))


def in_exact_types(schema: pa.Schema, batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """`batch` with equal values in exactly the types of `schema`, as far as only the form differs.

    A list's child is `element` to Parquet, `item` to Arrow and `l` to DuckDB, and Parquet adds field ids as
    metadata: the same list to everybody but the encoder. Text comes as views from polars, and instants with
    the zone in which their producer shows them.

    Args:
        schema: of the topic.
        batch: rows as they came. What is missing or of another type altogether stays: the encoder judges it.
        names: `exact_columns(schema)`.
    """
    for name in names:
        place = batch.schema.get_field_index(name)
        if place < 0:
            continue
        given, stored = batch.schema.field(place), schema.field(name).type
        if not _differs_in_form(given.type, stored):
            continue
        columns = batch.columns
        array_checks.require_whole(name, columns[place])
        try:
            columns[place] = columns[place].cast(stored)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(place, given.with_type(stored)))
    return batch


def _differs_in_form(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether equal values mean the same in both, and the encoder would still stumble."""
    if given == stored:
        return given.num_fields > 0 and not given.equals(stored, check_metadata=True)
    if is_text(given):
        return is_text(stored) or is_bytes(stored)
    if is_bytes(given):
        return is_bytes(stored)
    return bool(in_utc(given) == in_utc(stored))

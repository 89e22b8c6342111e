"""Nested columns under the topic's own child names: `item`, `element` and `l` are the same list to a user."""

from __future__ import annotations

import pyarrow as pa


def nested_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Names of the columns whose types have children, and so names and metadata inside."""
    return tuple(field.name for field in schema if field.type.num_fields)


def in_names_of(schema: pa.Schema, batch: pa.RecordBatch, nested: tuple[str, ...]) -> pa.RecordBatch:
    """`batch` with children named as in `schema`, wherever the types are otherwise equal.

    Parquet names a list's child `element`, Arrow `item`, DuckDB `l`; Parquet adds field ids as metadata, too.
    The encoder takes types as written. Nothing is copied but the description.

    Args:
        schema: of the topic.
        batch: rows as they came; columns may be missing, or of other types: the encoder judges those.
        nested: `nested_columns(schema)`.
    """
    for name in nested:
        place = batch.schema.get_field_index(name)
        if place < 0:
            continue
        given, stored = batch.schema.field(place), schema.field(name).type
        if given.type != stored or given.type.equals(stored, check_metadata=True):
            continue
        columns = batch.columns
        columns[place] = columns[place].cast(stored)
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(place, given.with_type(stored)))
    return batch

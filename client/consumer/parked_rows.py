"""Rows of a parked range as an export writes them: with columns that say where they were, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ringfence.native.errors import InvalidArgumentError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.client import Client
    from ringfence.consumer.parked import Parked

COLUMNS: Final = (
    pa.field("parked_topic", pa.string()),
    pa.field("parked_cohort", pa.string()),
    pa.field("parked_partition", pa.int64()),
    pa.field("parked_offset", pa.int64()),
    pa.field("parked_count", pa.int32()),
    pa.field("parked_reason", pa.string()),
    pa.field("parked_ms", pa.int64()),
)
"""`parked_count`: failed deliveries. `parked_ms`: since when it was parked (Unix ms)."""
NAMES: Final = frozenset(field.name for field in COLUMNS)
PREFETCH_BYTES: Final = 8 << 20  # two answers


def target_schema(source: pa.Schema, topic: str) -> pa.Schema:
    """The schema of a topic that takes parked rows of another.

    Raises:
        SchemaError: the source has a column of a name that the export adds.
    """
    taken = sorted(NAMES & set(source.names))
    if taken:
        raise SchemaError(
            f"rows cannot be exported: the topic has columns of the names that an export adds "
            f"({', '.join(taken)}); discard them, or copy them with a program of your own",
            topic=topic,
        )
    return pa.schema([*source, *COLUMNS])


def check_target(source: pa.Schema, target: pa.Schema, topic: str, to: str) -> None:
    """Refuse a topic that cannot take the rows.

    Raises:
        SchemaError: it names the columns that are missing, or that have other types.
    """
    wrong = []
    for field in target_schema(source, topic):
        at = target.get_field_index(field.name)
        if at < 0:
            wrong.append(f"{field.name} is missing")
        elif target.field(at).type != field.type:
            wrong.append(f"{field.name} is {target.field(at).type} and must be {field.type}")
    if wrong:
        raise SchemaError(
            f"rows cannot be exported there: {', '.join(wrong)}; create the topic with `create=True` "
            "(`--create`), or add the columns",
            topic=to,
        )


def check_other_topic(source: int, target: int, to: str) -> None:
    """Refuse a topic as its own target: what is exported would be delivered, and parked, again."""
    if source == target:
        raise InvalidArgumentError("a topic is not exported into itself; name another topic", topic=to)


def with_columns(
    batch: pa.RecordBatch, first: int, parked: Parked, topic: str, cohort: str
) -> pa.RecordBatch:
    """Rows from offset `first` on, with the columns of the export."""
    rows = batch.num_rows

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), rows)

    values = {
        "parked_topic": same(topic, pa.string()),
        "parked_cohort": same(cohort, pa.string()),
        "parked_partition": same(parked.partition, pa.int64()),
        "parked_offset": pa.array(range(first, first + rows), pa.int64()),
        "parked_count": same(parked.count, pa.int32()),
        "parked_reason": same(parked.reason, pa.string()),
        "parked_ms": same(parked.time_ms, pa.int64()),
    }
    arrays = [*batch.columns, *(values[field.name] for field in COLUMNS)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*batch.schema, *COLUMNS]))


def rows_of(client: Client, topic: str, cohort: str, parked: Parked) -> Iterator[pa.RecordBatch]:
    """The rows of a range that the log still has, in order."""
    reader = client.read(
        topic,
        partition=parked.partition,
        start=parked.first_offset,
        prefetch_bytes=PREFETCH_BYTES,
        on_truncated="skip",
    )
    try:
        for batch in reader:
            place = reader.place
            assert place is not None, "a batch has a place"
            if place.first_offset >= parked.end_offset:
                return
            skip = max(0, parked.first_offset - place.first_offset)
            end = min(batch.num_rows, parked.end_offset - place.first_offset)
            if skip < end:
                part = batch.slice(skip, end - skip)
                yield with_columns(part, place.first_offset + skip, parked, topic, cohort)
            if place.first_offset + end >= parked.end_offset:
                return
    finally:
        reader.close()

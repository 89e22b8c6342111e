"""One task of a read: a range of offsets of one partition, in the very types that Spark expects."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringfence.client import connect
from ringfence.native.errors import SchemaError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.arrow.decode import Place

# Added behind the topic's own columns with .option("metadata", "true").
METADATA = pa.schema(
    [
        pa.field("_partition", pa.int64(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_time", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
RANGES_MAX = 100_000  # tasks of one job; Spark's driver keeps some KB for each


class Range(NamedTuple):
    """Rows first .. last - 1 of a partition."""

    partition: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first


def split(spans: Iterable[Range], rows_a_task: int) -> list[Range]:
    """Ranges of about `rows_a_task` rows, equal within a partition; empty spans give none."""
    spans = [span for span in spans if span.rows > 0]
    rows_a_task = max(rows_a_task, sum(span.rows for span in spans) // RANGES_MAX + 1)
    found = []
    for span in spans:
        parts = -(-span.rows // rows_a_task)
        bounds = [span.first + span.rows * part // parts for part in range(parts + 1)]
        found += [Range(span.partition, first, last) for first, last in pairwise(bounds)]
    return found


class RangeReader(NamedTuple):
    """How ranges are read, on whatever worker: values only."""

    address: str
    token_file: str | None
    topic: str
    schema: pa.Schema  # what Spark expects, metadata columns included
    metadata: frozenset[str] = frozenset()  # which columns those are: a topic may have its own of such a name

    def read(self, span: Range) -> Iterator[pa.RecordBatch]:
        """Rows of the range, in order.

        Raises:
            TruncatedError: retention passed them; the message says which.
        """
        own = [field.name for field in self.schema if field.name not in self.metadata]
        with connect(self.address, token_file=self.token_file) as client:
            at = span.first
            reader = client.read(self.topic, partition=span.partition, start=span.first, columns=own)
            for batch in reader:
                place = reader.place
                assert place is not None
                if place.first_offset != at:
                    break
                rows = min(batch.num_rows, span.last - at)
                yield self._fitted(batch.slice(0, rows), place)
                at += rows
                if at >= span.last:
                    return
        if at < span.last:
            raise TruncatedError(
                "the log ends before the range does: it was truncated or deleted while it was read",
                topic=self.topic,
                partition=span.partition,
                offset=at,
                wanted_until=span.last,
            )

    def _fitted(self, batch: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        rows = batch.num_rows
        columns = []
        for field in self.schema:
            if field.name in self.metadata:
                column = told(place, field, rows)
            else:
                column = batch.column(field.name)
                if column.type != field.type:
                    column = self._cast(column, field, place)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _cast(self, column: pa.Array, field: pa.Field, place: Place) -> pa.Array:
        try:
            return as_type(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f'column "{field.name}" is {column.type} in the topic and cannot be read as {field.type}: '
                f"{error}; leave it out with the option columns",
                topic=self.topic,
                partition=place.partition,
                first_offset=place.first_offset,
            ) from error


def told(place: Place, field: pa.Field, rows: int) -> pa.Array:
    """A metadata column: what the log says of `rows` rows from `place` on."""
    if field.name == "_partition":
        return pa.repeat(pa.scalar(place.partition, field.type), rows)
    if field.name == "_offset":
        return pa.array(np.arange(place.first_offset, place.first_offset + rows), field.type)
    return pa.repeat(pa.scalar(place.time_ms * 1000, pa.int64()), rows).cast(field.type)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as Spark's type; a dictionary is decoded first."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.cast(column, kind)

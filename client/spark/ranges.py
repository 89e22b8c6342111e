"""Read the range of one task: offsets of one partition, as batches in the exact types that Spark expects."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringfence.client import connect
from ringfence.cluster.offsets import Position
from ringfence.native.errors import SchemaError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.arrow.decode import Place

# Columns after the topic's own ones, with .option("metadata", "true").
METADATA = pa.schema(
    [
        pa.field("_partition", pa.int64(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_time", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
# Tasks of one job: Spark's driver needs a few KB for each.
RANGES_MAX = 100_000


class Range(NamedTuple):
    """Rows first .. last - 1 of a partition.

    `epoch` is the owner epoch of the row before `first`, `last_epoch` that of the row before `last`; 0 =
    unknown. A task that reads rows of other epochs fails: the log has another history than the planned one.
    """

    partition: int
    first: int
    last: int
    epoch: int = 0
    last_epoch: int = 0

    @classmethod
    def between(cls, first: Position, last: Position) -> Range:
        return cls(first.partition, first.offset, last.offset, first.epoch, last.epoch)

    @property
    def rows(self) -> int:
        return self.last - self.first

    @property
    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Both ends, each with the epoch of the row before it."""
        return (self.first, self.epoch), (self.last, self.last_epoch)

    def within(self, first: int, last: int) -> Range:
        """The part of this range from `first` to `last`; the epoch of an end that moves is unknown."""
        return Range(
            self.partition,
            max(self.first, first),
            min(self.last, last),
            self.epoch if first <= self.first else 0,
            self.last_epoch if last >= self.last else 0,
        )


def split(spans: Iterable[Range], rows_a_task: int) -> list[Range]:
    """Ranges of about `rows_a_task` rows, equal within a partition; empty spans give none."""
    spans = [span for span in spans if span.rows > 0]
    rows_a_task = max(rows_a_task, sum(span.rows for span in spans) // RANGES_MAX + 1)
    ranges = []
    for span in spans:
        parts = -(-span.rows // rows_a_task)
        bounds = [span.first + span.rows * part // parts for part in range(parts + 1)]
        ranges += [span.within(first, last) for first, last in pairwise(bounds)]
    return ranges


class RangeReader(NamedTuple):
    """Reads ranges on a worker. Values only: Spark pickles it for its tasks."""

    address: str
    token_file: str | None
    topic: str
    # The columns that Spark expects, metadata columns included.
    schema: pa.Schema
    # Names of the metadata columns in `schema`: a topic may have columns of its own with these names.
    metadata: frozenset[str] = frozenset()

    def read(self, span: Range) -> Iterator[pa.RecordBatch]:
        """Rows of the range, in order.

        Raises:
            TruncatedError: retention removed them, or the log has another history; the message says which.
        """
        own = [field.name for field in self.schema if field.name not in self.metadata]
        with connect(self.address, token_file=self.token_file) as client:
            offset = span.first
            start = [Position(span.partition, span.first, span.epoch)]
            reader = client.read(self.topic, partition=span.partition, start=start, columns=own)
            for batch in reader:
                place = reader.place
                assert place is not None
                if place.first_offset != offset:
                    break
                rows = min(batch.num_rows, span.last - offset)
                if offset + rows == span.last:
                    self._check_end(span, place)
                yield self._in_spark_types(batch.slice(0, rows), place)
                offset += rows
                if offset >= span.last:
                    return
        if offset < span.last:
            raise TruncatedError(
                "the log ends before the range: it was truncated or deleted during the read; read again",
                topic=self.topic,
                partition=span.partition,
                offset=offset,
                wanted_until=span.last,
            )

    def _check_end(self, span: Range, place: Place) -> None:
        """Compare the epoch of the last row, which is in the batch at `place`, with the planned one.

        Raises:
            TruncatedError: the log has another history.
        """
        if span.last_epoch not in (0, place.epoch):
            raise TruncatedError(
                f"the partition has another history now: row {span.last - 1} is of epoch {place.epoch}, and "
                f"was of epoch {span.last_epoch} when the read was planned (an owner was chosen by force); "
                "read again",
                topic=self.topic,
                partition=span.partition,
                offset=span.last,
                epoch=span.last_epoch,
            )

    def _in_spark_types(self, batch: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        rows = batch.num_rows
        columns = []
        for field in self.schema:
            if field.name in self.metadata:
                column = metadata_column(place, field, rows)
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


def metadata_column(place: Place, field: pa.Field, rows: int) -> pa.Array:
    """The partition, the offsets or the time of `rows` rows from `place` on."""
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

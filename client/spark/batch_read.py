"""`spark.read.format("ringfence")`: the rows of a topic as of `load`, in ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ringfence.client import connect
from ringfence.spark.filters import Pushed
from ringfence.spark.history import History
from ringfence.spark.options import ROWS_A_TASK
from ringfence.spark.places import window_of
from ringfence.spark.ranges import METADATA, Range, RangeReader, split
from ringfence.spark.schema import worker_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from ringfence.cluster.offsets import Ends
    from ringfence.spark.options import SourceOptions


class RangePartition(InputPartition):
    """One task."""

    def __init__(self, span: Range) -> None:
        super().__init__(tuple(span))

    @property
    def span(self) -> Range:
        return Range(*self.value)


class BatchReader(DataSourceReader):
    """Plans ranges on the driver, reads one on a worker."""

    def __init__(
        self, options: SourceOptions, schema: StructType, ends: Mapping[int, Ends] | None = None
    ) -> None:
        """`ends`: as of `load`; None where nobody asked for the schema then, for the query gave its own."""
        self._options = options
        self._ends = ends
        self._pushed = Pushed()
        self._reader = range_reader(options, schema)

    def partitions(self) -> list[RangePartition]:
        """Ranges between `start` and `end` as of `load`: the same rows at every scan of the DataFrame."""
        options, topic = self._options, self._options.topic
        with connect(options.address, token_file=options.token_file) as client:
            ends = self._ends or client.end_offsets(topic)
            start, end = options.text("start") or "earliest", options.text("end") or "latest"
            first, last = window_of(client, topic, ends, start=start, end=end)
            spans = [Range.between(first[partition], last[partition]) for partition in sorted(ends)]
            spans = self._pushed.narrowed(client, topic, spans)
            rows_a_task = options.count("rowsPerTask", ROWS_A_TASK)
            assert rows_a_task is not None
            ranges = History(client, topic, ends).with_epochs(split(spans, rows_a_task))
        # Spark makes one task of its own for an empty list; an empty range says that there is nothing to do.
        return [RangePartition(span) for span in ranges or [Range(0, 0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        if partition.span.rows > 0:
            yield from self._reader.read(partition.span)


class FilteringReader(BatchReader):
    """The same with filter push-down: Spark allows the method only where its setting allows the use of it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep what narrows the ranges; every filter goes back, for Spark to apply to the rows."""
        self._pushed = Pushed.of(filters, metadata=self._options.flag("metadata", default=False))
        return filters


def range_reader(options: SourceOptions, schema: StructType) -> RangeReader:
    """What every task of a read does."""
    with connect(options.address, token_file=options.token_file) as client:
        address = ",".join(client.addresses)
    metadata = frozenset(METADATA.names) if options.flag("metadata", default=False) else frozenset[str]()
    return RangeReader(address, options.token_file, options.topic, worker_schema(schema), metadata)

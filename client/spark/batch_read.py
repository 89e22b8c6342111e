"""Batch reader of `spark.read.format("ringfence")`: the rows of a topic as of `load`, in ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ringfence.client import connect
from ringfence.spark.filters import PushedFilters
from ringfence.spark.options import ROWS_A_TASK
from ringfence.spark.ranges import METADATA, Range, RangeReader, split
from ringfence.spark.read_bounds import window_of
from ringfence.spark.schema import worker_schema
from ringfence.spark.verify_positions import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from ringfence.cluster.offsets import Ends
    from ringfence.spark.options import SourceOptions


class RangePartition(InputPartition):
    """One task: a range as Spark's value of a partition."""

    def __init__(self, span: Range) -> None:
        super().__init__(tuple(span))

    @property
    def span(self) -> Range:
        return Range(*self.value)


class BatchReader(DataSourceReader):
    """Plans the ranges on the driver, and reads one range on a worker."""

    def __init__(
        self, options: SourceOptions, schema: StructType, ends: Mapping[int, Ends] | None = None
    ) -> None:
        """`ends`: as of `load`; None if Spark did not call `schema`, because the query has its own."""
        self._options = options
        self._ends = ends
        self._filters = PushedFilters()
        self._reader = range_reader(options, schema)

    def partitions(self) -> list[RangePartition]:
        """The ranges between `start` and `end` as of `load`: the same rows at every scan of the DataFrame."""
        options, topic = self._options, self._options.topic
        with connect(options.address, token_file=options.token_file) as client:
            ends = self._ends or client.end_offsets(topic)
            start, end = options.text("start") or "earliest", options.text("end") or "latest"
            first, last = window_of(client, topic, ends, start=start, end=end)
            spans = [Range.between(first[partition], last[partition]) for partition in sorted(ends)]
            spans = self._filters.restrict(client, topic, spans)
            rows_a_task = options.count("rowsPerTask", ROWS_A_TASK)
            assert rows_a_task is not None
            ranges = History(client, topic, ends).with_epochs(split(spans, rows_a_task))
        # For an empty list Spark starts a task without a partition; an empty range gives it nothing to read.
        return [RangePartition(span) for span in ranges or [Range(0, 0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        if partition.span.rows > 0:
            yield from self._reader.read(partition.span)


class FilteringReader(BatchReader):
    """A batch reader with filter push-down.

    A class of its own: Spark refuses a reader that has `pushFilters` while its setting forbids push-down.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep the filters that restrict the ranges, and return all: Spark applies each to the rows."""
        self._filters = PushedFilters.of(filters, metadata=self._options.flag("metadata", default=False))
        return filters


def range_reader(options: SourceOptions, schema: StructType) -> RangeReader:
    """The reader that every task of a read gets."""
    with connect(options.address, token_file=options.token_file) as client:
        address = ",".join(client.addresses)
    metadata = frozenset(METADATA.names) if options.flag("metadata", default=False) else frozenset[str]()
    return RangeReader(address, options.token_file, options.topic, worker_schema(schema), metadata)

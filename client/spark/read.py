"""Read a topic as a DataFrame: the offsets up to the current mark, in ranges with one task each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.arrow.decode import Decoder
from ringfence.client import connect
from ringfence.native.errors import InvalidArgumentError
from ringfence.spark.options import ROWS_A_TASK
from ringfence.spark.ranges import Range, RangeReader, split
from ringfence.spark.schema import spark_schema, use_this_python, worker_schema
from ringfence.spark.verify_positions import History

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

RANGES_DDL = "partition bigint, first bigint, last bigint, epoch bigint, last_epoch bigint"


def read(
    spark: SparkSession,
    *,
    address: str | None = None,
    topic: str,
    columns: Sequence[str] | None = None,
    rows_per_task: int = ROWS_A_TASK,
    token_file: str | None = None,
) -> DataFrame:
    """The rows of a topic, as of this call.

    Args:
        spark: the session.
        address: of one or more nodes, as for `ringfence.connect`; executors must reach them, too.
        topic: name of the topic.
        columns: names of the columns to read; default: all.
        rows_per_task: approximate number of rows that one task reads; at least 1.
        token_file: a file with the token, on driver and workers; default: RINGFENCE_TOKEN of each process.

    Returns:
        A lazy DataFrame: each evaluation reads the same offsets again. It fails with TruncatedError if
        retention has removed the rows by then, or the log has another history. Rows of one range stay in
        order; the ranges come in any order.

    Raises:
        NotFoundError: no such topic. SchemaError: Spark has no type for a column.
        InvalidArgumentError: no such column, or rows_per_task is below 1.
    """
    if rows_per_task < 1:
        raise InvalidArgumentError("rows_per_task must be at least 1", rows_per_task=rows_per_task)
    use_this_python()
    with connect(address, token_file=token_file) as client:
        address = ",".join(client.addresses)
        info = client.topic(topic)
        name = info.name
        arrow = Decoder(name, info.schema_messages, columns).schema
        ends = client.end_offsets(topic)
        spans = (Range(end.partition, end.start, end.end, last_epoch=end.epoch) for end in ends.values())
        ranges = History(client, topic, ends).with_epochs(split(spans, rows_per_task))
    schema = spark_schema(arrow)
    reader = RangeReader(address, token_file, name, worker_schema(schema))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from reader.read(Range(**row))

    if not ranges:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(ranges, RANGES_DDL).repartition(len(ranges)).mapInArrow(task, schema)

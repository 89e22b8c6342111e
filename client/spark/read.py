"""A topic as a DataFrame: its offsets up to the mark of now, in ranges, one task for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ringfence.client import connect
from ringfence.decode import Decoder
from ringfence.spark.schema import plain, spark_schema, use_this_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

ROWS_A_TASK = 1_000_000  # of TPC-H lineitem about 150 MB: a task of some seconds
RANGES_MAX = 100_000
RANGES_DDL = "partition bigint, first bigint, last bigint"


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
        address: of a node, as for `ringfence.connect`; executors must reach it, too.
        topic: its name.
        columns: only these.
        rows_per_task: about how many rows one task reads.
        token_file: a file with the token, on driver and workers; default: RINGFENCE_TOKEN of each process.

    Returns:
        A lazy DataFrame: each evaluation reads the same offsets again; it fails with TruncatedError when
        retention has passed them by then. Rows of one offset range stay in order, ranges come in any.

    Raises:
        NotFoundError: no such topic. SchemaError: Spark has no type for a column.
    """
    use_this_python()
    with connect(address, token_file=token_file) as client:
        address = ",".join(client.addresses)
        info = client.topic(topic)
        name = info.name
        wanted = Decoder(name, info.schemas, columns).schema
        ends = client.end_offsets(topic)
    total = sum(end.rows for end in ends.values())
    step = max(1, rows_per_task, total // RANGES_MAX)
    ranges = [
        (end.partition, first, min(first + step, end.end))
        for end in ends.values()
        for first in range(end.start, end.end, step)
    ]
    given, names = plain(wanted), list(wanted.names)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _read_range(
                    address, token_file, name, names, given, row["partition"], row["first"], row["last"]
                )

    if not ranges:
        return spark.createDataFrame([], spark_schema(wanted))
    return (
        spark.createDataFrame(ranges, RANGES_DDL)
        .repartition(len(ranges))
        .mapInArrow(task, spark_schema(wanted))
    )


def _read_range(
    address: str,
    token_file: str | None,
    topic: str,
    columns: list[str],
    schema: pa.Schema,
    partition: int,
    first: int,
    last: int,
) -> Iterator[pa.RecordBatch]:
    """Runs in Spark's Python worker: rows first .. last - 1 of one partition."""
    with connect(address, token_file=token_file) as client:
        at = first
        for batch in client.read(topic, partition=partition, start=first, columns=columns):
            rows = min(batch.num_rows, last - at)
            at += rows
            found = batch if rows == batch.num_rows else batch.slice(0, rows)
            yield found if found.schema.equals(schema) else found.cast(schema)
            if at >= last:
                return

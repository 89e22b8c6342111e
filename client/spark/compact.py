"""Write a topic to Parquet files and read these as a DataFrame: `ringfence compact` from a Spark job.

The driver writes the new rows, each to exactly one file; the next run repairs the files of a killed run.
Driver and workers must see the directory under the same path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ringfence.arrow.decode import Decoder
from ringfence.client import connect
from ringfence.compact import ROWS_A_FILE, Compacted, files
from ringfence.compact import compact as compact_topic
from ringfence.compaction.manifest import manifest_path
from ringfence.native.errors import SchemaError
from ringfence.spark.schema import spark_schema

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

# Special characters of Hadoop's globs; a backslash escapes them.
_PATTERN = re.compile(r"[\\{}\[\]*?]")


class CompactedTable(NamedTuple):
    """`added`: files, rows and bytes of this run. `table`: all rows of the manifest's files, read lazily."""

    added: Compacted
    table: DataFrame


def compact(
    spark: SparkSession,
    *,
    address: str | None = None,
    topic: str,
    directory: str | os.PathLike[str],
    rows_per_file: int = ROWS_A_FILE,
    sort: Sequence[str] = (),
    compression: str = "zstd",
    token_file: str | None = None,
) -> CompactedTable:
    """Write the rows that a topic received since the last run to Parquet files, and read all files.

    Args:
        spark: the session.
        address: of one or more nodes, as for `ringfence.connect`.
        topic: name of the topic.
        directory: for this topic only, and for one run at a time.
        rows_per_file: maximum.
        sort: columns by which the rows of each file are sorted.
        compression: zstd, snappy, lz4, gzip or none.
        token_file: a file with the token, on driver and workers; default: RINGFENCE_TOKEN of each process.

    Raises:
        TruncatedError: retention has removed rows that are in no file.
        InvalidArgumentError: the directory belongs to another topic, or a column is unknown.
        SchemaError: Spark has no type for a column, or reads its Parquet form as other values. Nothing is
            written then.
    """
    with connect(address, token_file=token_file) as client:
        info = client.topic(topic)
        arrow = Decoder(info.name, info.schema_messages, None).schema
        refuse_misread(info.name, arrow)
        schema = spark_schema(arrow)
        added = compact_topic(
            client, topic, directory, rows_per_file=rows_per_file, sort=sort, compression=compression
        )
    paths = (
        [_literal(Path(path).resolve()) for path in files(directory)]
        if manifest_path(Path(directory)) is not None
        else []
    )
    if not paths:
        return CompactedTable(added, spark.createDataFrame([], schema))
    return CompactedTable(added, spark.read.schema(schema).parquet(*paths))


def _literal(path: Path) -> str:
    """The path as a URL of one local file for Spark: its default file system and globs do not apply."""
    return "file://" + _PATTERN.sub(r"\\\g<0>", str(path))


def refuse_misread(topic: str, schema: pa.Schema) -> None:
    """Raises SchemaError for columns whose Parquet form Spark cannot read, or reads as other values."""
    misread = {field.name: str(field.type) for field in schema if _is_misread(field.type)}
    if misread:
        raise SchemaError(
            "Spark cannot read these columns from Parquet (half floats, times, nanoseconds), or reads them "
            "as other values (durations that are not in microseconds); read the topic itself, or write the "
            "files by `ringfence compact` for other readers",
            topic=topic,
            columns=misread,
        )


def _is_misread(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _is_misread(kind.value_type)
    if types.is_duration(kind):
        return bool(kind.unit != "us")  # Spark reads the number as microseconds, whatever the unit
    if types.is_float16(kind) or types.is_time(kind) or (types.is_timestamp(kind) and kind.unit == "ns"):
        return True
    return any(_is_misread(kind.field(index).type) for index in range(kind.num_fields))

"""A topic as Parquet files and, from them, as a DataFrame: `ringfence compact` from a Spark job.

The driver writes what is new, each row to exactly one file; a run that is killed is finished by the next. The
directory must be one that driver and workers see under the same path.
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

_PATTERN = re.compile(r"[\\{}\[\]*?]")  # what Hadoop's globs give a meaning; a backslash takes it away


class CompactedTable(NamedTuple):
    """`added`: what this run wrote. `table`: all rows of all files that the manifest names, read lazily."""

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
    """Write what a topic got since the last run to Parquet files, and give all of them as a DataFrame.

    Args:
        spark: the session.
        address: of a node, as for `ringfence.connect`.
        topic: its name.
        directory: of this topic alone; one run at a time.
        rows_per_file: at most.
        sort: columns by which the rows of each file are sorted.
        compression: zstd, snappy, lz4, gzip or none.
        token_file: a file with the token, on driver and workers; default: RINGFENCE_TOKEN of each process.

    Raises:
        TruncatedError: retention has passed rows that no file has. InvalidArgumentError: the directory is of
        another topic, or a column is not known. SchemaError: Spark has no type for a column, or reads its
        Parquet form otherwise; nothing is written then.
    """
    with connect(address, token_file=token_file) as client:
        info = client.topic(topic)
        wanted = Decoder(info.name, info.schema_messages, None).schema
        refuse_misread(info.name, wanted)
        schema = spark_schema(wanted)
        added = compact_topic(
            client, topic, directory, rows_per_file=rows_per_file, sort=sort, compression=compression
        )
    found = (
        [_literal(Path(path).resolve()) for path in files(directory)]
        if manifest_path(Path(directory)) is not None
        else []
    )
    if not found:
        return CompactedTable(added, spark.createDataFrame([], schema))
    return CompactedTable(added, spark.read.schema(schema).parquet(*found))


def _literal(path: Path) -> str:
    """The path as Spark takes it for just this file: local, whatever its default file system; no pattern."""
    return "file://" + _PATTERN.sub(r"\\\g<0>", str(path))


def refuse_misread(topic: str, schema: pa.Schema) -> None:
    """Raises SchemaError for columns whose Parquet form Spark does not read, or reads as other values."""
    misread = {field.name: str(field.type) for field in schema if _is_misread(field.type)}
    if misread:
        raise SchemaError(
            "Spark does not read these columns out of Parquet (half floats, times, nanoseconds), or as other "
            "values (durations that are not in microseconds); read the topic itself, or write the files by "
            "`ringfence compact` for other readers",
            topic=topic,
            columns=misread,
        )


def _is_misread(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _is_misread(kind.value_type)
    if types.is_duration(kind):
        return bool(kind.unit != "us")  # Spark takes the number for microseconds
    if types.is_float16(kind) or types.is_time(kind) or (types.is_timestamp(kind) and kind.unit == "ns"):
        return True
    return any(_is_misread(kind.field(index).type) for index in range(kind.num_fields))

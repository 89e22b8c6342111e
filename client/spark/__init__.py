"""Spark in and out. START HERE: `write(df, address=, topic=)` and `read(spark, address=, topic=)`.

    write.py          write a DataFrame into a topic: staged by its tasks, committed together
    read.py           read a topic as a DataFrame, one task for each range of offsets
    compact.py        a topic as Parquet files with a manifest, and a DataFrame from them
    progress.py       how many rows a stream has yet to read, from Spark's progress
    schema.py         Spark's types and Arrow's
    source.py         the data source `ringfence`: batch_read, batch_write, stream_read, stream_write
    staging.py        shared by all writers; with routing.py, rows to tasks by the topic's partitions
    ranges.py         shared by all readers; with places.py (ends), filters.py (which offsets can match)
    history.py        owner epochs of a log's rows: is a position one of this log?
    stream_offset.py  the offset of a stream in a checkpoint
    options.py        names, defaults and bounds of options

pyspark is imported when a function here is called, never with `import ringfence`.
"""

from __future__ import annotations

from ringfence.spark.compact import CompactedTable, compact
from ringfence.spark.progress import waiting
from ringfence.spark.read import read
from ringfence.spark.schema import arrow_schema, spark_schema
from ringfence.spark.write import WriteResult, Written, write

__all__ = [
    "CompactedTable",
    "WriteResult",
    "Written",
    "arrow_schema",
    "compact",
    "read",
    "spark_schema",
    "waiting",
    "write",
]

"""Read and write topics with Spark. START HERE: `write(df, address=, topic=)` and `read(spark, ...)`.

    write.py          write a DataFrame into a topic: its tasks stage the rows, the driver commits them
    read.py           read a topic as a DataFrame, one task for each range of offsets
    compact.py        write a topic to Parquet files with a manifest, and read them as a DataFrame
    stream_lag.py     count the rows that a stream has yet to read, from Spark's progress
    schema.py         convert between Spark's types and Arrow's
    source.py         the data source `ringfence`: batch_read, batch_write, stream_read, stream_write
    staging.py        first steps of all writers; routing.py shuffles rows by the topic's partitions
    sink_commit.py    last step of all writers: commit staged rows, or remove them
    ranges.py         shared by all readers; read_bounds.py resolves start and end, filters.py narrows ranges
    verify_positions.py    owner epochs of a log's rows, which prove that a position belongs to the log
    stream_offset.py  the offset of a stream in a checkpoint
    stream_lineage.py  what a micro-batch may read of partitions that were split or merged
    stream_cohort.py  the option `cohort`: a stream as the member of a cohort
    options.py        names, defaults and bounds of options

pyspark is imported when a function here is called, never by `import ringfence`.
"""

from __future__ import annotations

from ringfence.spark.compact import CompactedTable, compact
from ringfence.spark.read import read
from ringfence.spark.schema import arrow_schema, spark_schema
from ringfence.spark.stream_lag import waiting
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

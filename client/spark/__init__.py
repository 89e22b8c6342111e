"""Spark in and out. START HERE: `write(df, address=, topic=)` and `read(spark, address=, topic=)`.

    write.py    a DataFrame into a topic, staged by its tasks, committed at once
    read.py     a topic as a DataFrame, one task for each range of offsets
    compact.py  a topic as Parquet files with a manifest, and as a DataFrame from them
    progress.py how many rows wait behind a stream, out of Spark's progress
    schema.py   Spark's types and Arrow's

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

"""Spark in and out. START HERE: `write(df, address=, topic=)` and `read(spark, address=, topic=)`.

    write.py    a DataFrame into a topic, one producer a task
    read.py     a topic as a DataFrame, one task for each range of offsets
    schema.py   Spark's types and Arrow's

pyspark is imported when a function here is called, never with `import ringfence`.
"""

from __future__ import annotations

from ringfence.spark.read import read
from ringfence.spark.schema import arrow_schema, spark_schema
from ringfence.spark.write import WriteResult, Written, write

__all__ = ["WriteResult", "Written", "arrow_schema", "read", "spark_schema", "write"]

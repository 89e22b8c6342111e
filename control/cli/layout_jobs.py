"""Spark's part of `dev --demo-layout`: `python -m ringfence.control.cli.layout_jobs ADDRESS FOLDER`.

A stream writes the files of FOLDER/files into the topic, one in each micro-batch, until a line comes on
stdin, and answers it once all files are stored. After another line Spark reads the topic and answers with
rows and content hash.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ringfence.spark
from ringfence.control.cli.demo_spark import QUICK, application, content
from ringfence.control.cli.output import emit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "lineitem"
FILES: Final = "files"


def stream(spark: SparkSession, address: str, folder: Path) -> None:
    """Write files until a line comes, then those that are left. Raises the stream's error."""
    files = str(folder / FILES)
    schema = spark.read.parquet(files).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(files)
    sink = rows.writeStream.format("ringfence").option("address", address).option("topic", TOPIC)
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).start()
    sys.stdin.readline()
    query.processAllAvailable()
    query.stop()
    emit({"ended": True})


if __name__ == "__main__":
    address_of_nodes, where = sys.argv[1:]
    with application("local[2]", QUICK) as session:
        stream(session, address_of_nodes, Path(where))
        sys.stdin.readline()
        read = ringfence.spark.read(session, address=address_of_nodes, topic=TOPIC)
        count, digest = content(read)
        emit({"rows": count, "digest": digest})

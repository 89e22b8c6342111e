"""Spark writes a DataFrame, all of it or nothing, reads it back, and makes Parquet files of the topic.

pip install 'ringfence[spark]'
ringfence serve --data ./data &
python examples/spark_batch.py
"""

import os
import sys
import tempfile

from pyspark.sql import SparkSession

import ringfence.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own Python processes: with ringfence, too
address = os.environ.get("RINGFENCE_ADDRESS", "tcp://127.0.0.1:7411")
spark = SparkSession.builder.master("local[2]").getOrCreate()

sales = spark.range(0, 10_000).selectExpr("id", "id % 50 AS shop", "cast(id / 7 AS decimal(12, 2)) AS price")
sink = sales.write.format("ringfence").option("address", address).option("topic", "sales").mode("append")
sink.option("createTopic", "true").option("key", "shop").option("partitions", 4).save()

back = spark.read.format("ringfence").option("address", address).load("sales")
back.groupBy("shop").sum("price").orderBy("shop").show(3)

with tempfile.TemporaryDirectory() as folder:
    made = ringfence.spark.compact(spark, address=address, topic="sales", directory=folder, sort=["shop"])
    print(made.added.files, "files,", made.table.count(), "rows")

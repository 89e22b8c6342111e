"""A Spark stream from one topic into another, each row once; stop it whenever you like, and run it again.

Each run adds 5,000 clicks, of which the stream copies 4,500: what it did before stands in its checkpoint.
"""

import os
import sys

from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own Python processes: with ringfence, too
address = os.environ.get("RINGFENCE_ADDRESS", "tcp://127.0.0.1:7411")
spark = SparkSession.builder.master("local[2]").getOrCreate()
checkpoint = os.environ.get("CHECKPOINT", "spark_stream-checkpoint")  # keep it: it knows what was done

clicks = spark.range(0, 5_000).selectExpr("id", "concat('page-', id % 10) AS page")
clicks.write.format("ringfence").option("address", address).option("topic", "clicks").option(
    "createTopic", "true"
).option("key", "id").mode("append").save()

source = spark.readStream.format("ringfence").option("address", address).load("clicks")
sink = source.where("page <> 'page-0'").writeStream.format("ringfence").option("address", address)
sink = sink.option("topic", "pages").option("createTopic", "true").option("key", "page")
query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()  # without a trigger it goes on for ever
print(spark.read.format("ringfence").option("address", address).load("pages").count(), "rows")

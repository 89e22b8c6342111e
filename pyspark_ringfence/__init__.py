"""Where Spark looks for data sources: DefaultSource of every top-level package named `pyspark_*`.

So `.format("ringfence")` works without a registration. Everything else is in `ringfence.spark`.
"""

from ringfence.spark.source import RingfenceSource as DefaultSource

__all__ = ["DefaultSource"]

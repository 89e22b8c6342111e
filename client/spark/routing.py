"""Shuffle rows by the topic's partitions with Spark's own hash, so that each task writes one partition."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ringfence.common.routing import Layout

# The expression has one comparison for each partition; with more, Spark compiles it longer than it runs.
PARTITIONS_MAX = 256


def repartition_by_slot(df: DataFrame, layout: Layout) -> DataFrame:
    """Shuffle the rows so that task i has those of the topic's i-th partition, in order of slots.

    A key column whose type differs from the topic's hashes to another slot in Spark. Rows of a task then go
    to several partitions, which is slower and still correct.

    Raises:
        InvalidArgumentError: the topic has no key, or more than PARTITIONS_MAX partitions.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - never with `import ringfence`

    starts = sorted(entry.lo for entry in layout.active)
    if not layout.key:
        raise InvalidArgumentError(
            "rows of a topic without a key belong to no partition; write with repartition=False",
            topic=layout.name,
        )
    if len(starts) > PARTITIONS_MAX:
        raise InvalidArgumentError(
            "the topic has too many partitions to shuffle by; write with repartition=False",
            topic=layout.name,
            partitions=len(starts),
            partitions_max=PARTITIONS_MAX,
        )
    slot = f.shiftrightunsigned(f.xxhash64(*layout.key), 48)
    # The index of the partition: the number of later partitions whose slots begin at or below this slot.
    reached = [(slot >= start).cast("int") for start in starts[1:]]
    index: Column = reduce(lambda one, other: one + other, reached, f.lit(0))
    return df.repartitionById(len(starts), index)

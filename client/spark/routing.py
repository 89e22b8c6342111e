"""Rows to tasks by the topic's partitions, with Spark's own hash: one task writes one partition."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ringfence.native.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ringfence.common.routing import Layout

PARTITIONS_MAX = (
    256  # the expression has a comparison for each: many take Spark longer to compile than to run
)


def routed(df: DataFrame, layout: Layout) -> DataFrame:
    """The rows, shuffled so that task i has those of the topic's partition i, in order of slots.

    A column whose type in the DataFrame is not that of the topic hashes otherwise here than there: then
    rows of a task go to several partitions, and everything else holds.

    Raises:
        InvalidArgumentError: the topic has no key, or more partitions than make sense.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - never with `import ringfence`

    starts = sorted(entry.lo for entry in layout.active)
    if not layout.key:
        raise InvalidArgumentError("a topic without key has no rows of a partition", topic=layout.name)
    if len(starts) > PARTITIONS_MAX:
        raise InvalidArgumentError(
            "too many partitions to shuffle by; write without it",
            topic=layout.name,
            partitions=len(starts),
            partitions_max=PARTITIONS_MAX,
        )
    slot = f.shiftrightunsigned(f.xxhash64(*layout.key), 48)
    behind = [(slot >= start).cast("int") for start in starts[1:]]
    index: Column = reduce(lambda one, other: one + other, behind, f.lit(0))
    return df.repartitionById(len(starts), index)

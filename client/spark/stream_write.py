"""`df.writeStream.format("ringfence")`: each micro-batch comes into the topic once, however often it is run.

The scope is the query's id, which its checkpoint keeps; the epoch is the micro-batch's number and one. Spark
runs the last micro-batch again after a crash; if it is committed, the tasks are told so, and store nothing. A
run of the query is one driver: a later run fences it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ringfence.native.errors import InvalidArgumentError, ProtocolError
from ringfence.spark.batch_write import StagedMessage, staged_of, target_of
from ringfence.spark.staging import QUERY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from ringfence.spark.options import SourceOptions

RUN, BATCH = "spark.jobGroup.id", "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Made on the driver for each micro-batch, and again for each commit."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._target = target_of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query, run, batch = (context.getLocalProperty(name) for name in (QUERY, RUN, BATCH))
        if query is None or batch is None:
            raise ProtocolError("Spark does not say which query and batch this is", query=query, batch=batch)
        begun = self._target.begin_query(f"spark-query-{query}", (run or "").encode()[:64])
        epoch = int(batch) + 1
        if epoch < begun.committed:
            raise InvalidArgumentError(
                "the query has committed later micro-batches than this one: its checkpoint is older than the "
                "topic (restored, edited, or of a copy of the query), and its rows would be passed over; "
                "give it a new checkpointLocation, and a start behind what the topic has",
                topic=self._target.topic,
                query=query,
                batch=int(batch),
                committed=begun.committed - 1,
            )
        if epoch == begun.committed:
            iterator = iter(())
        return StagedMessage(self._target.stage(begun, epoch, context.partitionId(), iterator), begun)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every row of the micro-batch can be read when this returns."""
        begun = [message.begun for message in messages if isinstance(message, StagedMessage)]
        if begun:
            self._target.commit(max(begun, key=lambda one: one.driver), batchId + 1, staged_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The query may run this micro-batch again: its epoch must not expire, its commit drops the rest."""

"""Stream writer of `df.writeStream.format("ringfence")`: stores each micro-batch exactly once.

The scope is the query's id, which the checkpoint has; the epoch is the micro-batch's number plus one. Spark
runs the last micro-batch again after a crash; if it is committed already, the tasks stage nothing. A run of
the query is one driver of the scope, which a later run fences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ringfence.native.errors import InvalidArgumentError, ProtocolError
from ringfence.spark import sink_commit
from ringfence.spark.batch_write import StagedMessage, staged_rows, target_of
from ringfence.spark.staging import QUERY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from ringfence.spark.options import SourceOptions

# Spark's local properties with the id of the query's run, and the number of the micro-batch.
RUN, BATCH = "spark.jobGroup.id", "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Created on the driver for each micro-batch, and again for each commit."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._target = target_of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query, run, batch = (context.getLocalProperty(name) for name in (QUERY, RUN, BATCH))
        if query is None or batch is None:
            raise ProtocolError(
                "Spark has not set the properties with the query and the batch of this task; use Spark 4.3",
                query=query,
                batch=batch,
            )
        begun = self._target.begin_query(f"spark-query-{query}", (run or "").encode()[:64])
        epoch = int(batch) + 1
        if epoch < begun.committed:
            raise InvalidArgumentError(
                "the query has committed later micro-batches: its checkpoint is older than the topic "
                "(restored, edited, or of a copy of the query), and its rows would be left out; give the "
                "query a new checkpointLocation, and a start after the rows that the topic has",
                topic=self._target.topic,
                query=query,
                batch=int(batch),
                committed=begun.committed - 1,
            )
        if epoch == begun.committed:
            iterator = iter(())
        return StagedMessage(self._target.stage(begun, epoch, context.partitionId(), iterator), begun)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the micro-batch. All of its rows can be read when this returns."""
        begun = [message.begun for message in messages if isinstance(message, StagedMessage)]
        if begun:
            newest = max(begun, key=lambda one: one.driver)
            sink_commit.commit(self._target, newest, batchId + 1, staged_rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing. The query may run the micro-batch again, so its epoch must not expire.

        The commit of that run removes the staged rows of this one.
        """

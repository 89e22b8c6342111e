"""Batch writer of `df.write.format("ringfence").mode("append")`: stores all rows exactly once, or none.

The tasks begin the scope of the option `scope`: only they can read the id of the streaming query that the
write is part of (a `save` inside `foreachBatch`). The scope then belongs to the query. So a query with a new
checkpoint, whose batches count from 0 again, finds no epoch committed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ringfence.common.scope_values import StagedRows
from ringfence.spark import sink_commit
from ringfence.spark.options import PARTITIONS, check_scope
from ringfence.spark.staging import QUERY, prepare_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ringfence.common.scope_values import Begun
    from ringfence.spark.options import SourceOptions
    from ringfence.spark.staging import Target


class StagedMessage(WriterCommitMessage):
    """The rows that one attempt of a task staged, and the driver of the scope."""

    def __init__(self, staged: StagedRows, begun: Begun) -> None:
        self.staged, self.begun = staged, begun


class BatchWriter(DataSourceArrowWriter):
    """Created on the driver; `write` runs on workers, `commit` and `abort` on the driver again."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """With the options `scope` and `epoch` a second run of the job changes nothing.

        Raises:
            InvalidArgumentError: the options have only one of them.
        """
        scope, epoch = options.text("scope"), options.count("epoch", None)
        check_scope(scope, epoch)
        self._target = target_of(options, schema)
        self._scope, self._instance = scope, uuid.uuid4().bytes
        # A new scope of this write alone; None with the option `scope`.
        self._one_off = self._target.begin(None, "spark-batch") if scope is None else None
        self._epoch = 1 if epoch is None else epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        writer = context.partitionId() if context is not None else 0
        query = context.getLocalProperty(QUERY) if context is not None else None
        begun = self._one_off or self._begin(query)
        if query is not None:
            sink_commit.check_newest(self._target.topic, self._scope, self._epoch, begun)
        if self._epoch <= begun.committed:
            iterator = iter(())  # an earlier run has committed the epoch: stage nothing
        return StagedMessage(self._target.stage(begun, self._epoch, writer, iterator), begun)

    def _begin(self, query: str | None) -> Begun:
        return self._target.begin(self._scope, "spark-batch", instance=self._instance, query=query)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows of the attempts that Spark kept. All can be read when this returns."""
        begun = max(
            (message.begun for message in messages if isinstance(message, StagedMessage)),
            key=lambda one: one.driver,
            default=self._one_off,
        )
        if begun is None:
            return  # no task and no row: a second run of this epoch has nothing to store twice
        if self._epoch <= begun.committed:
            sink_commit.log_left_out(self._target.topic, self._scope, self._epoch, begun)
        is_alone = self._one_off is not None
        sink_commit.commit(self._target, begun, self._epoch, staged_rows(messages), is_alone=is_alone)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Remove the staged rows of a failed job. A named scope keeps them until its next commit."""
        if self._one_off is not None:
            sink_commit.expire(self._target, self._one_off, self._epoch)


def target_of(options: SourceOptions, schema: StructType) -> Target:
    """The target of a writer with these options."""
    partitions = options.count("partitions", PARTITIONS)
    assert partitions is not None
    return prepare_target(
        schema,
        address=options.address,
        token_file=options.token_file,
        topic=options.topic,
        timeout_s=options.timeout_s,
        create=options.flag("createTopic", default=False),
        key=options.names("key"),
        partitions=partitions,
    )


def staged_rows(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    """The staged rows of the attempts that Spark kept."""
    staged = [message.staged for message in messages if isinstance(message, StagedMessage)]
    assert len(staged) == len(messages), "Spark commits only when every task has sent its message"
    return staged

"""`df.write.format("ringfence").mode("append")`: all rows of a DataFrame come, once, or none.

A scope that is given is begun by the tasks: they know whether the write is part of a streaming query (a
`save` inside `foreachBatch`), and of which. Such a scope is one of the query, so that a query with a new
checkpoint, whose batches count from 0 again, finds no epoch committed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ringfence.common.scope_values import StagedRows
from ringfence.spark.options import PARTITIONS, check_scope
from ringfence.spark.staging import QUERY, check_newest, target, tell_left_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ringfence.common.scope_values import Begun
    from ringfence.spark.options import SourceOptions
    from ringfence.spark.staging import Target


class StagedMessage(WriterCommitMessage):
    """What one attempt of a task staged, and as which driver of the scope."""

    def __init__(self, staged: StagedRows, begun: Begun) -> None:
        self.staged, self.begun = staged, begun


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver; `write` runs on workers, `commit` on the driver again."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Options `scope` and `epoch`: a job that is run again under both changes nothing.

        Raises:
            InvalidArgumentError: only one of them is given.
        """
        scope, epoch = options.text("scope"), options.count("epoch", None)
        check_scope(scope, epoch)
        self._target = target_of(options, schema)
        self._scope, self._instance = scope, uuid.uuid4().bytes
        self._own = self._target.begin(None, "spark-batch") if scope is None else None
        self._epoch = 1 if epoch is None else epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        writer = context.partitionId() if context is not None else 0
        query = context.getLocalProperty(QUERY) if context is not None else None
        begun = self._own or self._begin(query)
        if query is not None:
            check_newest(self._target.topic, self._scope, self._epoch, begun)
        if self._epoch <= begun.committed:
            iterator = iter(())  # committed by an earlier run: nothing of this one is needed
        return StagedMessage(self._target.stage(begun, self._epoch, writer, iterator), begun)

    def _begin(self, query: str | None) -> Begun:
        return self._target.begin(self._scope, "spark-batch", instance=self._instance, query=query)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row can be read when this returns."""
        begun = max(
            (message.begun for message in messages if isinstance(message, StagedMessage)),
            key=lambda one: one.driver,
            default=self._own,
        )
        if begun is None:
            return  # no task, no row: there is nothing that a run of this epoch could store twice
        if self._epoch <= begun.committed:
            tell_left_out(self._target.topic, self._scope, self._epoch, begun)
        self._target.commit(begun, self._epoch, staged_of(messages), is_alone=self._own is not None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """The job failed: what its tasks staged is given up."""
        if self._own is not None:
            self._target.give_up(self._own, self._epoch)


def target_of(options: SourceOptions, schema: StructType) -> Target:
    """Where a writer with these options writes to."""
    partitions = options.count("partitions", PARTITIONS)
    assert partitions is not None
    return target(
        schema,
        address=options.address,
        token_file=options.token_file,
        topic=options.topic,
        timeout_s=options.timeout_s,
        create=options.flag("createTopic", default=False),
        key=options.names("key"),
        partitions=partitions,
    )


def staged_of(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    """What the attempts that Spark kept have staged."""
    found = [message.staged for message in messages if isinstance(message, StagedMessage)]
    assert len(found) == len(messages), "Spark commits only when every task has sent its message"
    return found

"""`df.write.format("ringfence").mode("append")`: all rows of a DataFrame come, once, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ringfence.spark.options import PARTITIONS, check_scope
from ringfence.spark.staging import target
from ringfence.stage import StagedRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ringfence.spark.options import SourceOptions
    from ringfence.spark.staging import Target


class StagedMessage(WriterCommitMessage):
    """What one attempt of a task staged."""

    def __init__(self, staged: StagedRows) -> None:
        self.staged = staged


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver, where the scope is begun; `write` runs on workers, `commit` on the driver again."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Options `scope` and `epoch`: a job that is run again under both changes nothing.

        Raises:
            InvalidArgumentError: only one of them is given.
        """
        scope, epoch = options.text("scope"), options.count("epoch", None)
        check_scope(scope, epoch)
        self._target = target_of(options, schema)
        self._is_own = scope is None
        self._begun = self._target.begin(scope, "spark-batch")
        self._epoch = 1 if epoch is None else epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        writer = context.partitionId() if context is not None else 0
        if self._epoch <= self._begun.committed:
            iterator = iter(())  # committed by an earlier run: nothing of this one is needed
        return StagedMessage(self._target.stage(self._begun, self._epoch, writer, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row can be read when this returns."""
        staged = staged_of(messages)
        self._target.commit(self._begun, self._epoch, staged, is_alone=self._is_own)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """The job failed: what its tasks staged is given up."""
        if self._is_own:
            self._target.give_up(self._begun, self._epoch)


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

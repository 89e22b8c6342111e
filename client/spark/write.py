"""Write a DataFrame into a topic by `mapInArrow`: its tasks stage the rows, the driver commits them together.

**Exactly once**, also with retries and speculation: a task that Spark runs again, or twice in parallel,
stages under another token, and only the attempts whose results Spark kept are committed. All rows can be read
when `write` returns. If it raises, no row can ever be read; after UnknownOutcomeError all rows can, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringfence.client import connect
from ringfence.common.scope_values import StagedRows
from ringfence.spark import sink_commit
from ringfence.spark.options import check_scope, check_timeout
from ringfence.spark.routing import repartition_by_slot
from ringfence.spark.schema import use_this_python
from ringfence.spark.staging import QUERY, prepare_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from ringfence.common.scope_values import Begun, Parts
    from ringfence.spark.staging import Target

DELIVERY: Final = "exactly once: rows of the attempts that Spark kept, committed together"
# The result of a task: one row of a few bytes for each partition that it wrote to.
REPORT = pa.schema(
    [
        pa.field("task", pa.int32(), nullable=False),
        pa.field("attempt", pa.int64(), nullable=False),
        pa.field("token", pa.binary(), nullable=False),
        pa.field("topic", pa.int64(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)
REPORT_DDL = "task int, attempt bigint, token binary, topic bigint, partition bigint, rows bigint"


@dataclass(frozen=True, slots=True)
class Written:
    """The rows of one task in one partition, possibly with rows of other tasks between them."""

    task: int
    attempt: int
    partition: int
    rows: int


@dataclass(frozen=True, slots=True, repr=False)
class WriteResult:
    """The result of `write`.

    Attributes:
        topic: full name.
        delivery: the delivery guarantee, in words.
        written: one entry for each task and partition.
        already: True if an earlier run has committed this scope and epoch, and this run wrote nothing.
    """

    topic: str
    written: tuple[Written, ...]
    delivery: str = DELIVERY
    already: bool = False

    @property
    def rows(self) -> int:
        """Number of rows that were stored, all on disk."""
        return sum(part.rows for part in self.written)

    def __repr__(self) -> str:
        """Without `delivery`, which is constant, and `written`, which may have thousands of entries."""
        return f"WriteResult(topic={self.topic!r}, rows={self.rows}, already={self.already})"


def write(
    df: DataFrame,
    *,
    address: str | None = None,
    topic: str,
    create: bool = False,
    key: str | Sequence[str] = (),
    partitions: int = 8,
    timeout_s: float = 300.0,
    token_file: str | None = None,
    scope: str | None = None,
    epoch: int | None = None,
    repartition: bool = False,
) -> WriteResult:
    """Append the rows of a DataFrame to a topic, exactly once; all of them can be read when it returns.

    Args:
        df: the rows; columns are matched by name.
        address: of one or more nodes, as for `ringfence.connect`; executors must reach them, too.
        topic: name of the topic.
        create: create the topic with the DataFrame's schema, `key` and `partitions`, unless it exists.
        key: name or names of the columns that select a row's partition; an existing topic with another key
            is refused. `shiftrightunsigned(xxhash64(key), 48)` is the slot here and in Spark.
        partitions: number of partitions of a topic that is created.
        timeout_s: seconds within which each batch must be stored, retries included; then the task fails.
        token_file: a file with the token, on driver and workers; default: RINGFENCE_TOKEN of each process.
        scope: a job of this topic (in `foreachBatch`: of the query); a committed `epoch` writes nothing.
        epoch: from 1, ascending within the scope.
        repartition: shuffle first, so that each task writes one partition, in fewer and larger batches.

    Raises:
        NotFoundError: no such topic, and `create` is False. SchemaError: columns do not fit the topic.
        InvalidArgumentError: only one of scope and epoch, an epoch below 1, or a timeout above a day.
        pyspark.errors.PythonException: all of Spark's attempts of a task failed; nothing was written.
        UnknownOutcomeError: all rows are stored, or none; with scope and epoch run the write again.
    """
    check_scope(scope, epoch)
    use_this_python()
    target = prepare_target(
        df.schema,
        address=address,
        token_file=token_file,
        topic=topic,
        timeout_s=check_timeout("timeout_s", timeout_s, timeout_s),
        create=create,
        key=(key,) if isinstance(key, str) else key,
        partitions=partitions,
    )
    begun = target.begin(scope, "spark-write", query=_query_of(df))
    number = 1 if epoch is None else epoch
    if _is_left_out(df, target, scope, number, begun):
        return WriteResult(target.topic, (), already=True)
    if repartition:
        with connect(target.address, token_file=token_file) as client:
            df = repartition_by_slot(df, client.layout(target.topic))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _write_task(batches, target, begun, number)

    try:
        reports = df.mapInArrow(task, REPORT_DDL).collect()
    except BaseException:
        # Ctrl-C, too: PySpark cancels the job, and no other run uses a scope without a name.
        if scope is None:
            sink_commit.expire(target, begun, number)
        raise
    is_new = sink_commit.commit(target, begun, number, _kept(begun, number, reports), is_alone=scope is None)
    parts = (Written(row.task, row.attempt, row.partition, row.rows) for row in reports if row.rows)
    written = sorted(parts, key=lambda part: (part.task, part.partition)) if is_new else []
    return WriteResult(target.topic, tuple(written), already=not is_new)


def _is_left_out(df: DataFrame, target: Target, scope: str | None, epoch: int, begun: Begun) -> bool:
    """Whether an earlier run has committed the epoch. Raises InvalidArgumentError as `check_newest`."""
    if scope is not None and _query_of(df) is not None:
        sink_commit.check_newest(target.topic, scope, epoch, begun)
    if epoch > begun.committed:
        return False
    sink_commit.log_left_out(target.topic, scope, epoch, begun)
    return True


def _query_of(df: DataFrame) -> str | None:
    """Id of the streaming query whose `foreachBatch` calls `write`; None outside of one."""
    # Spark Connect has no context: pyspark's error there is an AttributeError.
    context = getattr(getattr(df, "sparkSession", None), "sparkContext", None)
    query = None if context is None else context.getLocalProperty(QUERY)
    return str(query) if query else None


def _write_task(
    batches: Iterator[pa.RecordBatch], target: Target, begun: Begun, epoch: int
) -> pa.RecordBatch:
    """In Spark's Python worker: stage the rows of one task. All are on disk when this returns."""
    from pyspark import TaskContext  # noqa: PLC0415 - never with `import ringfence`

    context = TaskContext.get()
    task, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
    staged = target.stage(begun, epoch, task, batches)
    rows: list[tuple[Any, ...]] = [
        (task, attempt, staged.token, topic, partition, count)
        for (topic, partition), count in sorted(staged.parts.items())
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(REPORT)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, REPORT, strict=True)],
        schema=REPORT,
    )


def _kept(begun: Begun, epoch: int, rows: Iterable[Any]) -> list[StagedRows]:
    """The attempts whose reports Spark returned."""
    tokens: dict[bytes, Parts] = {}
    for row in rows:
        tokens.setdefault(bytes(row.token), {})[row.topic, row.partition] = row.rows
    return [
        StagedRows(token, parts, already=False, scope=begun.scope, epoch=epoch)
        for token, parts in tokens.items()
    ]

"""A DataFrame into a topic: `mapInArrow`, staged by its tasks, committed at once by the driver.

**Exactly once**, whatever Spark does: a task that it runs again, or twice at once, stages under another
token, and only the attempts whose results Spark kept are committed. All rows can be read when `write`
returns; if it raises, none ever can, unless it is UnknownOutcomeError: then all can, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringfence.client import connect
from ringfence.common.scope_values import StagedRows
from ringfence.spark.options import check_scope, check_timeout
from ringfence.spark.routing import routed
from ringfence.spark.schema import use_this_python
from ringfence.spark.staging import QUERY, check_newest, target, tell_left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from ringfence.common.scope_values import Begun, Parts
    from ringfence.spark.staging import Target

DELIVERY: Final = "exactly once: rows of the attempts that Spark kept, committed together"
# What the tasks send back: a few bytes for each partition that they wrote to.
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
    """What one task wrote to one partition. Other tasks' rows lie between."""

    task: int
    attempt: int
    partition: int
    rows: int


@dataclass(frozen=True, slots=True, repr=False)
class WriteResult:
    """What was written.

    Attributes:
        topic: full name.
        delivery: what is promised, in words.
        written: one entry for each task and partition.
        already: True if this scope and epoch were committed by an earlier run: then nothing was written now.
    """

    topic: str
    written: tuple[Written, ...]
    delivery: str = DELIVERY
    already: bool = False

    @property
    def rows(self) -> int:
        """Rows that came into the topic, each on disk."""
        return sum(part.rows for part in self.written)

    def __repr__(self) -> str:
        """Without `written`, which has thousands of entries after a large write, and what never changes."""
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
        df: its columns are matched by name.
        address: of a node, as for `ringfence.connect`; executors must reach it, too.
        topic: its name.
        create: create the topic with the DataFrame's schema, `key` and `partitions`, unless it exists.
        key: columns that say which partition a row belongs to, a str is one; an existing topic with another
            key is refused. `shiftrightunsigned(xxhash64(key), 48)` is the slot here and in Spark.
        partitions: of a topic that is created.
        timeout_s: seconds within which each batch must be stored, retries included; then the task fails.
        token_file: a file with the token, on driver and workers; default: RINGFENCE_TOKEN of each process.
        scope: a job of this topic (in `foreachBatch`: of the query); a committed `epoch` writes nothing.
        epoch: from 1, ascending within the scope.
        repartition: shuffle the rows first, so that each task writes one partition: fewer, larger batches,
            for the price of the shuffle.

    Raises:
        NotFoundError: no such topic, and `create` is False. SchemaError: columns do not fit.
        InvalidArgumentError: only one of scope and epoch, an epoch below 1, or a timeout above a day.
        pyspark.errors.PythonException: a task failed as often as Spark tries it; nothing was written.
        UnknownOutcomeError: all rows are there, or none; with scope and epoch run the write again.
    """
    check_scope(scope, epoch)
    use_this_python()
    place = target(
        df.schema,
        address=address,
        token_file=token_file,
        topic=topic,
        timeout_s=check_timeout("timeout_s", timeout_s, timeout_s),
        create=create,
        key=(key,) if isinstance(key, str) else key,
        partitions=partitions,
    )
    begun = place.begin(scope, "spark-write", query=_query_of(df))
    number = 1 if epoch is None else epoch
    if _is_left_out(df, place, scope, number, begun):
        return WriteResult(place.topic, (), already=True)
    if repartition:
        with connect(place.address, token_file=token_file) as client:
            df = routed(df, client.layout(place.topic))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _write_task(batches, place, begun, number)

    try:
        found = df.mapInArrow(task, REPORT_DDL).collect()
    except BaseException:  # Ctrl-C, too: PySpark cancels the job, and nobody could run its scope again
        if scope is None:
            place.give_up(begun, number)
        raise
    fresh = place.commit(begun, number, _staged(begun, number, found), is_alone=scope is None)
    parts = (Written(row.task, row.attempt, row.partition, row.rows) for row in found if row.rows)
    written = sorted(parts, key=lambda part: (part.task, part.partition)) if fresh else []
    return WriteResult(place.topic, tuple(written), already=not fresh)


def _is_left_out(df: DataFrame, place: Target, scope: str | None, epoch: int, begun: Begun) -> bool:
    """Whether an earlier run has committed the epoch. Raises InvalidArgumentError as `check_newest`."""
    if scope is not None and _query_of(df) is not None:
        check_newest(place.topic, scope, epoch, begun)
    if epoch > begun.committed:
        return False
    tell_left_out(place.topic, scope, epoch, begun)
    return True


def _query_of(df: DataFrame) -> str | None:
    """Id of the streaming query whose `foreachBatch` this is."""
    # Spark Connect has no context: pyspark's error there is an AttributeError.
    context = getattr(getattr(df, "sparkSession", None), "sparkContext", None)
    found = None if context is None else context.getLocalProperty(QUERY)
    return str(found) if found else None


def _write_task(batches: Iterator[pa.RecordBatch], place: Target, begun: Begun, epoch: int) -> pa.RecordBatch:
    """Runs in Spark's Python worker: everything that came is staged when it returns."""
    from pyspark import TaskContext  # noqa: PLC0415 - never with `import ringfence`

    context = TaskContext.get()
    task, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
    staged = place.stage(begun, epoch, task, batches)
    rows: list[tuple[Any, ...]] = [
        (task, attempt, staged.token, topic, partition, count)
        for (topic, partition), count in sorted(staged.parts.items())
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(REPORT)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, REPORT, strict=True)],
        schema=REPORT,
    )


def _staged(begun: Begun, epoch: int, rows: Iterable[Any]) -> list[StagedRows]:
    """The attempts whose reports came."""
    parts: dict[bytes, Parts] = {}
    for row in rows:
        parts.setdefault(bytes(row.token), {})[row.topic, row.partition] = row.rows
    return [
        StagedRows(token, found, already=False, scope=begun.scope, epoch=epoch)
        for token, found in parts.items()
    ]

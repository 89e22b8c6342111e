"""A DataFrame into a topic: `mapInArrow` with one producer a task.

**At least once.** Each task appends exactly once what it sends, but Spark may run a task again (a lost
executor, a retry, speculation), and the second run is another producer: rows of the first run stay and come
again. Nothing is ever lost when `write` returns. Count and compare by a key of your own where doubles matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringfence.client import connect
from ringfence.spark.schema import arrow_schema, use_this_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

DELIVERY: Final = "at least once: a task that Spark runs again appends its rows again"
# What the tasks send back: a few bytes for each partition that they wrote to.
REPORT = pa.schema(
    [
        pa.field("task", pa.int32(), nullable=False),
        pa.field("attempt", pa.int64(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("batches", pa.int64(), nullable=False),
    ]
)
REPORT_DDL = "task int, attempt bigint, partition bigint, first_offset bigint, rows bigint, batches bigint"


@dataclass(frozen=True, slots=True)
class Written:
    """What one task appended to one partition, the first row at `first_offset`.

    Other tasks' rows lie between.
    """

    task: int
    attempt: int
    partition: int
    first_offset: int
    rows: int
    batches: int


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What was appended by the tasks whose results Spark kept; runs that it threw away are not counted.

    Attributes:
        topic: full name.
        delivery: what is promised, in words.
        written: one entry for each task and partition.
    """

    topic: str
    written: tuple[Written, ...]
    delivery: str = DELIVERY

    @property
    def rows(self) -> int:
        """Rows appended, each on disk."""
        return sum(part.rows for part in self.written)

    @property
    def batches(self) -> int:
        """Bodies appended."""
        return sum(part.batches for part in self.written)


def write(
    df: DataFrame,
    *,
    address: str | None = None,
    topic: str,
    create: bool = False,
    key: Sequence[str] = (),
    partitions: int = 8,
    timeout_s: float = 300.0,
    credential: str | None = None,
) -> WriteResult:
    """Append the rows of a DataFrame to a topic, on disk when it returns. At least once: see the module.

    Args:
        df: its columns are matched by name.
        address: of a node, as for `ringfence.connect`; executors must reach it, too.
        topic: its name.
        create: create the topic with the DataFrame's schema, `key` and `partitions`, unless it exists.
        key: columns whose values say which partition a row belongs to. `shiftrightunsigned(xxhash64(key),
            48)` is the slot here and in Spark, so a DataFrame may be repartitioned by it before.
        partitions: of a topic that is created.
        timeout_s: seconds within which each batch must be stored, retries included; then the task fails.
        credential: a token, where the node asks for one.

    Raises:
        NotFoundError: no such topic, and `create` is False. SchemaError: the columns do not fit.
        pyspark.errors.PythonException: a task failed as often as Spark tries it.
    """
    use_this_python()
    with connect(address, credential=credential) as client:
        if create:
            client.create_topic(
                topic, schema=arrow_schema(df.schema), key=key, partitions=partitions, exist_ok=True
            )
        name = client.topic(topic).name
        address = ",".join(client.addresses)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _write_task(batches, address, name, timeout_s, credential)

    found = df.mapInArrow(task, REPORT_DDL).collect()
    written = sorted((Written(*row) for row in found), key=lambda part: (part.task, part.partition))
    return WriteResult(name, tuple(written))


def _write_task(
    batches: Iterator[pa.RecordBatch], address: str, topic: str, timeout_s: float, credential: str | None
) -> pa.RecordBatch:
    """Runs in Spark's Python worker: everything that came is on disk when it returns."""
    from pyspark import TaskContext  # noqa: PLC0415 - never with `import ringfence`

    context = TaskContext.get()
    task, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
    futures: list[Any] = []
    with (
        connect(address, credential=credential) as client,
        client.producer(topic, timeout_s=timeout_s) as producer,
    ):
        futures = [producer.send(batch) for batch in batches]
    found: dict[int, list[int]] = {}
    for future in futures:
        for part in future.result(0):
            entry = found.setdefault(part.partition, [part.first_offset, 0, 0])
            entry[0] = min(entry[0], part.first_offset)
            entry[1] += part.rows
            entry[2] += 1
    rows = [(task, attempt, partition, *entry) for partition, entry in sorted(found.items())]
    columns = list(zip(*rows, strict=True)) or [()] * len(REPORT)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, REPORT, strict=True)],
        schema=REPORT,
    )

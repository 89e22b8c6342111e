"""`spark.readStream.format("ringfence")`: micro-batches between positions that Spark keeps in its checkpoint.

A position of the checkpoint must be one of the log's history: after an owner was chosen by force, a stream
goes on where the rows that it has read are still in the log, and fails where they were lost.
`stream_offset` has the format.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ringfence.client import connect
from ringfence.cluster.offsets import Position
from ringfence.native.errors import TruncatedError
from ringfence.spark.batch_read import RangePartition, range_reader
from ringfence.spark.history import History
from ringfence.spark.options import ROWS_A_TASK
from ringfence.spark.places import positions_of
from ringfence.spark.ranges import Range, split
from ringfence.spark.stream_offset import damaged, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends
    from ringfence.spark.options import SourceOptions

WAY_OUT = (
    "rows that the query has read were lost. Give it a checkpointLocation of its own and a start; "
    'docs/spark.md says how, under "After a forced owner"'
)
_LOG = logging.getLogger("ringfence.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, where one client stays open; `read` runs on workers and uses none of it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reader = range_reader(options, schema)
        self._client: Client | None = None
        self._target: dict[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # workers get values only

    # ---- offsets, on the driver
    # -----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Option `start`: earliest unless it says otherwise."""
        ends = self._ends()
        start = self._options.text("start") or "earliest"
        first = positions_of(self._connected(), self._options.topic, ends, start, name="start")
        epochs = self._history(ends).epochs(
            {at.partition: at.offset for at in first.values() if not at.epoch}
        )
        return self._offset(
            at._replace(epoch=epochs.get(partition, at.epoch)) for partition, at in first.items()
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next micro-batch goes: all that can be read, within the limits of a trigger.

        Raises:
            InvalidArgumentError: `start` is of another topic or a newer format.
            TruncatedError: rows behind `start` were given up, unless failOnDataLoss is false; or rows before
            it were lost, and the log has another history.
        """
        begin, ends = self._checked(start), self._ends()
        history = self._history(ends)
        self._prove(history, begin)
        last = {end.partition: end.end for end in ends.values()}
        if self._target is not None:
            last = {
                partition: min(offset, self._target.get(partition, 0)) for partition, offset in last.items()
            }
        begin = self._retained(begin, ends)
        first = {partition: at.offset for partition, at in begin.items()}
        last = {partition: max(offset, first.get(partition, 0)) for partition, offset in last.items()}
        room = self._rows_room(limit, first, last)
        if room is not None:
            last = shared(first, last, room)
        epochs = history.epochs(last)
        return self._offset(Position(partition, at, epochs[partition]) for partition, at in last.items())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Options maxRowsPerTrigger and maxBytesPerTrigger; both hold where both are given."""
        rows = self._options.count("maxRowsPerTrigger", None)
        size = self._options.count("maxBytesPerTrigger", None)
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._offset(Position(end.partition, end.end, end.epoch) for end in self._ends().values())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = {end.partition: end.end for end in self._ends().values()}

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint is the place of the query; the node keeps none."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- a micro-batch
    # ---------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Ranges from `start` to `end`; after a restart both come from the checkpoint."""
        first, last, ends = self._checked(start), self._checked(end), self._ends()
        for partition, at in first.items():
            until = last.get(partition, at).offset
            if at.offset > until:
                what = f"partition {partition} ends at {until}, begins at {at.offset}"
                raise damaged(self._options.topic, end, what)
        history = self._history(ends)
        self._prove(history, first)
        self._prove(history, last)
        first = self._retained(first, ends)
        spans = [
            Range.between(first.get(partition, Position(partition, 0)), at)
            for partition, at in sorted(last.items())
        ]
        rows_a_task = self._options.count("rowsPerTask", ROWS_A_TASK)
        assert rows_a_task is not None
        return [RangePartition(span) for span in history.with_epochs(split(spans, rows_a_task))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._reader.read(partition.span)

    # ---- inside
    # -----------------------------------------------------------------------------------------------

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect(self._options.address, token_file=self._options.token_file)
        return self._client

    def _ends(self) -> dict[int, Ends]:
        return self._connected().end_offsets(self._options.topic)

    def _history(self, ends: Mapping[int, Ends]) -> History:
        return History(self._connected(), self._options.topic, ends)

    def _prove(self, history: History, positions: Mapping[int, Position]) -> None:
        """Raises TruncatedError where the log has another history than the query has read, or planned to."""
        history.prove(positions.values(), whose="the checkpoint", way_out=WAY_OUT)

    def _offset(self, positions: Iterable[Position]) -> dict[str, Any]:
        return encode(self._connected().topic(self._options.topic), positions)

    def _checked(self, offset: object) -> dict[int, Position]:
        return decode(self._connected().topic(self._options.topic), offset)

    def _retained(self, first: Mapping[int, Position], ends: Mapping[int, Ends]) -> dict[int, Position]:
        """`first`, moved up to the log start where failOnDataLoss is false."""
        found = dict(first)
        for partition, at in first.items():
            end = ends.get(partition)
            if end is None or end.start <= at.offset:
                continue
            lost = f"rows {at.offset} to {end.start - 1} were given up before the query read them"
            if self._options.flag("failOnDataLoss", default=True):
                raise TruncatedError(
                    f"{lost}; failOnDataLoss=false goes on behind them",
                    topic=self._options.topic,
                    partition=partition,
                    rows_lost=end.start - at.offset,
                    log_start=end.start,
                )
            _LOG.warning("%s: partition %d: %s", self._options.topic, partition, lost)
            found[partition] = Position(partition, end.start)
        return found

    def _rows_room(self, limit: ReadLimit, first: Mapping[int, int], last: Mapping[int, int]) -> int | None:
        """How many rows the micro-batch may have; None = any."""
        rows = sum(last[partition] - first.get(partition, 0) for partition in last)
        if isinstance(limit, ReadMinRows):
            return None if rows >= limit.min_rows or self._target is not None else 0
        if isinstance(limit, ReadAllAvailable):
            return None
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = (
            limit.max_bytes
            if isinstance(limit, ReadMaxBytes)
            else self._options.count("maxBytesPerTrigger", None)
        )
        if size is not None:
            by_size = max(1, int(size / self._row_bytes()))
            room = by_size if room is None else min(room, by_size)
        return room

    def _row_bytes(self) -> float:
        """Bytes that a row takes in the log, on average: the log keeps no size for each offset."""
        parts = self._connected().topic(self._options.topic).partitions
        rows = sum(part.end_offset - part.start_offset for part in parts)
        return max(1.0, sum(part.bytes for part in parts) / max(1, rows))


def shared(first: Mapping[int, int], last: Mapping[int, int], room: int) -> dict[int, int]:
    """Ends that take about `room` rows in all, from each partition in proportion to what waits there.

    At least one row moves when any waits and room is above 0, so that a stream always goes on.
    """
    waiting = {partition: end - first.get(partition, 0) for partition, end in last.items()}
    total = sum(waiting.values())
    if total <= room:
        return dict(last)
    taken = {partition: rows * room // total for partition, rows in waiting.items()}
    left = room - sum(taken.values())
    for partition in sorted(waiting, key=lambda one: (taken[one] - waiting[one], one)):
        more = min(left, waiting[partition] - taken[partition])
        taken[partition] += more
        left -= more
    return {partition: first.get(partition, 0) + rows for partition, rows in taken.items()}

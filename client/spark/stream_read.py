"""`spark.readStream.format("ringfence")`: micro-batches between offsets that Spark keeps in its checkpoint.

An offset is JSON, format 1:

    {"format": 1, "topic": 7, "version": 0, "partitions": {"9": {"offset": 1200}, ...}}

Each partition has a map of its own, so that later versions can say more of it: a partition that was
split stands there as sealed beside its children, whose rows come after its last one.
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
from ringfence.native.errors import InvalidArgumentError, TruncatedError
from ringfence.spark.batch_read import RangePartition, range_reader
from ringfence.spark.options import ROWS_A_TASK
from ringfence.spark.places import offsets_of
from ringfence.spark.ranges import Range, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends
    from ringfence.spark.options import SourceOptions

FORMAT = 1
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
        return self._offset(offsets_of(self._connected(), self._options.topic, ends, start, name="start"))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next micro-batch goes: all that can be read, within the limits of a trigger.

        Raises:
            InvalidArgumentError: `start` is of another topic or a newer format.
            TruncatedError: rows behind `start` were given up, unless failOnDataLoss is false.
        """
        first = self._checked(start)
        ends = self._ends()
        last = {end.partition: end.end for end in ends.values()}
        if self._target is not None:
            last = {
                partition: min(offset, self._target.get(partition, 0)) for partition, offset in last.items()
            }
        first = self._retained(first, ends)
        last = {partition: max(offset, first.get(partition, 0)) for partition, offset in last.items()}
        room = self._rows_room(limit, first, last)
        if room is not None:
            last = shared(first, last, room)
        return self._offset(last)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Options maxRowsPerTrigger and maxBytesPerTrigger; both hold where both are given."""
        rows = self._options.count("maxRowsPerTrigger", None)
        size = self._options.count("maxBytesPerTrigger", None)
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._offset({end.partition: end.end for end in self._ends().values()})

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
        last, first = self._checked(end), self._checked(start)
        for partition, offset in first.items():
            if offset > last.get(partition, offset):
                what = f"partition {partition} ends at {last[partition]}, begins at {offset}"
                raise self._damaged(end, what)
        first = self._retained(first, self._ends())
        spans = [
            Range(partition, first.get(partition, 0), offset) for partition, offset in sorted(last.items())
        ]
        rows_a_task = self._options.count("rowsPerTask", ROWS_A_TASK)
        assert rows_a_task is not None
        return [RangePartition(span) for span in split(spans, rows_a_task)]

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

    def _offset(self, offsets: Mapping[int, int]) -> dict[str, Any]:
        info = self._connected().topic(self._options.topic)
        places = {str(partition): {"offset": offset} for partition, offset in sorted(offsets.items())}
        return {"format": FORMAT, "topic": info.topic, "version": info.version, "partitions": places}

    def _checked(self, offset: Mapping[str, Any]) -> dict[int, int]:
        if not isinstance(offset, dict) or "format" not in offset:
            raise self._damaged(offset, "it has no format")
        if offset["format"] != FORMAT:
            raise InvalidArgumentError(
                "the checkpoint's offset has a format that this version does not read; use a newer ringfence",
                format=offset["format"],
                known=FORMAT,
            )
        info = self._connected().topic(self._options.topic)
        if offset.get("topic") != info.topic:
            raise InvalidArgumentError(
                "the checkpoint is of another topic (or of one of this name that was deleted): "
                "give the query a checkpointLocation of its own",
                topic=info.name,
                topic_id=info.topic,
                checkpoint_topic_id=offset.get("topic"),
            )
        try:
            found = {int(partition): place["offset"] for partition, place in offset["partitions"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged(offset, f"its partitions are no map of offsets: {error!r}") from error
        known = {part.partition for part in info.partitions}
        for partition, at in found.items():
            if partition not in known:
                raise self._damaged(offset, f"the topic has no partition {partition}")
            if type(at) is not int or at < 0:
                raise self._damaged(offset, f"partition {partition} has no offset {at!r}")
        return found

    def _damaged(self, offset: object, what: str) -> InvalidArgumentError:
        """An error for an offset that this source has not written so."""
        return InvalidArgumentError(
            f"an offset of the checkpoint was edited or is damaged: {what}; restore the checkpoint, or give "
            "the query a checkpointLocation of its own and a start",
            topic=self._options.topic,
            given=offset,
        )

    def _retained(self, first: Mapping[int, int], ends: Mapping[int, Ends]) -> dict[int, int]:
        """`first`, moved up to the log start where failOnDataLoss is false."""
        found = dict(first)
        for partition, offset in first.items():
            end = ends.get(partition)
            if end is None or end.start <= offset <= end.end:
                continue
            if offset > end.end:
                raise TruncatedError(
                    f"the checkpoint has read up to row {offset}, the log ends at {end.end}: it is not "
                    "the log that the query read (restored from a backup?); give it a checkpointLocation of "
                    "its own",
                    topic=self._options.topic,
                    partition=partition,
                )
            lost = f"rows {offset} to {end.start - 1} were given up before the query read them"
            if self._options.flag("failOnDataLoss", default=True):
                raise TruncatedError(
                    f"{lost}; failOnDataLoss=false goes on behind them",
                    topic=self._options.topic,
                    partition=partition,
                    rows_lost=end.start - offset,
                    log_start=end.start,
                )
            _LOG.warning("%s: partition %d: %s", self._options.topic, partition, lost)
            found[partition] = end.start
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

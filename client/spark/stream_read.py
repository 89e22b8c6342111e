"""Stream reader of `spark.readStream.format("ringfence")`: micro-batches between positions of the checkpoint.

A position of the checkpoint must belong to the log's history. After an owner was chosen by force, the stream
continues if the rows that it has read are still in the log, and fails if they were lost. `stream_offset` has
the format of the positions, `stream_lineage` the order of partitions that were split or merged.
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
from ringfence.cluster.read_plan import lost_error
from ringfence.common.lineage import Lost, view_of
from ringfence.native.errors import TruncatedError
from ringfence.spark.batch_read import RangePartition, range_reader
from ringfence.spark.options import ROWS_A_TASK
from ringfence.spark.ranges import Range, split
from ringfence.spark.read_bounds import is_finished, positions_of
from ringfence.spark.stream_cohort import QueryMember, done_before, positions_of_offset
from ringfence.spark.stream_lineage import beginning
from ringfence.spark.stream_offset import damaged, decode, encode, query_of, version_of
from ringfence.spark.verify_positions import History

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends
    from ringfence.common.lineage import View
    from ringfence.spark.options import SourceOptions
    from ringfence.spark.stream_offset import StreamOffset

# The advice of the error for a checkpoint of another history.
WAY_OUT = (
    "rows that the query has read were lost. Give the query a checkpointLocation of its own and a start; "
    'docs/spark.md has the steps, under "After a forced owner"'
)
_LOG = logging.getLogger("ringfence.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver with one client that stays open until `stop`; `read` runs on workers without it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reader = range_reader(options, schema)
        # None until the first use, and on workers.
        self._client: Client | None = None
        # With trigger AvailableNow: the ends at the start of the query, by partition; it reads no later rows.
        self._final_ends: dict[int, int] | None = None
        # Partitions that the last planned batch did not list any more.
        self._finished: frozenset[int] = frozenset()
        # With the option cohort, on the driver.
        cohort = options.text("cohort")
        self._member = None if cohort is None else QueryMember(options, cohort)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_member": None}  # workers get values only

    # ---- offsets, on the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The positions of the option `start`; default: earliest."""
        query = self._joined()
        view, ends = self._ends()
        start = self._options.text("start") or "earliest"
        first = positions_of(self._connect(), self._options.topic, ends, start, name="start")
        first = {one: position for one, position in first.items() if not is_finished(ends[one], position)}
        epochs = self._history(ends).epochs(
            {position.partition: position.offset for position in first.values() if not position.epoch}
        )
        return encode(
            view,
            (
                position._replace(epoch=epochs.get(partition, position.epoch))
                for partition, position in first.items()
            ),
            query=query,
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch: all rows that can be read, within the limits of a trigger.

        Partitions that were split or merged come first: their children begin with the batch after their end.

        Raises:
            InvalidArgumentError: `start` is of another topic or a newer format.
            TruncatedError: rows after `start` were removed, unless failOnDataLoss is false; or rows before
                `start` were lost, and the log has another history.
            MemberExistsError: the cohort of the option has another member.
        """
        query = self._joined(start)
        view, ends = self._ends(start)
        given = decode(self._options.topic, view, start)
        history = self._history(ends)
        self._prove(history, given.positions)
        begin = beginning(view, given, ends)
        self._finished = begin.finished
        if (
            self._member is not None
        ):  # all rows before `start` were processed: batches run one after the other
            self._member.report(done_before(given.positions, begin, ends))
        for lost in begin.lost:
            self._lose(lost_error(self._options.topic, lost))
        positions = self._from_log_start(begin.positions, ends)
        first = {partition: position.offset for partition, position in positions.items()}
        last = {partition: self._end_of(ends[partition]) for partition in begin.admitted}
        last = {partition: max(offset, first[partition]) for partition, offset in last.items()}
        rows_max = self._rows_max(limit, first, last)
        if rows_max is not None:
            last = divide(first, last, rows_max)
        last = {**first, **last}
        epochs = history.epochs(last)
        at_end = {one for one in begin.admitted if ends[one].ended and last[one] == ends[one].end}
        ended = begin.ended | at_end
        places = (Position(one, offset, epochs[one]) for one, offset in last.items())
        after = encode(view, places, ended, query)
        return self._unless_equal(view, given, after)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of maxRowsPerTrigger and maxBytesPerTrigger; with both options both apply."""
        rows = self._options.count("maxRowsPerTrigger", None)
        size = self._options.count("maxBytesPerTrigger", None)
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        view, ends = self._ends()
        unread = (end for end in ends.values() if end.partition not in self._finished)
        return encode(view, (Position(end.partition, end.end, end.epoch) for end in unread))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._final_ends = {end.partition: end.end for end in self._ends()[1].values()}

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the cohort, if there is one. Spark's checkpoint has the position of the query."""
        if self._member is not None:
            self._member.report(positions_of_offset(end))

    def stop(self) -> None:
        if self._member is not None:
            self._member.leave()
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- a micro-batch ------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The ranges from `start` to `end`; after a restart both come from the checkpoint."""
        topic = self._options.topic
        self._joined(start, end)
        view, ends = self._ends(start, end)
        before, after = decode(topic, view, start), decode(topic, view, end)
        history = self._history(ends)
        self._prove(history, before.positions)
        self._prove(history, after.positions)
        spans = []
        for partition, last in sorted(after.positions.items()):
            # A partition that is new in this batch is read from its first row.
            first = before.positions.get(partition, Position(partition, 0))
            if first.offset > last.offset:
                reason = f"partition {partition} ends at {last.offset}, begins at {first.offset}"
                raise damaged(topic, end, reason)
            if first.offset == last.offset:
                continue
            if partition not in ends:
                self._lose(lost_error(topic, Lost(partition, first.offset, last.offset)))
                continue
            first = self._from_log_start({partition: first}, ends)[partition]
            spans.append(Range.between(first, last))
        for partition in before.positions.keys() - after.positions.keys() - before.ended:
            if partition in ends:
                raise damaged(topic, end, f"partition {partition} is missing")
        rows_a_task = self._options.count("rowsPerTask", ROWS_A_TASK)
        assert rows_a_task is not None
        return [RangePartition(span) for span in history.with_epochs(split(spans, rows_a_task))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return self._reader.read(partition.span)

    # ---- private ------------------------------------------------------------------------------------------

    def _joined(self, *offsets: object) -> str:
        """Be a member of the cohort, if there is one.

        The id of the query for the next offset; "": it has none.
        """
        if self._member is None:
            return next(filter(None, map(query_of, offsets)), "")
        self._member.join(*offsets)
        return self._member.query

    def _connect(self) -> Client:
        if self._client is None:
            self._client = connect(self._options.address, token_file=self._options.token_file)
        return self._client

    def _ends(self, *offsets: object) -> tuple[View, dict[int, Ends]]:
        """The partitions of the topic, and the ends of all of them; as new as the layout of these offsets."""
        version = max([version_of(offset) for offset in offsets], default=0)
        layout, ends = self._connect().layout_and_ends(self._options.topic, version=version)
        return view_of(layout), ends

    def _end_of(self, end: Ends) -> int:
        return end.end if self._final_ends is None else min(end.end, self._final_ends.get(end.partition, 0))

    def _history(self, ends: Mapping[int, Ends]) -> History:
        return History(self._connect(), self._options.topic, ends)

    def _prove(self, history: History, positions: Mapping[int, Position]) -> None:
        """Raises TruncatedError if the query read or planned rows of another history of the log."""
        history.prove(positions.values(), whose="the checkpoint", way_out=WAY_OUT)

    def _unless_equal(self, view: View, given: StreamOffset, after: dict[str, Any]) -> dict[str, Any]:
        """`after`; or the offset before it, if they differ only in partitions that ended in that one.

        Spark runs a micro-batch wherever two offsets differ.
        """
        kept = encode(view, given.positions.values(), given.ended, given.query)
        left = {one: place for one, place in kept["partitions"].items() if int(one) not in given.ended}
        return kept if left == after["partitions"] else after

    def _lose(self, error: TruncatedError) -> None:
        """Raises the error, unless failOnDataLoss is false."""
        if self._options.flag("failOnDataLoss", default=True):
            raise error
        _LOG.warning("%s: partition %s: %s", self._options.topic, error.partition, error.message)

    def _from_log_start(self, first: Mapping[int, Position], ends: Mapping[int, Ends]) -> dict[int, Position]:
        """`first`; with failOnDataLoss=false positions below the log start are moved to the log start.

        Raises:
            TruncatedError: a position is below the log start, and failOnDataLoss is true.
        """
        positions = dict(first)
        for partition, position in first.items():
            end = ends.get(partition)
            if end is None or end.start <= position.offset:
                continue
            self._lose(
                TruncatedError(
                    f"rows {position.offset} to {end.start - 1} were removed before the query read them; "
                    "failOnDataLoss=false continues after them",
                    topic=self._options.topic,
                    partition=partition,
                    rows_lost=end.start - position.offset,
                    log_start=end.start,
                )
            )
            positions[partition] = Position(partition, end.start)
        return positions

    def _rows_max(self, limit: ReadLimit, first: Mapping[int, int], last: Mapping[int, int]) -> int | None:
        """Maximum number of rows of the micro-batch; None: no limit."""
        rows = sum(last[partition] - first[partition] for partition in last)
        if isinstance(limit, ReadMinRows):
            return None if rows >= limit.min_rows or self._final_ends is not None else 0
        if isinstance(limit, ReadAllAvailable):
            return None
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = (
            limit.max_bytes
            if isinstance(limit, ReadMaxBytes)
            else self._options.count("maxBytesPerTrigger", None)
        )
        if size is not None:
            by_size = max(1, int(size / self._row_bytes()))
            rows_max = by_size if rows_max is None else min(rows_max, by_size)
        return rows_max

    def _row_bytes(self) -> float:
        """Mean bytes of a row in the log: nodes do not tell the size of a range of offsets."""
        parts = self._connect().topic(self._options.topic).partitions
        rows = sum(part.end_offset - part.start_offset for part in parts)
        return max(1.0, sum(part.bytes for part in parts) / max(1, rows))


def divide(first: Mapping[int, int], last: Mapping[int, int], rows_max: int) -> dict[int, int]:
    """Ends that include `rows_max` rows in all, from each partition in proportion to its unread rows.

    If there are unread rows and `rows_max` is above 0, at least one row is included: a stream never stalls.
    """
    unread = {partition: end - first.get(partition, 0) for partition, end in last.items()}
    total = sum(unread.values())
    if total <= rows_max:
        return dict(last)
    shares = {partition: rows * rows_max // total for partition, rows in unread.items()}
    left = rows_max - sum(shares.values())
    for partition in sorted(unread, key=lambda one: (shares[one] - unread[one], one)):
        more = min(left, unread[partition] - shares[partition])
        shares[partition] += more
        left -= more
    return {partition: first.get(partition, 0) + rows for partition, rows in shares.items()}

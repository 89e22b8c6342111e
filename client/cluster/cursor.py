"""The state of the partitions in a read: rows fetched, rows returned, pending requests; which are open."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ringfence.cluster.offsets import Position
from ringfence.cluster.read_plan import Span
from ringfence.common.lineage import Admit, Begin, FetchTable, Finish, Lost
from ringfence.native.errors import TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ringfence.arrow.decode import Place
    from ringfence.cluster.read_plan import Plan
    from ringfence.common.lineage import Effect
    from ringfence.native import wire


class Cursor:
    """The state of one partition: offsets fetched and returned.

    Attributes:
        begin: the position at which it began.
        last: the offset after the last row that the partition will ever have, once it is sealed.
        version: of the newest layout that the owner has told of.
    """

    __slots__ = (
        "batches",
        "begin",
        "end",
        "epoch",
        "fetched",
        "fetched_epoch",
        "first",
        "generation",
        "is_admitted",
        "last",
        "offset",
        "partition",
        "pending",
        "redirected_s",
        "redirects",
        "requested",
        "resume_s",
        "version",
    )

    def __init__(self, span: Span) -> None:
        self.partition = span.partition
        self.begin = Position(span.partition, span.start, span.epoch)
        self.offset, self.epoch = span.start, span.epoch  # of the next row to return
        self.fetched, self.fetched_epoch = span.start, span.epoch  # of the next row to fetch
        self.end = span.end  # None: follow without end
        self.last, self.version = span.last, 0
        self.is_admitted = False  # until every ancestor is finished
        self.first = span.from_log_start  # no row was read yet: the read may begin at a later log start
        self.redirects = 0  # in a row, since `redirected_s`
        self.redirected_s = self.resume_s = 0.0
        self.batches: Iterator[tuple[Place, pa.RecordBatch]] | None = None
        # Offset of the last FETCH, and whether it is pending.
        self.requested, self.pending = span.start, False
        self.generation = 0  # of the table that the last FETCH was routed by

    @property
    def wants_more(self) -> bool:
        return (self.end is None or self.fetched < self.end) and not self.is_at_last

    @property
    def is_at_last(self) -> bool:
        """Whether all rows of a sealed partition were fetched."""
        return self.last is not None and self.fetched >= self.last

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset; the epoch of the row before it is unknown."""
        self.offset = self.fetched = offset
        self.epoch = self.fetched_epoch = 0

    def rows_of(self, record: wire.RecordHeader) -> tuple[int, int]:
        """The rows of a record to return: first .. last - 1; none if first >= last."""
        last = record.first_offset + record.rows
        return max(record.first_offset, self.offset), last if self.end is None else min(last, self.end)


class Applied(NamedTuple):
    """What the reader does after effects of its lineage.

    `admitted` are fetched from now on, `finished` no more. `unknown` have ended, and the held table does not
    have their children. `lost` were pruned before all of their rows were read.
    """

    admitted: list[Cursor]
    finished: list[Cursor]
    unknown: list[Cursor]
    lost: list[tuple[Cursor, Lost]]


class Cursors:
    """The cursors of one reader, by partition.

    Attributes:
        by_partition: replaced, never changed: other threads may look at it. A reader of named partitions
            keeps those that are finished.
        lineage: says which ones may be fetched.
        ended: partitions whose last row was returned.
    """

    def __init__(self, plan: Plan, *, skips: bool) -> None:
        """`skips`: go on after rows that were removed before they were read."""
        self.by_partition = {span.partition: Cursor(span) for span in plan.spans}
        self.lineage = plan.lineage
        self.ended: set[int] = set()
        self._limited, self._skips = plan.limited, skips

    def begin(self) -> Applied:
        return self.apply([Admit(partition) for partition in self.lineage.admitted])

    def apply(self, effects: Iterable[Effect]) -> Applied:
        """Carry out effects of the lineage, in order."""
        applied = Applied([], [], [], [])
        cursors, left = dict(self.by_partition), deque(effects)
        while left:
            match left.popleft():
                case Begin(partition):
                    # Strictly from the first row: rows that retention took before they were read are lost.
                    cursors[partition] = Cursor(Span(partition, 0, 0, None, from_log_start=False))
                case Admit(partition):
                    cursor = cursors[partition]
                    if not cursor.is_admitted:
                        cursor.is_admitted = True
                        applied.admitted.append(cursor)
                        left.extend(self.lineage.ended(partition) if cursor.is_at_last else ())
                case Finish(partition):
                    self.ended.add(partition)
                    applied.finished.append(cursors[partition])
                    if not self._limited:
                        del cursors[partition]
                case FetchTable(partition):
                    applied.unknown.append(cursors[partition])
                case Lost(partition) as lost:
                    if self._skips:
                        left.extend(self.lineage.skip(partition))
                    else:
                        applied.lost.append((cursors[partition], lost))
        self.by_partition = cursors
        return applied


def truncated_error(topic: str, cursor: Cursor, error: TruncatedError) -> TruncatedError:
    """The error for the application, from that of a node: which rows it does not get."""
    start = int(error.details.get("start_offset", 0))
    lost = max(0, start - cursor.fetched)
    why = (
        f"rows {cursor.fetched} to {start - 1} were removed by retention"
        if lost
        else "the log was truncated and rewritten there"
    )
    return TruncatedError(
        f"{why}; continue at the log start, or at another offset",
        topic=topic,
        partition=cursor.partition,
        code=error.code,
        offset=cursor.fetched,
        start_offset=start,
        rows_lost=lost,
    )


def ended_early_error(topic: str, cursor: Cursor, end: int) -> TruncatedError:
    """The error if the log ends earlier: a former owner may report that; a forced owner has lost rows."""
    return TruncatedError(
        f"the log ends at {end}, and ended at {cursor.end} when the read began: rows were lost",
        topic=topic,
        partition=cursor.partition,
        offset=cursor.fetched,
        rows_lost=0 if cursor.end is None else cursor.end - end,
    )

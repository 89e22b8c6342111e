"""The state of one partition in a read: rows fetched, rows returned, the pending request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ringfence.arrow.decode import Place
    from ringfence.cluster.offsets import Span
    from ringfence.native import wire


class Cursor:
    """The state of one partition: offsets fetched and returned."""

    __slots__ = (
        "batches",
        "end",
        "epoch",
        "fetched",
        "fetched_epoch",
        "first",
        "offset",
        "partition",
        "pending",
        "redirected_s",
        "redirects",
        "requested",
        "resume_s",
    )

    def __init__(self, span: Span) -> None:
        self.partition = span.partition
        self.offset, self.epoch = span.start, span.epoch  # of the next row to return
        self.fetched, self.fetched_epoch = span.start, span.epoch  # of the next row to fetch
        self.end = span.end  # None: follow without end
        self.first = span.from_log_start  # no row was read yet: the read may begin at a later log start
        self.redirects = 0  # in a row, since `redirected_s`
        self.redirected_s = self.resume_s = 0.0
        self.batches: Iterator[tuple[Place, pa.RecordBatch]] | None = None
        # Offset of the last FETCH, and whether it is pending.
        self.requested, self.pending = span.start, False

    @property
    def wants_more(self) -> bool:
        return self.end is None or self.fetched < self.end

    def rows_of(self, record: wire.RecordHeader) -> tuple[int, int]:
        """The rows of a record to return: first .. last - 1; none if first >= last."""
        last = record.first_offset + record.rows
        return max(record.first_offset, self.offset), last if self.end is None else min(last, self.end)

"""Read a topic as a member of a cohort, for `ringfence read --cohort`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click
import pyarrow as pa

if TYPE_CHECKING:
    from ringfence import Consumer

# Without --follow, reading ends when nothing has come for so long: rows of an owner that answers come in
# milliseconds, and a second is left for a hold that another member gives up.
IDLE_S: Final = 2.0
WAIT_S: Final = 0.2


def check_options(*, partitions: list[int], start: str) -> None:
    """UsageError for options that do not go with --cohort."""
    if partitions:
        raise click.UsageError("--partition does not go with --cohort: the members share the partitions")
    if start not in {"earliest", "latest"}:
        raise click.UsageError(
            f"--start {start}: a new cohort begins at earliest or latest; `ringfence cohort reset` moves it"
        )


def batches_of(
    consumer: Consumer, *, follow: bool, limit: int | None, acknowledges: bool, patience_s: float
) -> Iterator[pa.RecordBatch]:
    """Batches of a member. One that was used is acknowledged: when the next one is asked for, or at the end.

    `patience_s`: how long to wait for partitions of this member, without `follow`.
    """
    left, end_s = limit, time.monotonic() + patience_s
    is_member = False
    while (left is None or left > 0) and (follow or time.monotonic() < end_s):
        batch = consumer.next(WAIT_S)
        if batch is None:
            if not is_member and consumer.core.is_member:
                is_member, end_s = True, time.monotonic() + IDLE_S
            continue
        place = consumer.place
        assert place is not None, "a batch has a place"
        rows = batch.num_rows if left is None else min(left, batch.num_rows)
        left = None if left is None else left - rows
        is_member = True
        yield batch.slice(0, rows)
        end_s = time.monotonic() + IDLE_S
        if acknowledges:
            consumer.ack_through(place, rows)

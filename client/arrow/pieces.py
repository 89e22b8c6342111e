"""Split a stream of record batches into pieces of the size of a body while reading it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ringfence.arrow.batches import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa


def read_ahead(
    batches: Iterator[pa.RecordBatch], bytes_max: int
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """The first batches, up to more than `bytes_max` bytes, and the rest of the stream; None: no rest."""
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        found.append(batch)
        size += bytes_of(batch)
        if size > bytes_max:
            return found, batches
    return found, None


def pieces(
    ahead: list[pa.RecordBatch],
    rest: Iterator[pa.RecordBatch],
    piece_bytes: int,
    join: Callable[[list[pa.RecordBatch]], list[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """All batches in order; small ones are joined up to `piece_bytes`. Returned batches are not kept."""
    waiting = deque(ahead)
    ahead.clear()
    held: list[pa.RecordBatch] = []
    size = 0
    while (batch := waiting.popleft() if waiting else next(rest, None)) is not None:
        held.append(batch)
        size += bytes_of(batch)
        if size >= piece_bytes:
            yield from join(held)
            held, size = [], 0
    if held:
        yield from join(held)

"""Messages of the story: each has rows of one stream. A stream is the order that a group keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ringfence.native.slots import slots

STREAMS = 8
SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in ("key", "stream", "serial", "sent_ns")]
)


def rows_of(key: int, stream: int, serial: int, rows: int) -> pa.RecordBatch:
    """A message that is sent now. `serial` counts the messages of its stream."""
    values = (key, stream, serial, time.monotonic_ns())
    return pa.record_batch([pa.array(np.full(rows, value)) for value in values], schema=SCHEMA)


def packed(batch: pa.RecordBatch) -> bytes:
    """For systems to which rows are bytes."""
    return bytes(batch.serialize())


def unpacked(body: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(body), SCHEMA)


def parts(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int, int]]:
    """(stream, serial, when it was sent in ns, rows) of each message, or part of one, in a batch."""
    stream, serial, sent = (batch.column(name).to_numpy() for name in ("stream", "serial", "sent_ns"))
    begins = np.flatnonzero(np.r_[True, (serial[1:] != serial[:-1]) | (stream[1:] != stream[:-1])])
    for begin, end in zip(begins, [*begins[1:], len(serial)], strict=True):
        yield int(stream[begin]), int(serial[begin]), int(sent[begin]), int(end - begin)


def keys_of_partitions(partitions: int) -> list[int]:
    """A key of each of so many equal partitions."""
    candidates = pa.record_batch({"key": pa.array(np.arange(1_000 * partitions))})
    width = 65_536 // partitions
    found: dict[int, int] = {}
    for key, slot in enumerate(slots(candidates, "key")):
        found.setdefault(int(slot) // width, key)
    return [found[at] for at in range(partitions)]

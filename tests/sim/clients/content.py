"""Bodies of one `int64` column: made once for each row count, then filled with ids in place."""

from __future__ import annotations

import struct
from functools import cache, lru_cache

import pyarrow as pa

from ringfence.native._node import Encoder, schema_message

SCHEMA = schema_message(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
_MARK = 0x0123_4567_89AB_CDEF
WARM_ROWS = 512


@cache
def _template(rows: int) -> tuple[bytes, int]:
    """A body, and where its column begins."""
    batch = pa.record_batch(
        {"id": pa.array([_MARK] * rows, pa.int64())}, pa.schema(pa.ipc.read_schema(pa.py_buffer(SCHEMA)))
    )
    body = bytes(Encoder(SCHEMA).whole(batch)[0])
    return body, body.index(struct.pack("<q", _MARK))


def warm() -> None:
    """Make what batches of few rows are filled into, once for all children of this process."""
    for rows in range(1, WARM_ROWS):
        _template(rows)


@lru_cache(4096)
def body_of(first: int, rows: int) -> bytes:
    """Ids `first` to `first + rows - 1`."""
    body, at = _template(rows)
    ids = struct.pack(f"<{rows}q", *range(first, first + rows))
    return body[:at] + ids + body[at + len(ids) :]


def first_id(body: memoryview | bytes, rows: int) -> int:
    """The first id of a body of so many rows; any number if it is none of `body_of`."""
    _, at = _template(rows)
    found: int = struct.unpack_from("<q", body, at)[0] if len(body) >= at + 8 else -1
    return found

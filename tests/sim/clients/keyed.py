"""Rows with a key, as batches and as bodies: each has an id of its own, from which its key follows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

import pyarrow as pa

from ringfence.arrow.decode import read_body
from ringfence.native._node import schema_message
from ringfence.native.slots import slots

KEYS: Final = 24
"""Different keys of a run: few, so that each has rows in most partitions of its lineage."""
SOURCE_BITS: Final = 40
"""Of an id. A row that is made of another has more bits above that row's id, and its key."""
_MULTIPLIER: Final = 0x9E37_79B9_7F4A_7C15
_MASK: Final = (1 << 64) - 1
ROWS: Final = pa.schema(
    [pa.field("key", pa.int64(), nullable=False), pa.field("id", pa.int64(), nullable=False)]
)
SCHEMA: Final = schema_message(ROWS)
_MESSAGE: Final = pa.py_buffer(SCHEMA)
KEY: Final = ["key"]


def source_of(number: int) -> int:
    """The id of the row that this one is made of; of a row that is made of none its own."""
    return number & ((1 << SOURCE_BITS) - 1)


def key_of(number: int) -> int:
    """The key of the row with this id."""
    return (((source_of(number) * _MULTIPLIER) & _MASK) >> 40) % KEYS


@cache
def _slots() -> tuple[int, ...]:
    """The slot of each key."""
    keys = pa.record_batch({"key": pa.array(range(KEYS), pa.int64())})
    return tuple(slots(keys, KEY).tolist())


def slot_of(number: int) -> int:
    """The slot of the row with this id."""
    return _slots()[key_of(number)]


def rows_of(ids: Sequence[int]) -> pa.RecordBatch:
    """The rows with these ids."""
    keys = pa.array([key_of(number) for number in ids], pa.int64())
    return pa.record_batch([keys, pa.array(ids, pa.int64())], ROWS)


@lru_cache(4096)
def ids_of(body: bytes) -> tuple[int, ...]:
    """The ids in a body, which has no extension. ValueError: a row has another key than its id says."""
    rows = read_body(_MESSAGE, ROWS, memoryview(body), is_stream=False)
    ids = tuple(rows.column(1).to_pylist())
    if rows.column(0).to_pylist() != [key_of(number) for number in ids]:
        raise ValueError(f"rows {ids[:4]} have other keys than they were sent with")
    return ids


def first_id(body: memoryview | bytes, rows: int) -> int:
    """The first id of a body; -1 if it has another number of rows."""
    found = ids_of(bytes(body))
    return found[0] if len(found) == rows else -1

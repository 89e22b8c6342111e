"""The memory of decoded batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ringfence.arrow.decode import ALIGNED_BYTES, read_body

ROWS = pa.record_batch([pa.array(range(40)), pa.array(["word"] * 40)], names=["id", "word"])


def at_address(message: bytes, after: int) -> memoryview:
    """The message `after` bytes behind an address that is a multiple of 64."""
    memory = bytearray(len(message) + 128)
    start = -pa.py_buffer(memory).address % 64 + after
    memory[start : start + len(message)] = message
    return memoryview(memory)[start : start + len(message)]


@pytest.mark.parametrize("after", [0, 1, 4, 8, 63])
def test_columns_are_aligned_and_views_where_the_message_is(after: int) -> None:
    message = at_address(ROWS.serialize().to_pybytes(), after)
    batch = read_body(ROWS.schema.serialize(), ROWS.schema, message, is_stream=False)
    assert batch.equals(ROWS)
    begin = pa.py_buffer(message).address
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    assert len(buffers) == 3
    for buffer in buffers:
        assert buffer.address % ALIGNED_BYTES == 0
        assert (begin <= buffer.address < begin + len(message)) == (after % ALIGNED_BYTES == 0), "a view"
